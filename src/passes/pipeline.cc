// SPDX-License-Identifier: Apache-2.0
// The pipeline, readable from top to bottom.
#include "passes/pipeline.h"

#include "ir/verifier.h"
#include "passes/cache_attention.h"
#include "passes/canonical/canonical.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/engine/driver.h"
#include "passes/externals.h"
#include "passes/fold_constants.h"
#include "passes/insert_kv_cache.h"
#include "passes/schedule.h"
#include "passes/widen_floats.h"

namespace atb {
namespace {

bool keeps_cache(const PipelineOptions& options) { return options.cache || !options.cached_scopes.empty(); }

bool fuses(const Pattern& pattern, const PipelineOptions& options) {
  return options.level >= OptLevel::kFused || (keeps_cache(options) && pattern.name() == "SDPA");
}

std::vector<const Pattern*> enabled(PatternGroup group, const PipelineOptions& options) {
  std::vector<const Pattern*> patterns;
  for (const Pattern* pattern : PatternRegistry::instance().group(group)) {
    const bool disabled = options.disabled_patterns.count(pattern->name()) > 0;
    if (!disabled && fuses(*pattern, options)) patterns.push_back(pattern);
  }
  return patterns;
}

// A cache keeps the keys and values of fused attentions: without them there is none, whatever else is not wanted.
std::vector<const Pattern*> needed_for_cache(const PipelineOptions& options) {
  if (options.disabled_patterns.count("SDPA") == 0) return {};
  return {PatternRegistry::instance().find("SDPA")};
}

void check_names(const PipelineOptions& options) {
  for (const std::string& name : options.disabled_patterns) {
    require(PatternRegistry::instance().find(name) != nullptr, Code::kNotFound,
            "[GraphOptimizer] there is no pattern \"", name, "\" to disable");
  }
}

}  // namespace

MatchReport optimize(Graph& graph, const PipelineOptions& options) {
  check_names(options);
  MatchReport report;
  const auto pass = [&](const char* name, const auto& run) {
    run();
    if (options.verify) verify(graph, name);
    if (options.after_pass) options.after_pass(graph, name);
  };

  if (options.verify) verify(graph, "the front door");
  pass("expand_externals", [&] { expand_externals(graph); });
  if (options.widen) pass("widen_floats", [&] { widen_floats(graph); });
  report.before = measure_layers(graph);
  report.sketch_before = sketch_layer(graph);

  if (options.cache) pass("drop_padding", [&] { drop_padding(graph); });
  if (keeps_cache(options) || options.level >= OptLevel::kCanonical) {
    pass("dce of the front door", [&] { eliminate_dead_code(graph); });
    pass("cse of the front door", [&] { eliminate_common_subexpressions(graph); });
    pass("canonicalize", [&] { canonicalize(graph); });
    pass("fold_constants", [&] { fold_constants(graph); });
    pass("cse", [&] { eliminate_common_subexpressions(graph); });
    pass("dce", [&] { eliminate_dead_code(graph); });
  }

  if (const auto fusions = enabled(PatternGroup::kFusion, options); !fusions.empty()) {
    pass("fusions", [&] { apply_patterns(graph, fusions, report); });
    pass("canonicalize views", [&] { canonicalize(graph); });
    pass("further fusions", [&] { apply_patterns(graph, enabled(PatternGroup::kFurther, options), report); });
    pass("cse after fusions", [&] { eliminate_common_subexpressions(graph); });
    pass("dce after fusions", [&] { eliminate_dead_code(graph); });
  }

  if (options.cache) {
    pass("insert_kv_cache", [&] { insert_kv_cache(graph); });
    pass("state fusions", [&] { apply_patterns(graph, enabled(PatternGroup::kState, options), report); });
    pass("dce after cache", [&] { eliminate_dead_code(graph); });
  } else if (!options.cached_scopes.empty()) {
    pass("fusions for the cache", [&] { apply_patterns(graph, needed_for_cache(options), report); });
    pass("cache_attention", [&] { cache_attention(graph, options.cached_scopes); });
    pass("state fusions", [&] { apply_patterns(graph, enabled(PatternGroup::kState, options), report); });
    pass("dce after cache", [&] { eliminate_dead_code(graph); });
  }

  report.after = measure_layers(graph);
  report.sketch_after = sketch_layer(graph);
  report.stages = sketch_stages(schedule(graph, options.level >= OptLevel::kPlanned), report.sketch_after.layer);
  return report;
}

}  // namespace atb
