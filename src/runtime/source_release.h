// SPDX-License-Identifier: Apache-2.0
// Weights are kept once: what is packed needs its source no longer.
#pragma once

#include <cstddef>
#include <unordered_map>

#include "ir/graph.h"
#include "ir/packed_requests.h"

namespace atb {

// Puts a constant without data, of the same name and type, in the place of a graph's constant: its bytes go, unless
// somebody else holds them. One so small that its values are printed is copied instead.
void release_constant(Graph& graph, Value* constant);

// Lets go of a graph's constants while a program is made of it: each when the last kernel that reads it has packed it.
// So at most one source lies beside its packed form, where nobody else holds it. What a kernel reads in place
// (embedding tables, operands of plain operators) stays, and so do graph outputs.
class SourceRelease {
 public:
  explicit SourceRelease(Graph& graph) : graph_(graph) {}
  void kernel_made(const Node& node, const PackedRequests& requests);  // by the kernel of `node`, and no other

 private:
  Graph& graph_;
  std::unordered_map<const Value*, size_t> packed_uses_;
};

}  // namespace atb
