// SPDX-License-Identifier: Apache-2.0
#include "ir/inline.h"

#include <unordered_map>
#include <utility>

#include "core/error.h"

namespace atb {

std::vector<Value*> inline_graph(Graph& graph, const Graph& body, std::span<Value* const> inputs,
                                 const MakeNode& make) {
  require(inputs.size() == body.inputs().size(), Code::kInvalidArgument, "[graph] ", body.name(), " takes ",
          body.inputs().size(), " inputs, not ", inputs.size());
  std::unordered_map<const Value*, Value*> twin{{nullptr, nullptr}};
  for (size_t i = 0; i < inputs.size(); ++i) twin[body.inputs()[i]] = inputs[i];
  for (const Value* constant : body.constants()) twin[constant] = graph.add_constant(constant->constant());
  for (const Node* node : body.nodes()) {
    std::vector<Value*> operands;
    for (const Value* input : node->inputs()) operands.push_back(twin.at(input));
    const Node* made = make(*node, std::move(operands));
    require(made->outputs().size() == node->outputs().size(), Code::kInvalidArgument, "[", node->op_name(), "] ",
            node->name(), ": has ", made->outputs().size(), " outputs here, ", node->outputs().size(), " in ",
            body.name());
    for (size_t i = 0; i < made->outputs().size(); ++i) twin[node->output(i)] = made->output(i);
  }
  std::vector<Value*> outputs;
  for (const Value* output : body.outputs()) outputs.push_back(twin.at(output));
  return outputs;
}

std::vector<Value*> inline_graph(Builder& builder, const Graph& body, std::span<Value* const> inputs) {
  return inline_graph(builder.graph(), body, inputs, [&](const Node& like, std::vector<Value*> operands) {
    return builder.node(like.op_name(), std::move(operands), like.attrs(), like.name());
  });
}

}  // namespace atb
