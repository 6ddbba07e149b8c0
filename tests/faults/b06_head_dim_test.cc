// SPDX-License-Identifier: Apache-2.0
// B06: head_dim of the configuration ignored and recomputed as hidden / heads.
#include <gtest/gtest.h>

#include <cmath>

#include "models/graph_run.h"
#include "models/model.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::TempDir;
using testing::TinyLlama;

TinyLlama model_of_the_row() {
  TinyLlama model;
  model.hidden = 80;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 16;  // 80 / 4 = 20
  return model.fill();
}

const Node& find_node(const Graph& graph, const std::string& name) {
  for (const Node* node : graph.nodes()) {
    if (node->name() == name) return *node;
  }
  throw_error(Code::kInternal, "no node ", name);
}

void check(const LoadedModel& loaded) {
  EXPECT_EQ(loaded.config.head_dim, 16);
  const Graph& graph = *loaded.graph;
  EXPECT_EQ(find_node(graph, "layers.0.q").input(1)->type().str(), "f32[64, 80]");
  EXPECT_EQ(find_node(graph, "layers.0.attn_sum").input(1)->producer()->input(1)->type().str(), "f32[80, 64]");
  EXPECT_EQ(to_string(find_node(graph, "cos").output()->shape()), "[T, 8]");  // rope width 16
  EXPECT_EQ(find_node(graph, "layers.0.scaled").input(1)->constant()->to_f32(), std::vector<float>{0.25f});
  EXPECT_EQ(to_string(find_node(graph, "layers.0.k_rot").output()->shape()), "[B, T, 2, 16]");  // 2 * 16 a token
  for (const double logit : testing::reference_logits(graph, {1, 2, 3})) EXPECT_TRUE(std::isfinite(logit));
}

TEST(B06, HeadDimOfADirectory) {
  const TempDir dir;
  check(load_model(model_of_the_row().write_directory(dir)));
}

TEST(B06, HeadDimOfAGgufFile) {
  const TempDir dir;
  check(load_model(model_of_the_row().write_gguf(dir)));
}

}  // namespace
}  // namespace atb
