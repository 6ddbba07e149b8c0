// SPDX-License-Identifier: Apache-2.0
// Makes nodes by operator name and stamps layer and scope on them.
#include "ir/builder.h"

#include <utility>

namespace atb {

Node* Builder::node(std::string_view op, std::vector<Value*> inputs, Attrs attrs, std::string name) {
  const OpDef& def = OpRegistry::instance().get(op);
  Node* node = graph_.add_node(def, std::move(inputs), std::move(attrs), std::move(name), before_);
  node->set_layer(layer_);
  node->set_scope(scope_);
  return node;
}

Value* Builder::operator()(std::string_view op, std::vector<Value*> inputs, Attrs attrs, std::string name) {
  return node(op, std::move(inputs), std::move(attrs), std::move(name))->output();
}

Value* Builder::scalar(double value) {
  const float element = static_cast<float>(value);
  return graph_.add_constant(Constant::from_f32("scalar", {}, {&element, 1}));
}

Value* Builder::reshape(Value* x, Shape shape, std::string name) {
  return (*this)("reshape", {x}, {{"shape", std::move(shape)}}, std::move(name));
}

Value* Builder::transpose(Value* x, std::vector<int64_t> perm, std::string name) {
  return (*this)("transpose", {x}, {{"perm", std::move(perm)}}, std::move(name));
}

}  // namespace atb
