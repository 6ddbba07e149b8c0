// SPDX-License-Identifier: Apache-2.0
// Declared blocks for applications: the block builder behind the public header.
#include "atb/graph_op.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <string_view>

#include "api/compiled_graph.h"
#include "api/graph_call.h"
#include "api/graph_plugins.h"
#include "api/kv_cache_impl.h"
#include "blocks/block.h"
#include "core/constant.h"
#include "core/error.h"
#include "ir/text.h"

namespace atb {
namespace {

constexpr size_t kMaxForms = 8;  // kept; each has packed weights of its own

Attr to_attr(const GraphItem::Option& option) {
  return std::visit([](const auto& value) -> Attr { return value; }, option);
}

std::vector<BlockItem> to_items(const std::vector<GraphItem>& given) {
  std::vector<BlockItem> items;
  for (const GraphItem& one : given) {
    BlockItem item{one.kind, one.name};
    for (const auto& [name, option] : one.options) item.attrs.set(name, to_attr(option));
    for (const auto& branch : one.branches) item.branches.push_back(to_items(branch));
    items.push_back(std::move(item));
  }
  return items;
}

uint64_t next_number() {
  static std::atomic<uint64_t> count{0};
  return ++count;
}

}  // namespace

struct GraphOp::Impl {
  // What serves a form of call.
  struct Program {
    std::string key;
    std::unique_ptr<CompiledGraph> compiled;
    std::vector<CachedAttention> cached;
  };

  Impl(std::vector<BlockItem> items, const GraphOpOptions& given) : block(std::move(items)), options(given) {}

  // The dtype of the parameters: that of the first that was set.
  DType dtype() const { return set.empty() ? DType::kF32 : set.begin()->second->dtype(); }

  std::shared_ptr<Program> compile(BlockCall form, std::string key, const KvCache* cache) const {
    for (const auto& [name, constant] : set) form.shapes[name] = constant->shape();
    BlockGraph built = block.graph(form);
    for (const BlockParameter& parameter : built.parameters) {
      const auto it = set.find(parameter.name);
      require(it != set.end(), Code::kFailedPrecondition, "[GraphOp] parameter ", parameter.name,
              " was not set; set_parameter() each of parameters()");
      bind_constant(*built.graph, it->second);
    }
    CompileOptions compile_options;
    compile_options.threads = options.threads;
    if (cache != nullptr) {
      for (const CachedAttention& one : built.cached) compile_options.cached.push_back(one.scope);
      compile_options.kv_dtype = dtype_of(cache->options().type);
    }
    auto compiled = std::make_unique<CompiledGraph>(std::move(built.graph), compile_options);
    return std::make_shared<Program>(Program{std::move(key), std::move(compiled), std::move(built.cached)});
  }

  std::shared_ptr<Program> program_for(const GraphCall& call, int64_t past) {
    const std::lock_guard held(mutex);
    BlockCall form = form_of(call, dtype(), past);
    form.plugins = plugins.active(layer_of(call));
    const KvCache* cache = call.kv_cache;
    std::string key = key_of(form);
    if (cache != nullptr) key += cache->options().type == ElementType::kF32 ? ";cache" : ";cache of bf16";
    const auto it = std::find_if(programs.begin(), programs.end(), [&](const auto& kept) { return kept->key == key; });
    if (it != programs.end()) {
      std::rotate(it, it + 1, programs.end());
    } else {
      programs.push_back(compile(std::move(form), std::move(key), cache));
      if (programs.size() > kMaxForms) programs.erase(programs.begin());
    }
    return programs.back();
  }

  int64_t layer_of(const GraphCall& call) const {
    if (options.layer >= 0 || call.kv_cache == nullptr) return options.layer;
    return call.kv_cache->impl_->first_slot(number);
  }

  // Tokens that a call finds in its cache; -1 where it has none.
  int64_t past_of(const GraphCall& call) const {
    if (call.kv_cache == nullptr) return -1;
    require(block.cached(), Code::kInvalidArgument, "[GraphOp] a kv_cache is given, but no item has kv_cache = true");
    require(call.kv_cache->impl_ != nullptr, Code::kInvalidArgument, "[GraphOp] the kv_cache was moved from");
    return call.kv_cache->impl_->held_by(number);
  }

