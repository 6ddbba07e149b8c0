// SPDX-License-Identifier: Apache-2.0
// The list of named passes.
#include "passes/registry.h"

#include "core/log.h"
#include "ir/verifier.h"
#include "passes/assign_buffers.h"
#include "passes/cache_attention.h"
#include "passes/canonical/canonical.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/engine/driver.h"
#include "passes/fold_constants.h"
#include "passes/insert_kv_cache.h"
#include "passes/schedule.h"
#include "passes/widen_floats.h"

namespace atb {
namespace {

// A pass that takes no argument and reports nothing.
template <class Pass>
NamedPass plain(std::string name, std::string doc, Pass pass) {
  auto run = [name, pass](Graph& graph, std::string_view argument, MatchReport& /*report*/) {
    require(argument.empty(), Code::kInvalidArgument, "[passes] ", name, " takes no argument, given \"", argument,
            "\"");
    pass(graph);
  };
  return {std::move(name), std::move(doc), std::move(run)};
}

void run_pattern(Graph& graph, std::string_view argument, MatchReport& report) {
  const PatternRegistry& registry = PatternRegistry::instance();
  const Pattern* pattern = registry.find(argument);
  if (pattern == nullptr) {
    std::string names;
    for (const Pattern* known : registry.all()) names += (names.empty() ? "" : ", ") + known->name();
    throw_error(Code::kNotFound, "[passes] there is no pattern \"", argument, "\"; there are: ", names);
  }
  apply_patterns(graph, {pattern}, report);
}

NamedPass patterns_of(std::string name, std::string doc, PatternGroup group) {
  auto run = [group](Graph& graph, std::string_view /*argument*/, MatchReport& report) {
    apply_patterns(graph, PatternRegistry::instance().group(group), report);
  };
  return {std::move(name), std::move(doc), std::move(run)};
}

void run_cache_attention(Graph& graph, std::string_view argument, MatchReport& /*report*/) {
  std::vector<std::string> scopes;
  while (!argument.empty()) {
    const size_t comma = argument.find(',');
    scopes.emplace_back(argument.substr(0, comma));
    argument = comma == std::string_view::npos ? std::string_view() : argument.substr(comma + 1);
  }
  cache_attention(graph, scopes);
}

// Leaves the graph as it is; the plan goes to the log.
void run_plan_memory(Graph& graph, std::string_view argument, MatchReport& /*report*/) {
  const BufferPlan plan = assign_buffers(graph, schedule(graph), parse_bindings(argument));
  for (const Node* node : graph.nodes()) {
    for (const Value* value : node->outputs()) {
      const auto it = plan.offsets.find(value);
      if (it == plan.offsets.end()) continue;
      log(LogLevel::kInfo, "PlanMemory", "%" + value->name() + " at " + std::to_string(it->second));
    }
  }
  log(LogLevel::kInfo, "PlanMemory",
      "arena " + std::to_string(plan.arena_bytes) + " bytes, lower bound " + std::to_string(plan.lower_bound_bytes));
}

PassRegistry make_registry() {
  PassRegistry registry;
  registry.add(plain("widen-floats", "halves are computed in f32", widen_floats));
  registry.add(plain("canonicalize", "one spelling of equal things", canonicalize));
  registry.add(plain("fold-constants", "computes what depends on constants alone", fold_constants));
  registry.add(plain("cse", "common subexpressions once", eliminate_common_subexpressions));
  registry.add(plain("dce", "removes what no output needs", eliminate_dead_code));
  registry.add({"pattern", "one fusion by its name: pattern=SDPA", run_pattern});
  registry.add(patterns_of("fuse", "all fusions, by benefit", PatternGroup::kFusion));
  registry.add(patterns_of("fuse-further", "further fusions of the fused graph, by benefit", PatternGroup::kFurther));
  registry.add(plain("drop-padding", "padding masks and position inputs become constants", drop_padding));
  registry.add(plain("insert-kv-cache", "a decoder becomes an incremental step", insert_kv_cache));
  registry.add({"cache-attention",
                "attentions of these scopes get a KV cache: cache-attention=layers.0.attn,layers.1.attn",
                run_cache_attention});
  registry.add(patterns_of("fuse-state", "fusions of the step graph, by benefit", PatternGroup::kState));
  registry.add(plain("schedule", "nodes stage by stage, in the order they run", apply_schedule));
  registry.add(
      {"plan-memory", "buffer offsets for given sizes, logged as info: plan-memory=T=64,L=8", run_plan_memory});
  return registry;
}

}  // namespace

void PassRegistry::run(std::string_view text, Graph& graph, MatchReport& report) const {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const std::string_view argument = equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
  for (const NamedPass& pass : passes_) {
    if (pass.name != name) continue;
    pass.run(graph, argument, report);
    verify(graph, text);
    return;
  }
  std::string names;
  for (const NamedPass& pass : passes_) names += (names.empty() ? "" : ", ") + pass.name;
  throw_error(Code::kNotFound, "[passes] there is no pass \"", name, "\"; there are: ", names);
}

const PassRegistry& PassRegistry::instance() {
  static const PassRegistry registry = make_registry();
  return registry;
}

}  // namespace atb
