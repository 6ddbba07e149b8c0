// SPDX-License-Identifier: Apache-2.0
// graph_op [TOKENS]: declares an attention block and a feed-forward block, fills their parameters with small numbers,
// runs them on TOKENS tokens, and prints the fused graph of the first and a checksum. Then the same tokens go through
// the attention one by one, over a cache. Exit status: 0; 1 where ATB refused or failed; 2 for wrong arguments.
#include <atb/atb.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

namespace {

constexpr int64_t kFeatures = 64;
constexpr int64_t kHeads = 4;

int64_t size_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// A wave: any numbers do for an example.
std::vector<float> wave(int64_t count, float step, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * std::sin(step * static_cast<float>(i + 1));
  return values;
}

void fill(atb::GraphOp& block) {
  float step = 0.7f;
  for (const atb::GraphParameter& parameter : block.parameters(kFeatures)) {
    const std::vector<float> values = wave(size_of(parameter.shape), step += 0.1f, 0.2f);
    block.set_parameter(parameter.name, {values.data(), atb::ElementType::kF32, parameter.shape});
  }
}

// How many of the numbers differ where tokens come one by one and each sees those before it in the cache.
int64_t differences_one_by_one(atb::GraphOp& attention, const std::vector<float>& x, const atb::Array& whole) {
  const int64_t tokens = whole.shape[1];
  atb::KvCache cache({.layers = 1, .heads = kHeads, .head_dim = kFeatures / kHeads, .max_tokens = tokens});
  int64_t different = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const atb::ArrayView token{x.data() + t * kFeatures, atb::ElementType::kF32, {1, 1, kFeatures}};
    const atb::Array step = attention({.x = token, .kv_cache = &cache});
    for (int64_t i = 0; i < kFeatures; ++i) {
      different += step.as<float>()[i] == whole.as<float>()[t * kFeatures + i] ? 0 : 1;
    }
  }
  std::cout << cache.length() << " tokens in " << cache.blocks_in_use() << " blocks of the cache\n";
  return different;
}

void run(int64_t tokens) {
  namespace items = atb::items;
  atb::GraphOp attention({
      items::layer_norm("query"),
      items::linear("qkv_proj", 3 * kFeatures),
      items::flash_attention("attn", kHeads, /*causal=*/true).with("kv_cache", true),
      items::linear("out_proj", kFeatures),
      items::residual_add("output", "input"),
  });
  atb::GraphOp mlp({
      items::rms_norm("norm"),
      items::branch({{items::linear("gate", 128, false), items::silu()}, {items::linear("up", 128, false)}}),
      items::mul(),
      items::linear("down", kFeatures, false),
      items::residual_add(),
  });
  fill(attention);
  fill(mlp);
  const std::vector<float> x = wave(tokens * kFeatures, 0.3f, 1.0f);
  const atb::Array hidden = attention({.x = {x.data(), atb::ElementType::kF32, {1, tokens, kFeatures}}});
  const atb::Array output = mlp({.x = {hidden.data.get(), hidden.type, hidden.shape}});
  std::cout << attention.graph_text();
  double sum = 0;
  for (int64_t i = 0; i < size_of(output.shape); ++i) sum += std::abs(output.as<float>()[i]);
  std::cout << "sum of magnitudes " << sum << '\n';
  std::cout << differences_one_by_one(attention, x, hidden) << " numbers differ one by one\n";
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 16;
  if (argc > 2 || tokens < 1) {
    std::cerr << "usage: graph_op [TOKENS]\n";
    return 2;
  }
  try {
    run(tokens);
    return 0;
  } catch (const atb::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
