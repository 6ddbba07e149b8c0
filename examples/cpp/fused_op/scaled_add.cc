// SPDX-License-Identifier: Apache-2.0
// An operator of one's own as a kernel in C++: out = 2 * (x + y) in f32, row by row, shared by all workers.
//
// From the root of the project (README.md has the rest):
//
//   c++ -O2 -shared -fPIC -I include examples/cpp/fused_op/scaled_add.cc -o libscaled_add.so
//
//   atb.load_library("./libscaled_add.so")
//   ... return FusionOp("scaled_add", kernel="scaled_add")
#include <atb/plugin.h>

#include <cstdint>

namespace {

// Elements of one row, the last axis; an array without axes is one row of one element.
int64_t row_length(const atb_tensor& tensor) { return tensor.rank == 0 ? 1 : tensor.shape[tensor.rank - 1]; }

int64_t count_rows(const atb_call* call) {
  int64_t rows = 1;
  for (int32_t axis = 0; axis + 1 < call->outputs[0].rank; ++axis) rows *= call->outputs[0].shape[axis];
  return rows;
}

// The first element of a row; inputs may have any strides.
float* row_of(const atb_tensor& tensor, int64_t row) {
  int64_t offset = 0;
  for (int32_t axis = tensor.rank - 2; axis >= 0; --axis) {
    offset += row % tensor.shape[axis] * tensor.strides[axis];
    row /= tensor.shape[axis];
  }
  return static_cast<float*>(tensor.data) + offset;
}

int64_t row_stride(const atb_tensor& tensor) { return tensor.rank == 0 ? 0 : tensor.strides[tensor.rank - 1]; }

const char* supports(const atb_call* types) {
  if (types->num_inputs != 2 || types->num_outputs != 1) return "it takes two inputs and gives one output";
  const atb_tensor* out = &types->outputs[0];
  for (int32_t i = 0; i < 2; ++i) {
    const atb_tensor& input = types->inputs[i];
    if (input.dtype != ATB_F32) return "inputs must be f32";
    if (input.rank != out->rank) return "inputs must have the output's shape";
  }
  return nullptr;
}

int32_t run(const atb_call* call, int64_t begin, int64_t end) {
  const atb_tensor &x = call->inputs[0], &y = call->inputs[1], &out = call->outputs[0];
  if (end > count_rows(call)) end = count_rows(call);  // without rows there is one unit all the same
  for (int64_t row = begin; row < end; ++row) {
    const float *a = row_of(x, row), *b = row_of(y, row);
    float* to = row_of(out, row);
    for (int64_t i = 0; i < row_length(out); ++i) to[i] = 2 * (a[i * row_stride(x)] + b[i * row_stride(y)]);
  }
  return 0;
}

const atb_kernel kernels[] = {{"scaled_add", supports, count_rows, run}};
const atb_plugin plugin = {ATB_PLUGIN_ABI, 1, kernels};

}  // namespace

ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &plugin; }
