// SPDX-License-Identifier: Apache-2.0
// Walks the lists of a block and builds the plain graph.
#include "blocks/emitter.h"

#include <algorithm>
#include <cmath>

#include "blocks/plugin_points.h"
#include "core/error.h"

namespace atb {

void ItemCall::fail(const std::string& what) const {
  throw_error(Code::kInvalidArgument, "[", item.kind, "] ", scope, ": ", what);
}

int64_t ItemCall::width(const Value* x) const {
  const Dim& last = x->dim(-1);
  if (!is_float(x->type().dtype)) fail("reads " + x->type().str() + "; expected floats [B, T, features]");
  if (!last.is_constant()) fail("the number of features " + last.str() + " must not depend on sizes of the call");
  return last.constant();
}

Value* ItemCall::parameter(const std::string& suffix, std::vector<int64_t> shape, ParameterInit init) const {
  const auto& known = emitter.call().shapes;
  const auto it = known.find(path + "." + suffix);
  if (it != known.end() && it->second != shape) {
    fail("its " + suffix + " is " + to_string(Shape(it->second.begin(), it->second.end())) + ", but this call needs " +
         to_string(Shape(shape.begin(), shape.end())) +
         "; check the features of the inputs against the item's options");
  }
  return emitter.parameter(path + "." + suffix, shape, init);
}

Value* ItemCall::linear(Value* x, int64_t out, bool bias, const std::string& suffix) const {
  const int64_t in = width(x);
  if (out < 1) fail("out_features " + std::to_string(out) + " must be 1 or more");
  const std::string under = suffix.empty() ? "" : suffix + ".";
  // As torch.nn.Linear starts: U(-1 / sqrt(in), 1 / sqrt(in)).
  const ParameterInit init{ParameterInit::Kind::kUniform,
                           1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(in, 1)))};
  std::vector<Value*> inputs = {x, parameter(under + "weight", {out, in}, init)};
  if (bias) inputs.push_back(parameter(under + "bias", {out}, init));
  return b("linear", std::move(inputs), {}, scope + (suffix.empty() ? "" : "." + suffix));
}

Value* ItemCall::source(const std::string& name) const {
  ListScope& names = emitter.scope();
  if (name == "input") return names.input;
  const auto it = names.results.find(name);
  if (it != names.results.end() && it->second != nullptr) return it->second;
  std::string known = "input";
  for (const auto& [key, value] : names.results) known += value == nullptr ? "" : ", " + key;
  fail("source \"" + name + "\" is no item before it that gives one result; there are " + known);
}

std::vector<Value*> ItemCall::preprocess(std::vector<Value*> inputs) const {
  return emitter.plug(*this, std::move(inputs), true);
}

bool ItemCall::has_preprocess() const { return emitter.has_plugin(item, true); }

Value* ItemCall::positions(const Value* x) const {
  const Dim& tokens = x->dim(1);
  Value* given = emitter.input("positions");
  if (given != nullptr && given->dim(-1) == tokens) return given;
  return b("iota", {}, {{"shape", Shape{tokens}}}, scope + ".positions");
}

Emitter::Emitter(const std::vector<BlockItem>& items, const BlockCall& call, BlockGraph& result)
    : items_(items), call_(call), result_(result), b_(*result.graph) {
  const PluginPoints points(items);
  for (const BlockPlugin& plugin : call.plugins) plugins_.emplace_back(&plugin, points.items_of(plugin));
  for (const auto& [name, type] : call.inputs) {
    result.graph->add_input(name, type);
    read_[name] = false;
  }
}

Value* Emitter::parameter(const std::string& name, const std::vector<int64_t>& shape, ParameterInit init) {
  const auto it = parameters_.find(name);
  if (it != parameters_.end()) {
    const Shape expected(shape.begin(), shape.end());
    require(it->second->shape() == expected, Code::kInvalidArgument, "[GraphOp] parameter ", name, ": streams need ",
            to_string(it->second->shape()), " and ", to_string(expected),
            "; query, key and value must be equally wide");
    return it->second;
  }
  Value* value = b_.constant(Constant::absent(name, call_.dtype, nullptr, shape));
  result_.parameters.push_back({name, shape, init});
  parameters_[name] = value;
  return value;
}

Value* Emitter::input(std::string_view name) {
  const auto it = read_.find(name);
  if (it == read_.end()) return nullptr;
  it->second = true;
  return result_.graph->find_input(name);
}

bool Emitter::has_plugin(const BlockItem& item, bool before) const {
  return std::any_of(plugins_.begin(), plugins_.end(), [&](const auto& placed) {
    const auto& [plugin, items] = placed;
    return !(before ? plugin->before : plugin->after).empty() && items.contains(&item);
  });
}

