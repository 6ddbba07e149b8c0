// SPDX-License-Identifier: Apache-2.0
// Graph: ownership of nodes and values, unique names, use lists kept right by every edit.
#include "ir/graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/op.h"
#include "ir/schema.h"

namespace atb {

std::string Type::str() const {
  if (dtype == DType::kState) return "state";
  std::string text = std::string(dtype_name(dtype)) + to_string(shape);
  if (encoding != nullptr) text += " " + encoding->name;
  return text;
}

void Attrs::erase(std::string_view name) {
  const auto it = items_.find(name);
  if (it != items_.end()) items_.erase(it);
}

const Dim& Value::dim(int axis) const {
  const int index = axis < 0 ? axis + rank() : axis;
  require(index >= 0 && index < rank(), Code::kInternal, "[graph] ", name_, ": axis ", axis, " of rank ", rank());
  return type_.shape[static_cast<size_t>(index)];
}

const std::string& Node::op_name() const { return op_->name; }

// Objects live here until they are erased; `order_` and friends in Graph point at them.
struct Graph::Storage {
  std::unordered_map<const Value*, std::unique_ptr<Value>> values;
  std::unordered_map<const Node*, std::unique_ptr<Node>> nodes;
  std::unordered_set<std::string> names;
  std::unordered_map<std::string, int> next_suffix;
  std::unordered_map<uint64_t, Value*> constants;  // by handle id

