// SPDX-License-Identifier: Apache-2.0
// The one graph: nodes in execution order over SSA values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/constant.h"
#include "core/dim.h"
#include "core/dtype.h"
#include "core/error.h"

namespace atb {

struct OpDef;
class OpRegistry;
class Node;
class Graph;

struct Type {
  DType dtype = DType::kF32;
  Shape shape;
  const Encoding* encoding = nullptr;  // only constants are encoded

  friend bool operator==(const Type&, const Type&) = default;
  std::string str() const;  // "f32[T, 576]", "f32[576, 576] q4_1", "state"
};

using Attr = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, Shape>;

// Attributes of a node, ordered by name. Absent ones take the schema's default when the node is made.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Attr>> items) : items_(items) {}
  bool has(std::string_view name) const { return items_.find(name) != items_.end(); }
  void set(std::string name, Attr value) { items_.insert_or_assign(std::move(name), std::move(value)); }
  void erase(std::string_view name);
  // Throws kInternal if absent or of another kind (the schema has checked user-made nodes before).
  template <class T>
  const T& get(std::string_view name) const {
    const auto it = items_.find(name);
    if (it == items_.end()) throw_error(Code::kInternal, "[attrs] no attribute ", name);
    const T* value = std::get_if<T>(&it->second);
    if (value == nullptr) throw_error(Code::kInternal, "[attrs] attribute ", name, " has another kind");
    return *value;
  }
  bool flag(std::string_view name) const { return get<bool>(name); }
  int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  double real(std::string_view name) const { return get<double>(name); }
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  const std::map<std::string, Attr, std::less<>>& items() const { return items_; }
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  std::map<std::string, Attr, std::less<>> items_;
};

// Where a value is read: input `index` of `node`.
struct Use {
  Node* node;
  int index;
  friend bool operator==(const Use&, const Use&) = default;
};

// A graph input, a constant, or one output of a node. Owned by the graph; addresses are stable.
class Value {
 public:
  const std::string& name() const { return name_; }  // unique in the graph; without the leading % or @
  const Type& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  int rank() const { return static_cast<int>(type_.shape.size()); }
  const Dim& dim(int axis) const;               // negative axes count from the end
  Node* producer() const { return producer_; }  // null for inputs and constants
  int output_index() const { return output_index_; }
  bool is_input() const { return producer_ == nullptr && constant_ == nullptr; }
  bool is_constant() const { return constant_ != nullptr; }
  const ConstantRef& constant() const { return constant_; }
  const std::vector<Use>& uses() const { return uses_; }  // in no particular order; graph outputs are not uses
  Graph* graph() const { return graph_; }

 private:
  friend class Graph;
  std::string name_;
  Type type_;
  Node* producer_ = nullptr;
  int output_index_ = 0;
  ConstantRef constant_;
  std::vector<Use> uses_;
  Graph* graph_ = nullptr;
};

class Node {
 public:
  const OpDef& op() const { return *op_; }
  const std::string& op_name() const;
  bool is(std::string_view op_name) const { return this->op_name() == op_name; }
  const std::string& name() const { return name_; }              // name of its first output
  const std::vector<Value*>& inputs() const { return inputs_; }  // null for an absent optional input
  Value* input(size_t index) const { return index < inputs_.size() ? inputs_[index] : nullptr; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  Value* output(size_t index = 0) const { return outputs_.at(index); }
  const Attrs& attrs() const { return attrs_; }
  // Transformer layer this node belongs to, -1 for none (embedding, head); for reports and logs.
  int layer() const { return layer_; }
  void set_layer(int layer) { layer_ = layer; }
  // Module path or file place, for messages: "model.layers.3.mlp.up_proj".
  const std::string& scope() const { return scope_; }
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  Graph* graph() const { return graph_; }

 private:
  friend class Graph;
  const OpDef* op_ = nullptr;
  std::string name_;
  std::vector<Value*> inputs_;
  std::vector<Value*> outputs_;
  Attrs attrs_;
  int layer_ = -1;
  std::string scope_;
  Graph* graph_ = nullptr;
  int64_t rank_ = 0;  // ascending in Graph::nodes(), with gaps for nodes to come
};

// Owns nodes and values. Node order is an execution order. Passes edit through passes/engine/rewriter.h.
class Graph {
 public:
  explicit Graph(std::string name = "graph");
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  std::unique_ptr<Graph> clone() const;  // same names, order, constants (handles shared)

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  Value* add_input(std::string name, Type type);
  // One value per constant handle id: adding the same handle twice gives the same value.
  Value* add_constant(const ConstantRef& constant);
  // Checks the schema, fills attribute defaults, infers output types; `before` null appends. Output values are named
  // `name` (or a fresh name from the operator when empty); further outputs `name.1`, .... Names made unique on clash.
  Node* add_node(const OpDef& op, std::vector<Value*> inputs, Attrs attrs = {}, std::string name = {},
                 Node* before = nullptr);

  const std::vector<Value*>& inputs() const { return inputs_; }
  Value* find_input(std::string_view name) const;  // null if none
  void erase_input(Value* input);                  // must have no uses
  std::vector<Value*> constants() const;           // those in use, in order of first use
  // Live list in execution order. Editing while iterating: copy it first.
  const std::vector<Node*>& nodes() const { return order_; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  void set_outputs(std::vector<Value*> outputs, std::vector<std::string> names = {});
  bool is_output(const Value* value) const;

  // Edits. Each keeps use lists right.
  void replace_all_uses(Value* from, Value* to);  // graph outputs too; types must be equal (kInternal otherwise)
  void set_input(Node* node, size_t index, Value* value);
  void set_attr(Node* node, std::string name, Attr value);
  void rename(Value* value, std::string name);
  void erase(Node* node);                      // kInternal if an output is used or is a graph output
  void move_before(Node* node, Node* before);  // null: to the end
  void reinfer(Node* node);                    // output types again, after an edit of inputs or attrs
  void set_order(std::vector<Node*> order);    // a permutation of nodes(); the verifier checks it is an execution order
  int64_t position(const Node* node) const;    // index in nodes(); O(log n)

 private:
  std::string unique_name(std::string wanted);
  void insert(Node* node, size_t index);
  void number_nodes();
  struct Storage;
  std::unique_ptr<Storage> storage_;
  std::string name_;
  std::vector<Value*> inputs_;
  std::vector<Node*> order_;
  std::vector<Value*> outputs_;
  std::vector<std::string> output_names_;
};

}  // namespace atb