void Emitter::tell(const BlockPlugin& plugin, std::vector<Value*>& operands, Attrs& attrs) const {
  const Graph& graph = *result_.graph;
  const Value* x = graph.find_input("x");
  const Value* keys = x;
  for (const char* name : {"value", "key"}) {
    if (read_.contains(name)) keys = graph.find_input(name);
  }
  attrs.set("context", Shape{x->dim(0), x->dim(1), keys->dim(1)});
  attrs.set("of_layer", plugin.layer);
  if (read_.contains("positions")) operands.push_back(graph.find_input("positions"));
  Value* mask = read_.contains("attention_mask") ? graph.find_input("attention_mask") : nullptr;
  if (mask != nullptr && mask->rank() == 2 && mask->type().dtype == DType::kBool) operands.push_back(mask);
}

std::vector<Value*> Emitter::plug(const ItemCall& call, std::vector<Value*> values, bool before) {
  for (const auto& [plugin, items] : plugins_) {
    const std::string& kernel = before ? plugin->before : plugin->after;
    if (kernel.empty() || !items.contains(&call.item)) continue;
    std::string types;
    for (const Value* value : values) types += (types.empty() ? "" : ", ") + value->type().str();
    Attrs attrs = {{"target", plugin->point}, {"kernel", kernel}, {"types", std::move(types)}};
    if (plugin->told) tell(*plugin, values, attrs);
    const Node* node =
        b_.node("external", values, std::move(attrs), call.scope + (before ? ".preprocess" : ".postprocess"));
    values = node->outputs();
  }
  return values;
}

// The same on what goes into or comes out of an item: all its values, and the streams of keys and values.
void Emitter::plug_flow(const ItemCall& call, Flow& flow, bool before) {
  if (!has_plugin(call.item, before)) return;
  std::vector<Value*> values = flow.values;
  if (flow.separate()) values.insert(values.end(), {flow.key, flow.value});
  values = plug(call, std::move(values), before);
  if (flow.separate()) {
    flow.value = values.back();
    flow.key = values[values.size() - 2];
    values.resize(values.size() - 2);
  }
  flow.values = std::move(values);
}

void Emitter::run_item(const std::vector<BlockItem>& list, size_t index, Flow& flow) {
  const BlockItem& item = list[index];
  const ItemDef& def = ItemRegistry::instance().get(item.kind);
  const std::string path = scope_->prefix.path(item, index);
  const ItemCall call{*this, b_, list, index, item, path, scope_->prefix.scope(item, index)};
  if (flow.values.size() < def.min_inputs || flow.values.size() > def.max_inputs) {
    const std::string takes =
        def.max_inputs == def.min_inputs ? std::to_string(def.max_inputs) : "from " + std::to_string(def.min_inputs);
    call.fail("is given " + std::to_string(flow.values.size()) + " values by the item before; it takes " + takes);
  }
  b_.set_scope(call.scope);
  if (!def.plugs_inputs) plug_flow(call, flow, true);
  def.apply(call, flow);
  b_.set_scope(call.scope);  // items inside it had scopes of their own
  plug_flow(call, flow, false);
  Value* result = flow.values.size() == 1 ? flow.single() : nullptr;
  if (def.group == "residual") scope_->last_residual = result;
  if (!item.name.empty()) scope_->results[item.name] = result;
}

void Emitter::run(const std::vector<BlockItem>& list, Flow& flow, ListScope& scope) {
  ListScope* outer = scope_;
  scope_ = &scope;
  for (size_t index = 0; index < list.size(); ++index) run_item(list, index, flow);
  scope_ = outer;
}

// The streams that the call gives: keys and values default to the query.
Flow Emitter::first_flow() {
  Flow flow{{input("x")}};
  const bool has_streams = read_.contains("key") || read_.contains("value");
  if (has_streams) {
    flow.key = read_.contains("key") ? result_.graph->find_input("key") : flow.single();
    flow.value = read_.contains("value") ? result_.graph->find_input("value") : flow.single();
  }
  return flow;
}

void Emitter::require_all_read() const {
  for (const auto& [name, read] : read_) {
    // Positions tell plugins and caches where tokens stand, whoever else reads them.
    require(read || name == "positions", Code::kInvalidArgument, "[GraphOp] ", name,
            " is given, but no item reads it: key, value and attention_mask need a FlashAttention, residual a "
            "ResidualAdd from \"input\"");
  }
}

void Emitter::build() {
  Flow flow = first_flow();
  ListScope scope{.prefix = {}, .input = flow.single()};
  if (read_.contains("residual")) scope.input = result_.graph->find_input("residual");
  run(items_, flow, scope);
  require(flow.values.size() == 1, Code::kInvalidArgument, "[GraphOp] the last item gives ", flow.values.size(),
          " values; join them with Add, Mul, Concat or Custom");
  if (read_.contains("residual") && !result_.graph->find_input("residual")->uses().empty()) read_["residual"] = true;
  if (!flow.separate()) {
    for (const char* name : {"key", "value"}) {
      if (read_.contains(name)) read_[name] = true;
    }
  }
  require_all_read();
  result_.graph->set_outputs({flow.single()}, {"output"});
}

}  // namespace atb
