// SPDX-License-Identifier: Apache-2.0
// What an operator is: schema, shape rule, cost, decomposition, reference kernel, CPU kernel. One file each in src/ops.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/reference.h"

namespace atb {

class Builder;
class Kernel;
struct KernelRequest;

struct InputSpec {
  std::string name;
  bool optional = false;
  bool variadic = false;  // only the last
};

struct OutputSpec {
  std::string name;
  int view_of = -1;      // same storage as input i (reshape, transpose): no kernel, no bytes
  int in_place_of = -1;  // may be written over input i when that is not read later
};

enum class AttrKind { kBool, kInt, kReal, kText, kInts, kReals, kShape };

struct AttrSpec {
  std::string name;
  AttrKind kind;
  Attr default_value;
  bool required = false;
  std::string doc;
};

struct InferArgs {
  const OpDef& op;
  std::span<Value* const> inputs;  // null for absent optional ones
  const Attrs& attrs;
  std::string_view node_name;
  const Type& type(size_t index) const { return inputs[index]->type(); }
  bool has(size_t index) const { return index < inputs.size() && inputs[index] != nullptr; }
  // kInvalidArgument "[op] node: <what>".
  [[noreturn]] void fail(const std::string& what) const;
};

struct OpDef {
  std::string name;  // "linear"
  std::string doc;   // formula, shapes, source; used by the generated documentation
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;  // one, unnamed-like "out", by default
  std::vector<AttrSpec> attrs;
  bool fused = false;      // made by a pattern, never by a front door; must have a decomposition
  bool has_state = false;  // reads or writes KV state

  std::function<std::vector<Type>(const InferArgs&)> infer;
  // Multiply-adds count 2. Null: number of output elements.
  std::function<Dim(const Node&)> flops;
  // Bytes read and written; null: sum of the sizes of the values read and written, weights included. Views: 0.
  std::function<Dim(const Node&)> bytes;
  // The same computation in plain operators: fallback, oracle, and what makes a rewrite reversible.
  std::function<std::vector<Value*>(Builder&, std::span<Value* const> inputs, const Attrs&)> decompose;
  // Plain loops. Fused operators may leave it empty: the interpreter runs their decomposition.
  ReferenceKernel reference;
  // CPU kernel of a node; null: none (views, or fallback to the decomposition). See ir/kernel.h.
  std::function<std::unique_ptr<Kernel>(const KernelRequest&)> make_cpu_kernel;

  bool is_view() const { return !outputs.empty() && outputs[0].view_of >= 0; }
};

// All operators of this build. Filled once by generated code (register_all.cc).
class OpRegistry {
 public:
  void add(OpDef op);                              // kInternal on a duplicate or an incomplete definition
  const OpDef* find(std::string_view name) const;  // null if none
  const OpDef& get(std::string_view name) const;   // kNotFound
  std::vector<const OpDef*> all() const;           // by name
  // The process-wide registry.
  static const OpRegistry& instance();

 private:
  std::map<std::string, std::unique_ptr<OpDef>, std::less<>> ops_;
};

// The dims in attributes of kind shape, in order of attribute name: what a kernel gets evaluated as Call::dims.
Shape attr_dims(const Attrs& attrs);

// Bytes and flops of a node at the plain accounting of docs (views 0; see OpDef::bytes).
Dim node_bytes(const Node& node);
Dim node_flops(const Node& node);

}  // namespace atb
