// SPDX-License-Identifier: Apache-2.0
// The whole pipeline: eight nodes a layer, equal numbers, log lines, and the accounting of explain.
#include "passes/pipeline.h"

#include <nlohmann/json.hpp>

#include "core/log.h"
#include "graph_testing.h"
#include "passes/explain.h"

namespace atb {
namespace {

using test::tiny_llama;
using test::TinyConfig;

std::vector<std::string> ops_of_layer(const Graph& graph, int layer) {
  std::vector<std::string> ops;
  for (const Node* node : graph.nodes()) {
    if (node->layer() == layer && !node->op().is_view()) ops.push_back(node->op_name());
  }
  return ops;
}

// Collects log lines while it lives.
class LogLines {
 public:
  explicit LogLines(LogLevel level) : old_(log_level()) {
    set_log_level(level);
    set_log_sink([this](LogLevel, const std::string& line) { lines_.push_back(line); });
  }
  ~LogLines() {
    set_log_sink(nullptr);
    set_log_level(old_);
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  LogLevel old_;
  std::vector<std::string> lines_;
};

TEST(Pipeline, ALayerIsEightNodes) {
  auto graph = tiny_llama({.layers = 3});
  const MatchReport report = optimize(*graph);
  EXPECT_EQ(ops_of_layer(*graph, 0), (std::vector<std::string>{"fused_linear", "rotary_kv_append", "flash_attention_kv",
                                                               "linear", "fused_add_norm", "fused_gate_up", "linear"}));
  for (int layer : {1, 2}) {
    EXPECT_EQ(ops_of_layer(*graph, layer),
              (std::vector<std::string>{"fused_add_norm", "merged_matmul", "rotary_kv_append", "flash_attention_kv",
                                        "linear", "fused_add_norm", "fused_gate_up", "linear"}));
  }
  EXPECT_EQ(ops_of_layer(*graph, -1),
            (std::vector<std::string>{"embedding", "rotary_table", "fused_add_norm", "gather_rows", "linear"}));
  std::set<std::string> everywhere;
  for (const PatternResult& pattern : report.patterns) {
    if (pattern.matches == 0) continue;                    // for other families
    const bool first_norm = pattern.name == "NormLinear";  // the others are of sums
    EXPECT_EQ(pattern.layers, first_norm ? std::set<int>{0} : (std::set<int>{0, 1, 2})) << pattern.name;
    everywhere.insert(pattern.name);
  }
  EXPECT_EQ(everywhere, (std::set<std::string>{"QKV+RoPE", "SDPA", "GateUp", "AddNorm", "NormLinear", "RoPE+KV"}));
  EXPECT_TRUE(report.misses.empty());
  EXPECT_EQ(report.before.kernels, 60);
  EXPECT_EQ(report.after.kernels, 23);
}

TEST(Pipeline, WithoutCacheNumbersAndInterfaceStay) {
  for (const char* mask : {"causal", "window", "fill", "none"}) {
    TinyConfig config;
    config.mask = mask;
    auto graph = tiny_llama(config);
    const auto before = graph->clone();
    optimize(*graph, {.cache = false, .disabled_patterns = {}, .verify = true});
    EXPECT_EQ(test::count(*graph, "flash_attention"), 2) << mask;
    EXPECT_EQ(test::count(*graph, "softmax"), 0);
    test::expect_same_numbers(*before, *graph);
  }
}

TEST(Pipeline, LevelsStopWhereTheySay) {
  const auto plain = tiny_llama();
  for (const OptLevel level : {OptLevel::kAsWritten, OptLevel::kCanonical, OptLevel::kFused, OptLevel::kPlanned}) {
    auto graph = plain->clone();
    const MatchReport report = optimize(*graph, {.cache = false, .level = level, .verify = true});
    const bool fused = level >= OptLevel::kFused;
    EXPECT_EQ(test::count(*graph, "flash_attention"), fused ? 2 : 0);
    EXPECT_EQ(test::count(*graph, "merged_matmul"), fused ? 1 : 0);
    EXPECT_EQ(test::count(*graph, "fused_linear"), fused ? 1 : 0);
    EXPECT_EQ(report.patterns.empty(), !fused);
    if (level == OptLevel::kAsWritten) {
      EXPECT_EQ(graph->nodes().size(), plain->nodes().size());
    }
    EXPECT_EQ(report.stages.side_by_side > 0, level == OptLevel::kPlanned);
    test::expect_same_numbers(*plain, *graph);
  }
}

TEST(Pipeline, ACacheNeedsCanonicalFormAndAttentionAndNoMore) {
  for (const OptLevel level : {OptLevel::kAsWritten, OptLevel::kCanonical}) {
    auto graph = tiny_llama();
    optimize(*graph, {.level = level, .verify = true});
    EXPECT_EQ(test::count(*graph, "flash_attention_kv"), 2);
    EXPECT_EQ(test::count(*graph, "kv_append"), 2);
    EXPECT_EQ(test::count(*graph, "merged_matmul") + test::count(*graph, "fused_gate_up"), 0);
  }
  EXPECT_THROW(opt_level(4, "test"), Error);
  EXPECT_THROW(opt_level(-1, "test"), Error);
}

TEST(Pipeline, PatternsCanBeDisabled) {
  auto graph = tiny_llama();
  optimize(*graph, {.cache = true, .disabled_patterns = {"GateUp"}, .verify = true});
  EXPECT_EQ(test::count(*graph, "fused_gate_up"), 0);
  EXPECT_EQ(test::count(*graph, "fused_linear"), 3);  // the first norm, and each gate with its activation
  EXPECT_THROW(optimize(*graph, {.cache = true, .disabled_patterns = {"Gate"}, .verify = true}), Error);
}

TEST(Pipeline, LogsMatchesAndMisses) {
  auto graph = tiny_llama({.layers = 1});
  graph->set_input(test::find(*graph, "l0.up"), 0, test::find(*graph, "l0.attn_sum")->output());
  LogLines log(LogLevel::kDebug);
  optimize(*graph);
  const std::vector<std::string> expected = {
      "[GraphOptimizer] Pattern QKV+RoPE matched at layer 0",
      "[GraphOptimizer] Replaced with MergedMatMul+RotaryEmbedding",
      "[GraphOptimizer] Pattern SDPA matched at layer 0",
      "[GraphOptimizer] Replaced with FlashAttention",
      "[GraphOptimizer] Pattern AddNorm matched at layer 0",
      "[GraphOptimizer] Replaced with FusedAddNorm",
      "[GraphOptimizer] Pattern AddNorm matched at layer 0",
      "[GraphOptimizer] Replaced with FusedAddNorm",
      "[GraphOptimizer] Pattern GateUp not matched at layer 0: l0.up: same x, found %l0.attn_sum, needs %l0.ffn_norm",
      "[GraphOptimizer] Pattern NormLinear matched at layer 0",
      "[GraphOptimizer] Replaced with FusedLinear",
      "[GraphOptimizer] Pattern LinearActivation matched at layer 0",
      "[GraphOptimizer] Replaced with FusedLinear",
      "[GraphOptimizer] Pattern RoPE+KV matched at layer 0",
      "[GraphOptimizer] Replaced with RotaryKVAppend",
  };
  EXPECT_EQ(log.lines(), expected);
}

// Llama-2-7B from its config alone, in f16, at 2,048 tokens.
TEST(Explain, LlamaTwoSevenBillion) {
  TinyConfig config;
  config.layers = 32;
  config.hidden = 4096;
  config.ff = 11008;
  config.vocab = 32000;
  config.heads = config.kv_heads = 32;
  config.head_dim = config.rotary_dim = 128;
  config.absent = true;
  config.dtype = DType::kF16;
  const auto graph = tiny_llama(config);
  const auto json = nlohmann::json::parse(explain_json(*graph, 2048));
  EXPECT_EQ(json["layers"], 32);
  EXPECT_EQ(json["tokens"], 2048);
  EXPECT_EQ(json["kernels_per_layer"]["before"], 20);
  EXPECT_EQ(json["kernels_per_layer"]["after"], 8 - 1.0 / 32);  // the first norm goes into its product
  EXPECT_NEAR(json["bytes_per_layer"]["before"].get<double>(), 3.4e9, 0.1e9);
  EXPECT_LE(json["bytes_per_layer"]["after"].get<double>(), 1.0e9);
  // Scores of 32 heads of 2048 x 2048 are written, scaled, masked and normalized; at last there are none.
  const double scores = 32.0 * 2048 * 2048 * 2;
  EXPECT_GT(json["intermediate_bytes_per_layer"]["before"].get<double>(), 3 * scores);
  EXPECT_LT(json["intermediate_bytes_per_layer"]["after"].get<double>(), scores);
  std::vector<std::string> names;
  double last = json["bytes_per_layer"]["before"].get<double>();
  for (const auto& pattern : json["patterns"]) {
    if (pattern["layers_matched"] == 0) continue;  // for other families
    names.push_back(pattern["name"]);
    EXPECT_EQ(pattern["layers_matched"], pattern["name"] == "NormLinear" ? 1 : 32);
    EXPECT_LE(pattern["bytes_per_layer"].get<double>(), last * 1.05);
    last = pattern["bytes_per_layer"].get<double>();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"QKV+RoPE", "SDPA", "GateUp", "AddNorm", "NormLinear", "RoPE+KV"}));
  EXPECT_EQ(json["patterns"][0]["kernels_per_layer"], 17);
  EXPECT_EQ(json["patterns"][1]["kernels_per_layer"], 13);
  EXPECT_EQ(json["patterns"][2]["kernels_per_layer"], 10);
  EXPECT_EQ(json["patterns"][3]["kernels_per_layer"], 8);
  EXPECT_EQ(json["not_matched"], nlohmann::json::array());
}

TEST(Explain, ReportsMisses) {
  auto graph = tiny_llama();
  graph->set_input(test::find(*graph, "l1.up"), 0, test::find(*graph, "l1.attn_sum")->output());
  const auto json = nlohmann::json::parse(explain_json(*graph, 16));
  ASSERT_EQ(json["not_matched"].size(), 1u);
  EXPECT_EQ(json["not_matched"][0]["pattern"], "GateUp");
  EXPECT_EQ(json["not_matched"][0]["layer"], 1);
  EXPECT_EQ(json["not_matched"][0]["node"], "l1.up");
  EXPECT_EQ(json["patterns"][2]["layers_matched"], 1);
  EXPECT_EQ(json["kernels_per_layer"]["after"], 8.5);
  EXPECT_THROW(explain_json(*graph, 0), Error);
}

}  // namespace
}  // namespace atb
