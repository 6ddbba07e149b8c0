// SPDX-License-Identifier: Apache-2.0
#include "runtime/program.h"

#include <algorithm>

#include "ir/op.h"
#include "runtime/dense_kernel.h"
#include "runtime/fallback_kernel.h"

namespace atb {

Program::Program(std::unique_ptr<Graph> graph, const Device& device, PackedStore& store, const ProgramOptions& options)
    : graph_(std::move(graph)) {
  schedule_ = atb::schedule(*graph_);
  for (const auto& stage : schedule_.stages) {
    std::vector<int>& indices = stages_.emplace_back();
    for (const Node* node : stage) {
      std::unique_ptr<Kernel> kernel = device.make_kernel({*node, store, options.precision, options.kv});
      if (kernel == nullptr) {
        require(!node->op().has_state, Code::kUnsupported, "[", node->op_name(), "] ", node->name(), ": ",
                device.name(), " has no kernel for it");
        kernel = make_fallback_kernel(*node);
      }
      kernel = with_dense_rows(std::move(kernel), *node, options.strided_inputs);
      indices.push_back(static_cast<int>(items_.size()));
      items_.push_back({node, std::move(kernel)});
    }
  }
}

std::optional<KvLayout> kv_layout_of(const Graph& graph, Precision precision) {
  std::optional<KvLayout> layout;
  for (const Node* node : graph.nodes()) {
    const bool appends = node->is("kv_append") || node->is("rotary_kv_append");
    if (!appends) continue;
    const Value* keys = node->input(node->is("kv_append") ? 0 : 1);
    const int64_t kv_heads = keys->dim(-2).constant();
    const int64_t head_dim = keys->dim(-1).constant();
    if (!layout) layout = KvLayout{.dtype = DType::kF32, .slots = 0, .kv_heads = kv_heads, .head_dim = head_dim};
    require(layout->kv_heads == kv_heads && layout->head_dim == head_dim, Code::kUnsupported, "[kv] ", node->name(),
            ": caches of different shapes in one model: ", kv_heads, " x ", head_dim, " and ", layout->kv_heads, " x ",
            layout->head_dim);
    layout->slots = std::max(layout->slots, node->attrs().integer("slot") + 1);
  }
  if (layout) layout->dtype = precision == Precision::kFast ? DType::kBF16 : DType::kF32;
  return layout;
}

}  // namespace atb
