// SPDX-License-Identifier: Apache-2.0
// Text form of graphs, for goldens, logs, bug reports and atb-opt. print(parse(t)) == t for printed t.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace atb {

std::string print(const Graph& graph);
std::string print(const Node& node);  // one line, as in the graph

// kInvalidArgument "[graph text] line L: what". Constants come back absent, except small numeric ones printed with
// their values (at most 16 elements, plain dtypes). Never trusts sizes; nesting and length are bounded.
std::unique_ptr<Graph> parse_graph(std::string_view text);

// Types side by side, "f32[T, 576], i64[B]"; none for blank text. kInvalidArgument "[graph text] line L: what".
std::vector<Type> parse_types(std::string_view text);

}  // namespace atb
