// SPDX-License-Identifier: Apache-2.0
#include "runtime/program.h"

#include <algorithm>

#include "ir/op.h"
#include "ops/external_util.h"
#include "ops/plugin_util.h"
#include "runtime/dense_kernel.h"
#include "runtime/fallback_kernel.h"
#include "runtime/source_release.h"

namespace atb {
namespace {

const HostKernel* find_host_kernel(const Node& node, const HostKernels& kernels) {
  if (!node.is("external")) return nullptr;
  const auto it = kernels.find(kernel_name(node));
  return it == kernels.end() ? nullptr : &it->second;
}

// Every external node has a kernel or a definition; else all of those that have neither are named.
void require_kernels(const Graph& graph, const HostKernels& kernels) {
  std::string unknown, missing;
  for (const Node* node : graph.nodes()) {
    if (!node->is("external") || find_host_kernel(*node, kernels) != nullptr || find_plugin(*node) != nullptr) continue;
    const std::string& kernel = kernel_name(*node);
    std::string& list = kernel.empty() ? unknown : missing;
    if (kernel.empty() && has_body(*node)) continue;
    list += (list.empty() ? "" : ", ") + describe_external(*node) + (kernel.empty() ? "" : " needs " + kernel);
  }
  require(unknown.empty(), Code::kUnsupported, "[graph] ", graph.name(),
          ": operators that ATB does not know: ", unknown, "; give each a kernel by a pattern (atb.Pattern)");
  require(missing.empty(), Code::kFailedPrecondition, "[graph] ", graph.name(),
          ": kernels that are not there: ", missing, "; load them with atb.load_library, or give them when compiling");
}

}  // namespace

Program::Program(std::unique_ptr<Graph> graph, const Device& device, PackedStore& store, const ProgramOptions& options)
    : graph_(graph->clone()),  // without constants that nothing uses
      planned_(options.level >= OptLevel::kPlanned) {
  graph.reset();
  require_kernels(*graph_, options.host_kernels);
  schedule_ = atb::schedule(*graph_, planned_);
  SourceRelease sources(*graph_);
  for (const auto& stage : schedule_.stages) {
    std::vector<int>& indices = stages_.emplace_back();
    for (const Node* node : stage) {
      indices.push_back(static_cast<int>(items_.size()));
      const PackedRequests requests;
      add_item(*node, device, store, options);
      sources.kernel_made(*node, requests);
    }
  }
}

void Program::add_item(const Node& node, const Device& device, PackedStore& store, const ProgramOptions& options) {
  if (const HostKernel* host = find_host_kernel(node, options.host_kernels)) {
    Item& item = items_.emplace_back(Item{&node, make_host_marker(node), *host});
    for (const Value* input : node.inputs()) {
      item.constants.push_back(input->is_constant() ? dense_bytes(input->constant()) : nullptr);
    }
    return;
  }
  std::unique_ptr<Kernel> kernel = device.make_kernel({node, store, options.precision, options.kv});
  if (kernel == nullptr) {
    require(!node.op().has_state, Code::kUnsupported, "[", node.op_name(), "] ", node.name(), ": ", device.name(),
            " has no kernel for it");
    kernel = make_fallback_kernel(node);
  }
  items_.push_back({&node, with_dense_rows(std::move(kernel), node, options.strided_inputs)});
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
