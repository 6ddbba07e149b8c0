// SPDX-License-Identifier: Apache-2.0
// Exported decoders through the whole pipeline: the layer that the native door reaches, with equal numbers.
#include "exported_llama.h"
#include "passes/widen_floats.h"

namespace atb {
namespace {

using test::exported_llama;
using test::ExportedLlamaConfig;

std::vector<std::string> ops_of_layer(const Graph& graph, int layer) {
  std::vector<std::string> ops;
  for (const Node* node : graph.nodes()) {
    if (node->layer() == layer && !node->op().is_view()) ops.push_back(node->op_name());
  }
  return ops;
}

const std::vector<std::string> kLayer = {"fused_add_norm", "merged_matmul",  "rotary_embedding", "flash_attention",
                                         "linear",         "fused_add_norm", "fused_gate_up",    "linear"};

TEST(ExportedLlama, ALlamaLayerIsEightKernels) {
  for (const bool merged : {false, true}) {
    auto graph = exported_llama({.layers = 3, .merged = merged});
    const auto before = graph->clone();
    optimize(*graph, {.cache = false, .verify = true});
    EXPECT_EQ(ops_of_layer(*graph, 1), kLayer);
    EXPECT_EQ(ops_of_layer(*graph, 2), kLayer);
    test::expect_same_numbers(*before, *graph, {{"B", 2}, {"T", 5}}, 1e-6);
  }
}

TEST(ExportedLlama, HalvesGiveTheSameLayer) {
  auto graph = exported_llama({.layers = 2, .dtype = "bf16"});
  optimize(*graph, {.cache = false, .verify = true});
  EXPECT_EQ(ops_of_layer(*graph, 1), kLayer);
  EXPECT_EQ(graph->outputs()[0]->type().dtype, DType::kBF16);
}

// Nothing is asserted of the time; run it alone to see it.
TEST(ExportedLlama, ThirtyLayers) {
  auto graph = exported_llama({.layers = 30});
  const size_t nodes = graph->nodes().size();
  optimize(*graph, {.cache = false, .verify = false});
  EXPECT_GT(nodes, 2000u);
  EXPECT_EQ(ops_of_layer(*graph, 29), kLayer);
}

}  // namespace
}  // namespace atb
