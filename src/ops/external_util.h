// SPDX-License-Identifier: Apache-2.0
// Nodes that a graph knows only by name: what of them is known.
#pragma once

#include <memory>
#include <string>

#include "ir/graph.h"

namespace atb {

// True for an external node whose definition is there: it may be replaced by it.
bool has_body(const Node& external);

// The definition of an external node. kUnsupported where it has none.
std::unique_ptr<Graph> body_of(const Attrs& external);

// The kernel that computes the node; empty where none is asked for, and its definition is what runs.
const std::string& kernel_name(const Node& external);

// "mylib::scale (model.layers.0.mlp)": how errors call an external node.
std::string describe_external(const Node& external);

}  // namespace atb
