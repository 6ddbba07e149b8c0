// SPDX-License-Identifier: Apache-2.0
// Any graph made executable: optimized, planned by shape, and called with arrays; its attentions may keep a KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "ir/graph.h"
#include "passes/cache_attention.h"
#include "passes/engine/report.h"
#include "runtime/host_kernel.h"

namespace atb {

class KvSlots;
class Trace;

// A dense, row-major array that owns its memory, or shares it with whoever made it.
struct Tensor {
  std::shared_ptr<std::byte> data;  // never null, not even of an array without elements; 64-byte aligned
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  static Tensor allocate(DType dtype, std::vector<int64_t> shape);  // zero-filled; kResourceExhausted
  TensorView view() const { return TensorView::dense(data.get(), dtype, shape); }
};

struct CompileOptions {
  std::string device = "cpu";
  std::string precision = "auto";  // "auto": fast where a constant is quantized, exact otherwise; "exact"; "fast"
  int threads = 0;                 // 0: all available CPUs
  HostKernels host_kernels{};      // of external nodes that code of the caller computes, on the thread that calls run()
  MatchReport earlier{};           // what patterns of the caller have done to the graph; part of the report
  // Scopes of causal attentions that read and append to a KV cache (see passes/cache_attention.h), slot 0 first, and
  // the dtype of that cache.
  std::vector<std::string> cached{};
  DType kv_dtype = DType::kF32;
  int64_t opt_level = 3;  // 0 as written, 1 canonical, 2 fused, 3 planned; see passes/opt_level.h
};

// The cache of one call: the attention of slot i of the graph appends to slots[i] of the cache.
struct CacheUse {
  KvSlots* cache = nullptr;
  std::span<const int64_t> slots{};
};

// Puts `constant` in the place of the graph's constant of the same name. kNotFound if the graph uses none of that name,
// kInvalidArgument if dtype, encoding or shape differ.
void bind_constant(Graph& graph, const ConstantRef& constant);

// Thread safe: concurrent calls wait for one another.
class CompiledGraph {
 public:
  // `graph` is a plain or optimized graph. kUnsupported for one that comes with state (that is LanguageModel's work),
  // kFailedPrecondition if a constant has no data (none was given, or it was released), kInvalidArgument if a symbol
  // cannot be found from input shapes.
  // External nodes that are still there: kUnsupported for those without kernel, kFailedPrecondition for those whose
  // kernel is not there.
  explicit CompiledGraph(std::unique_ptr<Graph> graph, const CompileOptions& options = {});
  ~CompiledGraph();
  CompiledGraph(const CompiledGraph&) = delete;
  CompiledGraph& operator=(const CompiledGraph&) = delete;

  // One call. `inputs` are in the order of the graph's and are read during the call only; any strides (0 and negative
  // ones too) and any alignment are right, but an input is copied first if its elements are misaligned, or if a reshape
  // needs it in one piece. Results are new memory that outlives this object. kInvalidArgument names the input whose
  // rank, dtype or shape does not fit, kResourceExhausted if memory runs out.
  // What a host kernel throws ends the call, and later calls are right again; one that calls this graph gets
  // kFailedPrecondition. `owner` keeps the inputs' memory alive for host kernels that hold on to what they were lent.
  // A graph with cached attentions takes a cache of their heads and dtype (its state is none of `inputs`, nor of the
  // results): kInvalidArgument where there is none or it does not fit. A call that throws leaves the cache as it was.
  // `trace` gets the call as a step named "call", with its launches and nodes.
  std::vector<Tensor> run(std::span<const TensorView> inputs, std::shared_ptr<const void> owner = nullptr,
                          const CacheUse& use = {}, Trace* trace = nullptr);

  const Graph& graph() const;  // as it runs, all patterns applied; without the bytes that were packed
  const std::vector<CachedSlot>& cached() const;  // its cached attentions, by slot
  const MatchReport& report() const;              // what the optimizer did
  int threads() const;
  int64_t plans() const;  // made so far and still held

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace atb
