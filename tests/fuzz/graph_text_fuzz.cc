// SPDX-License-Identifier: Apache-2.0
// Graph text: what parses prints as text that parses to the same, and small graphs go through the optimizer.
#include "fuzz/target.h"
#include "ir/demo_text.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "models/load/open.h"
#include "models/tiny_models.h"
#include "passes/pipeline.h"

namespace atb::fuzz {
namespace {

constexpr size_t kMaxNodes = 64;

void optimize_copy(const Graph& graph, bool cache) {
  accepts([&] {
    const std::unique_ptr<Graph> copy = graph.clone();
    PipelineOptions options;
    options.cache = cache;
    options.verify = true;
    optimize(*copy, options);
    verify(*copy, "optimizing");
  });
}

// A whole decoder of one layer.
std::string decoder() {
  testing::TinyLlama model;
  model.layers = 1;
  const HfConfig hf = hf_config(ConfigJson::parse(model.config_json()));
  return print(*build_graph(config_of_directory(family_of(hf, "x"), hf, "no such directory")));
}

}  // namespace

std::vector<std::string> seeds() {
  return {
      testing::kDemoText,
      R"(graph @block(%x: f32[T, 8]) {
  symbols T in [1, 64]
  const @g : f32[16, 8]
  const @u : f32[16, 8]
  const @d : f32[8, 16]
  %a = linear(%x, @g) : f32[T, 16]
  %b = silu(%a) : f32[T, 16]
  %c = linear(%x, @u) : f32[T, 16]
  %m = mul(%b, %c) : f32[T, 16]
  %o = linear(%m, @d) : f32[T, 8]
  %s = add(%x, %o) : f32[T, 8]
  return %s
}
)",
      R"(graph @dims(%x: f32[floordiv(T + 3, 4), max(B, 2)*mod(T, 5)]) {
  %y = softmax(%x) : f32[floordiv(T + 3, 4), max(B, 2)*mod(T, 5)]
  return %y
}
)",
      decoder(),
  };
}

void run(std::string_view input) {
  std::unique_ptr<Graph> graph;
  if (!accepts([&] { graph = parse_graph(input); })) return;
  verify(*graph, "parsing");
  const std::string text = print(*graph);
  expect(print(*parse_graph(text)) == text, "printed text comes back as another graph");
  if (graph->nodes().size() > kMaxNodes) return;
  optimize_copy(*graph, false);
  optimize_copy(*graph, true);
}

}  // namespace atb::fuzz
