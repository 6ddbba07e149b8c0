// SPDX-License-Identifier: Apache-2.0
// A graph made executable on a device: its schedule and one kernel a node, shared by the plans of all shape buckets.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "devices/device.h"
#include "ir/graph.h"
#include "ir/kernel.h"
#include "passes/opt_level.h"
#include "passes/schedule.h"
#include "runtime/host_kernel.h"

namespace atb {

struct ProgramOptions {
  Precision precision = Precision::kExact;
  const KvLayout* kv = nullptr;         // needed where the graph has state operators
  bool strided_inputs = false;          // graph inputs may come with any strides (Plan::resolve on views)
  HostKernels host_kernels{};           // of external nodes; where they run, the launch is split
  OptLevel level = OptLevel::kPlanned;  // below: nodes one after another, and plans in which no buffers share memory
};

class Program {
 public:
  struct Item {
    const Node* node;
    std::unique_ptr<Kernel> kernel;
    // Of a node that code outside the plan computes: that code, and dense bytes of its constants (null for others).
    HostKernel host = nullptr;
    std::vector<std::shared_ptr<const std::byte>> constants = {};
  };

  // Packs weights into `store` (shared by programs of one model). kUnsupported for a state operator without a kernel,
  // and for external nodes whose kernels are not there, listing them all.
  Program(std::unique_ptr<Graph> graph, const Device& device, PackedStore& store, const ProgramOptions& options);

  const Graph& graph() const { return *graph_; }
  const std::vector<Item>& items() const { return items_; }                // in execution order
  const std::vector<std::vector<int>>& stages() const { return stages_; }  // indices of items
  const Schedule& schedule() const { return schedule_; }
  bool planned() const { return planned_; }  // whether buffers may share memory

 private:
  void add_item(const Node& node, const Device& device, PackedStore& store, const ProgramOptions& options);

  std::unique_ptr<Graph> graph_;
  std::vector<Item> items_;
  bool planned_;
  Schedule schedule_;
  std::vector<std::vector<int>> stages_;
};

// The cache group that the state operators of a step graph use: slots, kv_heads, head_dim. nullopt: no state.
// kUnsupported if the layers' caches differ.
std::optional<KvLayout> kv_layout_of(const Graph& graph, Precision precision);

}  // namespace atb
