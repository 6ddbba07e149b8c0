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
};

// Puts `constant` in the place of the graph's constant of the same name. kNotFound if the graph uses none of that name,
// kInvalidArgument if dtype, encoding or shape differ.
void bind_constant(Graph& graph, const ConstantRef& constant);

// Thread safe: concurrent calls wait for one another.
class CompiledGraph {
 public:
  // `graph` is a plain or optimized graph. kUnsupported for one with state (that is LanguageModel's work),
  // kFailedPrecondition if a constant has no data, kInvalidArgument if a symbol cannot be found from input shapes.
  explicit CompiledGraph(std::unique_ptr<Graph> graph, const CompileOptions& options = {});
  ~CompiledGraph();
  CompiledGraph(const CompiledGraph&) = delete;
  CompiledGraph& operator=(const CompiledGraph&) = delete;

  // One call. `inputs` are in the order of the graph's and are read during the call only; any strides (0 and negative
  // ones too) and any alignment are right, but an input is copied first if its elements are misaligned, or if a reshape
  // needs it in one piece. Results are new memory that outlives this object. kInvalidArgument names the input whose
  // rank, dtype or shape does not fit, kResourceExhausted if memory runs out.
  std::vector<Tensor> run(std::span<const TensorView> inputs);

  const Graph& graph() const;         // as it runs, all patterns applied
  const MatchReport& report() const;  // what the optimizer did
  int threads() const;
  int64_t plans() const;  // made so far and still held

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace atb
