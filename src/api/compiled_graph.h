// SPDX-License-Identifier: Apache-2.0
// Any graph without state made executable: optimized, planned by shape, and called with arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "ir/graph.h"
#include "passes/engine/report.h"
#include "runtime/host_kernel.h"

namespace atb {

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
};

// Puts `constant` in the place of the graph's constant of the same name. kNotFound if the graph uses none of that name,
// kInvalidArgument if dtype, encoding or shape differ.
void bind_constant(Graph& graph, const ConstantRef& constant);

// Thread safe: concurrent calls wait for one another.
class CompiledGraph {
 public:
  // `graph` is a plain or optimized graph. kUnsupported for one with state (that is LanguageModel's work),
  // kFailedPrecondition if a constant has no data, kInvalidArgument if a symbol cannot be found from input shapes.
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
  std::vector<Tensor> run(std::span<const TensorView> inputs, std::shared_ptr<const void> owner = nullptr);

  const Graph& graph() const;         // as it runs, all patterns applied
  const MatchReport& report() const;  // what the optimizer did
  int threads() const;
  int64_t plans() const;  // made so far and still held

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace atb