  Value* own(std::unique_ptr<Value> value) {
    Value* raw = value.get();
    values.emplace(raw, std::move(value));
    return raw;
  }
  Node* own(std::unique_ptr<Node> node) {
    Node* raw = node.get();
    nodes.emplace(raw, std::move(node));
    return raw;
  }
};

namespace {

constexpr int64_t kRankGap = int64_t{1} << 30;

void add_use(std::vector<Use>& uses, Node* node, int index) { uses.push_back({node, index}); }

void remove_use(std::vector<Use>& uses, Node* node, int index) {
  const auto it = std::find(uses.begin(), uses.end(), Use{node, index});
  ATB_DCHECK(it != uses.end());
  *it = uses.back();
  uses.pop_back();
}

}  // namespace

Graph::Graph(std::string name) : storage_(std::make_unique<Storage>()), name_(std::move(name)) {}

Graph::~Graph() = default;

Graph::Graph(Graph&& other) noexcept { *this = std::move(other); }

Graph& Graph::operator=(Graph&& other) noexcept {
  if (this == &other) return *this;
  storage_ = std::move(other.storage_);
  name_ = std::move(other.name_);
  inputs_ = std::move(other.inputs_);
  order_ = std::move(other.order_);
  outputs_ = std::move(other.outputs_);
  output_names_ = std::move(other.output_names_);
  for (auto& [key, value] : storage_->values) value->graph_ = this;
  for (auto& [key, node] : storage_->nodes) node->graph_ = this;
  return *this;
}

// Leaves out constants that nothing uses, so that their bytes can go with the original.
std::unique_ptr<Graph> Graph::clone() const {
  auto copy = std::make_unique<Graph>(name_);
  copy->storage_->names = storage_->names;
  copy->storage_->next_suffix = storage_->next_suffix;
  std::unordered_map<const Value*, Value*> twin{{nullptr, nullptr}};
  const auto copy_value = [&](const Value* value) {
    auto fresh = std::make_unique<Value>(*value);
    fresh->graph_ = copy.get();
    fresh->uses_.clear();
    fresh->producer_ = nullptr;
    return twin[value] = copy->storage_->own(std::move(fresh));
  };
  for (const Value* input : inputs_) copy->inputs_.push_back(copy_value(input));
  for (const auto& [id, value] : storage_->constants) {
    if (value->uses_.empty() && !is_output(value)) {
      copy->storage_->names.erase(value->name());
    } else {
      copy->storage_->constants[id] = copy_value(value);
    }
  }
  for (const Node* node : order_) {
    auto fresh = std::make_unique<Node>(*node);
    Node* raw = copy->storage_->own(std::move(fresh));
    raw->graph_ = copy.get();
    for (size_t i = 0; i < raw->inputs_.size(); ++i) {
      raw->inputs_[i] = twin.at(raw->inputs_[i]);
      if (raw->inputs_[i] != nullptr) add_use(raw->inputs_[i]->uses_, raw, static_cast<int>(i));
    }
    for (Value*& output : raw->outputs_) {
      output = copy_value(output);
      output->producer_ = raw;
    }
    copy->order_.push_back(raw);
  }
  for (const Value* output : outputs_) copy->outputs_.push_back(twin.at(output));
  copy->output_names_ = output_names_;
  return copy;
}

std::string Graph::unique_name(std::string wanted) {
  if (storage_->names.insert(wanted).second) return wanted;
  int& next = storage_->next_suffix[wanted];
  while (true) {
    std::string name = wanted + "_" + std::to_string(++next);
    if (storage_->names.insert(name).second) return name;
  }
}

Value* Graph::add_input(std::string name, Type type) {
  require(!name.empty(), Code::kInvalidArgument, "[graph] an input needs a name");
  require(!storage_->names.contains(name), Code::kInvalidArgument, "[graph] the name ", name, " is taken");
  auto value = std::make_unique<Value>();
  value->name_ = unique_name(std::move(name));
  value->type_ = std::move(type);
  value->graph_ = this;
  inputs_.push_back(storage_->own(std::move(value)));
  return inputs_.back();
}

Value* Graph::add_constant(const ConstantRef& constant) {
  require(constant != nullptr, Code::kInternal, "[graph] a null constant");
  const auto known = storage_->constants.find(constant->id());
  if (known != storage_->constants.end()) return known->second;
  auto value = std::make_unique<Value>();
  value->name_ = unique_name(constant->name().empty() ? "const" : constant->name());
  value->type_ = {constant->dtype(), Shape(constant->shape().begin(), constant->shape().end()), constant->encoding()};
  value->constant_ = constant;
  value->graph_ = this;
  Value* raw = storage_->own(std::move(value));
  storage_->constants.emplace(constant->id(), raw);
  return raw;
}

Node* Graph::add_node(const OpDef& op, std::vector<Value*> inputs, Attrs attrs, std::string name, Node* before) {
  const std::string base = name.empty() ? op.name : std::move(name);
  while (!inputs.empty() && inputs.back() == nullptr) inputs.pop_back();
  for (const Value* input : inputs) {
    require(input == nullptr || input->graph_ == this, Code::kInternal, "[graph] ", base, ": input ",
            input == nullptr ? "" : input->name(), " belongs to another graph");
  }
  check_inputs(op, inputs, base);
  Attrs complete = complete_attrs(op, std::move(attrs), base);
  std::vector<Type> types = infer_types(op, inputs, complete, base);

  auto owned = std::make_unique<Node>();
  owned->op_ = &op;
  owned->inputs_ = std::move(inputs);
  owned->attrs_ = std::move(complete);
  owned->graph_ = this;
  Node* node = storage_->own(std::move(owned));
  for (size_t i = 0; i < types.size(); ++i) {
    auto value = std::make_unique<Value>();
    value->name_ = unique_name(i == 0 ? base : node->outputs_[0]->name() + "." + std::to_string(i));
    value->type_ = std::move(types[i]);
    value->producer_ = node;
    value->output_index_ = static_cast<int>(i);
    value->graph_ = this;
    node->outputs_.push_back(storage_->own(std::move(value)));
  }
  node->name_ = node->outputs_[0]->name();
  for (size_t i = 0; i < node->inputs_.size(); ++i) {
    if (node->inputs_[i] != nullptr) add_use(node->inputs_[i]->uses_, node, static_cast<int>(i));
  }
  insert(node, before == nullptr ? order_.size() : static_cast<size_t>(position(before)));
  return node;
}

Value* Graph::find_input(std::string_view name) const {
  for (Value* input : inputs_) {
    if (input->name() == name) return input;
  }
  return nullptr;
}

void Graph::erase_input(Value* input) {
  const auto it = std::find(inputs_.begin(), inputs_.end(), input);
  require(it != inputs_.end(), Code::kInternal, "[graph] not an input of this graph");
  require(input->uses_.empty() && !is_output(input), Code::kInternal, "[graph] input ", input->name(), " is used");
  inputs_.erase(it);
  storage_->names.erase(input->name());
  storage_->values.erase(input);
}

std::vector<Value*> Graph::constants() const {
  std::vector<Value*> result;
  std::unordered_set<const Value*> seen;
  const auto visit = [&](Value* value) {
    if (value != nullptr && value->is_constant() && seen.insert(value).second) result.push_back(value);
  };
  for (const Node* node : order_) std::for_each(node->inputs().begin(), node->inputs().end(), visit);
  std::for_each(outputs_.begin(), outputs_.end(), visit);
  return result;
}

void Graph::set_outputs(std::vector<Value*> outputs, std::vector<std::string> names) {
  require(names.empty() || names.size() == outputs.size(), Code::kInvalidArgument, "[graph] ", outputs.size(),
          " outputs with ", names.size(), " names");
  for (size_t i = 0; i < outputs.size(); ++i) {
    require(outputs[i] != nullptr && outputs[i]->graph_ == this, Code::kInternal, "[graph] output ", i,
            " is not a value of this graph");
    if (names.size() < outputs.size()) names.push_back(outputs[i]->name());
  }
  outputs_ = std::move(outputs);
  output_names_ = std::move(names);
}

bool Graph::is_output(const Value* value) const {
  return std::find(outputs_.begin(), outputs_.end(), value) != outputs_.end();
}

// A constant that another one replaces is let go: it stays as a value without data.
void Graph::replace_all_uses(Value* from, Value* to) {
  if (from == to) return;
  require(from->type() == to->type(), Code::kInternal, "[graph] ", from->name(), ": ", from->type().str(),
          " replaced by ", to->name(), ": ", to->type().str());
  for (const Use& use : from->uses_) {
    use.node->inputs_[static_cast<size_t>(use.index)] = to;
    to->uses_.push_back(use);
  }
  from->uses_.clear();
  std::replace(outputs_.begin(), outputs_.end(), from, to);
  if (from->is_constant() && to->is_constant()) {
    storage_->constants.erase(from->constant_->id());
    from->constant_ =
        Constant::absent(from->constant_->name(), from->type_.dtype, from->type_.encoding, from->constant_->shape());
    storage_->constants.emplace(from->constant_->id(), from);
  }
}

void Graph::set_input(Node* node, size_t index, Value* value) {
  require(index < node->inputs_.size(), Code::kInternal, "[graph] ", node->name(), ": no input ", index);
  Value*& slot = node->inputs_[index];
  if (slot == value) return;
  if (slot != nullptr) remove_use(slot->uses_, node, static_cast<int>(index));
  slot = value;
  if (value != nullptr) add_use(value->uses_, node, static_cast<int>(index));
}

void Graph::set_attr(Node* node, std::string name, Attr value) {
  Attrs attrs = node->attrs_;
  attrs.set(std::move(name), std::move(value));
  node->attrs_ = complete_attrs(node->op(), std::move(attrs), node->name());
}

void Graph::rename(Value* value, std::string name) {
  if (value->name_ == name) return;
  require(!name.empty(), Code::kInvalidArgument, "[graph] a value needs a name");
  storage_->names.erase(value->name_);
  value->name_ = unique_name(std::move(name));
  if (value->producer_ != nullptr && value->output_index_ == 0) value->producer_->name_ = value->name_;
}

void Graph::erase(Node* node) {
  for (const Value* output : node->outputs_) {
    require(output->uses_.empty() && !is_output(output), Code::kInternal, "[graph] ", node->name(), ": erased, but ",
            output->name(), " is used");
  }
  for (size_t i = 0; i < node->inputs_.size(); ++i) {
    if (node->inputs_[i] != nullptr) remove_use(node->inputs_[i]->uses_, node, static_cast<int>(i));
  }
  for (const Value* output : node->outputs_) {
    storage_->names.erase(output->name());
    storage_->values.erase(output);
  }
  order_.erase(order_.begin() + position(node));
  storage_->nodes.erase(node);
}

void Graph::move_before(Node* node, Node* before) {
  if (node == before) return;
  order_.erase(order_.begin() + position(node));
  insert(node, before == nullptr ? order_.size() : static_cast<size_t>(position(before)));
}

void Graph::reinfer(Node* node) {
  check_inputs(node->op(), node->inputs_, node->name());
  std::vector<Type> types = infer_types(node->op(), node->inputs_, node->attrs_, node->name());
  require(types.size() == node->outputs_.size(), Code::kInternal, "[graph] ", node->name(), ": has ",
          node->outputs_.size(), " outputs, its rule now gives ", types.size());
  for (size_t i = 0; i < types.size(); ++i) node->outputs_[i]->type_ = std::move(types[i]);
}

void Graph::set_order(std::vector<Node*> order) {
  std::vector<Node*> a = order;
  std::vector<Node*> b = order_;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  require(a == b, Code::kInternal, "[graph] set_order: not a permutation of the nodes");
  order_ = std::move(order);
  number_nodes();
}

// Ranks: so that an edit costs a binary search and a move of pointers, not a new numbering of all nodes. New nodes come
// one after the other before one anchor, so each takes little of the gap.
void Graph::insert(Node* node, size_t index) {
  constexpr int64_t kShare = 8;
  const bool last = index == order_.size();
  const int64_t low = index == 0 ? 0 : order_[index - 1]->rank_;
  const int64_t high = last ? low + kRankGap * kShare : order_[index]->rank_;
  order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(index), node);
  node->rank_ = low + (high - low) / kShare;
  if (node->rank_ == low) number_nodes();
}

void Graph::number_nodes() {
  int64_t rank = 0;
  for (Node* node : order_) node->rank_ = rank += kRankGap;
}

int64_t Graph::position(const Node* node) const {
  const auto it = std::lower_bound(order_.begin(), order_.end(), node,
                                   [](const Node* a, const Node* b) { return a->rank_ < b->rank_; });
  require(it != order_.end() && *it == node, Code::kInternal, "[graph] a node of another graph");
  return it - order_.begin();
}

}  // namespace atb
