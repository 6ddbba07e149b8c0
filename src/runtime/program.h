// SPDX-License-Identifier: Apache-2.0
// A graph made executable on a device: its schedule and one kernel a node, shared by the plans of all shape buckets.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "devices/device.h"
#include "ir/graph.h"
#include "ir/kernel.h"
#include "passes/schedule.h"

namespace atb {

struct ProgramOptions {
  Precision precision = Precision::kExact;
  const KvLayout* kv = nullptr;  // needed where the graph has state operators
  bool strided_inputs = false;   // graph inputs may come with any strides (Plan::resolve on views)
};

class Program {
 public:
  struct Item {
    const Node* node;
    std::unique_ptr<Kernel> kernel;
  };

  // Packs weights into `store` (shared by programs of one model). kUnsupported for a state operator without a kernel.
  Program(std::unique_ptr<Graph> graph, const Device& device, PackedStore& store, const ProgramOptions& options);

  const Graph& graph() const { return *graph_; }
  const std::vector<Item>& items() const { return items_; }                // in execution order
  const std::vector<std::vector<int>>& stages() const { return stages_; }  // indices of items
  const Schedule& schedule() const { return schedule_; }

 private:
  std::unique_ptr<Graph> graph_;
  std::vector<Item> items_;
  Schedule schedule_;
  std::vector<std::vector<int>> stages_;
};

// The cache group that the state operators of a step graph use: slots, kv_heads, head_dim. nullopt: no state.
// kUnsupported if the layers' caches differ.
std::optional<KvLayout> kv_layout_of(const Graph& graph, Precision precision);

}  // namespace atb
