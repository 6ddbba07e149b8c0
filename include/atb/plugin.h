// SPDX-License-Identifier: Apache-2.0
// The C interface of kernels that come from outside: one file compiled to a shared library, loaded with
// atb.load_library("libmine.so"). Nothing of ATB has to be linked; this header is all that is needed, in C or C++.
//
//   static int32_t run(const atb_call* call, int64_t begin, int64_t end) { ...; return 0; }
//   static const atb_kernel kernels[] = {{"my_fused_op", 0, 0, run}};
//   static const atb_plugin plugin = {ATB_PLUGIN_ABI, 1, kernels};
//   ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &plugin; }
#ifndef ATB_PLUGIN_H_
#define ATB_PLUGIN_H_

#include <stdint.h>

// Version of this interface. A library made for a later version than ATB has is refused, and so are those before 1, the
// oldest that it takes: a version only adds members behind those that were there. 2 added atb_call::context.
#define ATB_PLUGIN_ABI 2
#define ATB_PLUGIN_ABI_OLDEST 1

// Element types. bf16 is the upper half of an f32; bool is one byte, 0 or 1.
enum {
  ATB_F32 = 0,
  ATB_F64 = 1,
  ATB_F16 = 2,
  ATB_BF16 = 3,
  ATB_I8 = 4,
  ATB_U8 = 5,
  ATB_I32 = 6,
  ATB_I64 = 7,
  ATB_BOOL = 8
};

// One operand. Strides are in elements. Inputs may have any strides, outputs are dense and row-major.
typedef struct atb_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  const int64_t* shape;
  const int64_t* strides;
} atb_tensor;

// The call of a declared block that a plugin runs in. Later versions add members at the end, `size` tells which are
// there.
typedef struct atb_context {
  int64_t size;              // bytes of this structure as ATB knows it
  const char* point;         // as the plugin was registered: "pre_attention"
  int64_t layer;             // of the model: as the block says, else its slot in the cache; -1: neither is known
  int64_t batch;             // sequences
  int64_t tokens;            // of the call, in each sequence
  const int64_t* positions;  // [batch, tokens], dense: those of the call, else counted on from the cache's length
  const int64_t* lengths;    // [batch]: keys in the cache and of the call, or those that a mask [batch, keys] shows
} atb_context;

// One call: outputs have their final shapes, and every element of them must be written.
typedef struct atb_call {
  int32_t num_inputs;
  int32_t num_outputs;
  const atb_tensor* inputs;
  const atb_tensor* outputs;
  const atb_context* context;  // since version 2. Null outside of plugins of blocks, and in supports() and units()
} atb_call;

// A kernel. Its functions may be called from several threads at once, and must not throw.
typedef struct atb_kernel {
  // What FusionOp(name, kernel=...) asks for, or the name of an operator that ATB does not know.
  const char* name;
  // Asked once when a graph is compiled, with no data, and -1 for extents that a call decides. Null if the kernel takes
  // these operands, else the reason, as "x must be f32". Null pointer: it takes everything.
  const char* (*supports)(const atb_call* types);
  // Into how many independent units the work of a call can be cut, from sizes alone; workers share them. Null
  // pointer: 1.
  int64_t (*units)(const atb_call* call);
  // Computes units [begin, end). 0, or another number where it cannot: the call then ends with an error.
  int32_t (*run)(const atb_call* call, int64_t begin, int64_t end);
} atb_kernel;

typedef struct atb_plugin {
  int32_t abi;  // ATB_PLUGIN_ABI
  int32_t num_kernels;
  const atb_kernel* kernels;
} atb_plugin;

#ifdef __cplusplus
#define ATB_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define ATB_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

// What a library defines. The structure and all it points at stay valid as long as the process lives.
ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void);

#endif  // ATB_PLUGIN_H_
