// SPDX-License-Identifier: Apache-2.0
// external: an operator that the graph knows by name only, as a user's own one; its body, where it has one, defines it.
#include <algorithm>

#include "ir/inline.h"
#include "ir/text.h"
#include "ops/external_util.h"
#include "ops/infer_util.h"
#include "ops/plugin_util.h"

namespace atb {
namespace {

constexpr int kMaxNesting = 4;

// Bodies may hold external nodes in turn, and each level multiplies the work of the checks.
class Nesting {
 public:
  explicit Nesting(const InferArgs& args) {
    if (depth_ >= kMaxNesting) args.fail("bodies inside bodies, more than " + std::to_string(kMaxNesting) + " deep");
    ++depth_;
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  static thread_local int depth_;
};

thread_local int Nesting::depth_ = 0;

// Symbols in `types` are the inputs' own, with their ranges.
void take_ranges(const InferArgs& args, std::vector<Type>& types) {
  SymbolRanges ranges;
  for (const Value* input : args.inputs) {
    for (const Dim& extent : input->shape()) collect_symbols(extent, ranges);
  }
  std::map<std::string, Dim, std::less<>> symbols;
  for (const auto& [name, range] : ranges) symbols.emplace(name, Dim::symbol(name, range.lo, range.hi));
  for (Type& type : types) {
    for (Dim& extent : type.shape) {
      SymbolRanges own;
      collect_symbols(extent, own);
      for (const auto& [name, range] : own) symbols.try_emplace(name, Dim::symbol(name));
      extent = extent.substitute(symbols);
    }
  }
}

std::vector<Type> types_of(std::span<Value* const> values) {
  std::vector<Type> types;
  for (const Value* value : values) types.push_back(value->type());
  return types;
}

// The body on the types that come in: as written where they are those it declares.
std::vector<Type> infer_body(const InferArgs& args) {
  const Nesting nesting(args);
  const std::unique_ptr<Graph> body = body_of(args.attrs);
  if (body->inputs().size() != args.inputs.size()) {
    args.fail("has " + std::to_string(args.inputs.size()) + " inputs, its body " +
              std::to_string(body->inputs().size()));
  }
  bool as_declared = true;
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    const Type& declared = body->inputs()[i]->type();
    if (declared.dtype != args.type(i).dtype) {
      args.fail("input " + std::to_string(i) + " is " + args.type(i).str() + ", its body takes " + declared.str());
    }
    as_declared = as_declared && declared == args.type(i);
  }
  if (as_declared) return types_of(body->outputs());
  Graph scratch("external");
  Builder builder(scratch);
  std::vector<Value*> inputs;
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    const Value* input = args.inputs[i];
    inputs.push_back(input->is_constant() ? scratch.add_constant(input->constant())
                                          : scratch.add_input("input" + std::to_string(i), input->type()));
  }
  return types_of(inline_graph(builder, *body, inputs));
}

std::vector<Type> infer_external(const InferArgs& args) {
  if (args.attrs.text("target").empty()) args.fail("target is empty: give the name of the operator");
  std::vector<Type> types;
  if (!args.attrs.text("body").empty()) {
    types = infer_body(args);
  } else {
    types = parse_types(args.attrs.text("types"));
    take_ranges(args, types);
  }
  if (types.empty()) args.fail("gives nothing: it needs a body with outputs, or types");
  const auto state = [](const Type& type) { return type.dtype == DType::kState || type.encoding != nullptr; };
  if (std::any_of(types.begin(), types.end(), state)) args.fail("outputs are dense arrays, not states or encoded ones");
  return types;
}

}  // namespace

void register_op_external(OpRegistry& registry) {
  OpDef op;
  op.name = "external";
  op.doc =
      "An operator that ATB does not know, or that a user's pattern has made: target(x...). `body`, a graph in text "
      "form over the same inputs, defines it; without one `types` says what it gives, and only a kernel can run it.";
  op.inputs = {{"x", false, true}};
  op.attrs = {{"target", AttrKind::kText, std::string(), true, "name of the operator"},
              {"body", AttrKind::kText, std::string(), false, "its definition as a graph; empty where there is none"},
              {"types", AttrKind::kText, std::string(), false, "types of its outputs, read where it has no body"},
              {"kernel", AttrKind::kText, std::string(), false, "the kernel that computes it; empty: its body does"},
              {"context", AttrKind::kShape, Shape{}, false,
               "sequences, tokens and keys of the block's call that the kernel is told of; empty: nothing. Operands "
               "after as many as there are outputs are positions and a mask of keys"},
              {"of_layer", AttrKind::kInt, int64_t{-1}, false, "of the model, as the kernel is told; -1: none"}};
  op.infer = infer_external;
  op.decompose = [](Builder& builder, std::span<Value* const> inputs, const Attrs& attrs) {
    return inline_graph(builder, *body_of(attrs), inputs);
  };
  op.make_cpu_kernel = make_plugin_kernel;
  registry.add(std::move(op));
}

}  // namespace atb