  Array run(GraphCall call) {
    const int64_t past = past_of(call);
    std::vector<int64_t> positions;
    if (past >= 0 && block.has("rotary_embedding") && call.positions.data == nullptr && call.x.shape.size() > 1) {
      positions.resize(static_cast<size_t>(std::clamp<int64_t>(call.x.shape[1], 0, kMaxPlaced)));
      std::iota(positions.begin(), positions.end(), past);
      call.positions = {positions.data(), ElementType::kI64, {static_cast<int64_t>(positions.size())}};
    }
    const std::shared_ptr<Program> program = program_for(call, past);
    std::vector<int64_t> slots;
    CacheUse use;
    if (past >= 0) {
      const CachedAttention& first = program->cached.front();
      slots = call.kv_cache->impl_->slots_of(number, static_cast<int64_t>(program->cached.size()), first.kv_heads,
                                             first.head_dim);
      use = {call.kv_cache->impl_->slots.get(), slots};
    }
    Tensor output = std::move(program->compiled->run(views_of(call), nullptr, use).front());
    return {output.data, element_type(output.dtype), output.shape};
  }

  static constexpr int64_t kMaxPlaced = int64_t{1} << 20;  // as many tokens as a block may have

  const Block block;
  const GraphOpOptions options;
  const uint64_t number = next_number();  // the owner of slots
  GraphPlugins plugins;
  mutable std::mutex mutex;  // guards what follows
  std::map<std::string, ConstantRef> set;
  std::vector<std::shared_ptr<Program>> programs;  // by form of call, the last one last
};

GraphOp::GraphOp(std::vector<GraphItem> items, const GraphOpOptions& options)
    : impl_(std::make_unique<Impl>(to_items(items), options)) {}

GraphOp::~GraphOp() = default;

std::vector<GraphParameter> GraphOp::parameters(int64_t features) const {
  require(features >= 0, Code::kInvalidArgument, "[GraphOp] features ", features, " must not be negative");
  const Dim batch = block_symbol("B"), tokens = block_symbol("T");
  const Type x = features == 0 ? Type{DType::kI64, {batch, tokens}} : Type{DType::kF32, {batch, tokens, features}};
  std::vector<GraphParameter> result;
  for (BlockParameter& parameter : impl_->block.graph({.inputs = {{"x", x}}}).parameters) {
    result.push_back({std::move(parameter.name), std::move(parameter.shape)});
  }
  return result;
}

void GraphOp::set_parameter(const std::string& name, const ArrayView& values) {
  const std::vector<std::string> names = impl_->block.parameter_names();
  require(std::find(names.begin(), names.end(), name) != names.end(), Code::kNotFound,
          "[GraphOp] there is no parameter ", name);
  require(values.data != nullptr, Code::kInvalidArgument, "[GraphOp] parameter ", name, ": no data");
  ConstantRef constant = constant_of(name, values);
  const std::lock_guard held(impl_->mutex);
  impl_->set[name] = std::move(constant);
  impl_->programs.clear();
}

// A kernel from outside that fails is one of the plugins', as far as is known.
Array GraphOp::operator()(const GraphCall& call) {
  try {
    return impl_->run(call);
  } catch (const Error& error) {
    const std::string_view what = error.what();
    std::string points;
    for (const BlockPlugin& plugin : impl_->plugins.active(-1)) points += (points.empty() ? "" : ", ") + plugin.point;
    if (points.empty() || what.find("the results are discarded") == std::string_view::npos) throw;
    throw_error(error.code(), "[plugin] ", points, ": a kernel may have failed: ", what);
  }
}

std::vector<std::string> GraphOp::plugin_points() const { return impl_->block.plugin_points(); }

PluginHandle GraphOp::register_plugin(const std::string& point, std::shared_ptr<Plugin> plugin) {
  return impl_->plugins.add(point, std::move(plugin), plugin_points());
}

std::string GraphOp::graph_text() const {
  const std::lock_guard held(impl_->mutex);
  require(!impl_->programs.empty(), Code::kFailedPrecondition,
          "[GraphOp] nothing is compiled yet; call the block once");
  return print(impl_->programs.back()->compiled->graph());
}

}  // namespace atb
