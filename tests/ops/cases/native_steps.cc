// SPDX-License-Identifier: Apache-2.0
// Cases of the four steps of attention: qkv_load, block_attention, online_softmax, output_merge.
#include <cmath>
#include <limits>
#include <tuple>

#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

// Keys as qkv_load lays them out; lanes beyond the last hold what nothing may read.
Operand panels(int64_t batch, int64_t kv_heads, int64_t keys, int64_t head_dim, uint32_t seed) {
  return random_activation({batch, kv_heads, (keys + 15) / 16, head_dim, 16}, seed, 3.0f);
}

struct BlockShape {
  int64_t batch, tokens, heads, kv_heads, keys, head_dim;
  int64_t kv_batch = 0;  // 0: as batch
};

OpCase block(const BlockShape& s, Attrs attrs = {}) {
  const int64_t kv_batch = s.kv_batch == 0 ? s.batch : s.kv_batch;
  attrs.set("scale", 1 / std::sqrt(static_cast<double>(s.head_dim)));
  return {.op = "block_attention",
          .inputs = {random_activation({s.batch, s.tokens, s.heads, s.head_dim}, 1, 3.0f),
                     panels(kv_batch, s.kv_heads, s.keys, s.head_dim, 2),
                     random_activation({kv_batch, s.kv_heads, s.keys, s.head_dim}, 3)},
          .attrs = std::move(attrs)};
}

// With a mask that hides every fifth key, positions of the queries, or results to go on from.
OpCase masked(OpCase test, std::vector<int64_t> shape) {
  Operand mask = random_activation(std::move(shape), 4);
  for (size_t i = 0; i < mask.tensor->f.size(); i += 5) mask.tensor->f[i] = -std::numeric_limits<float>::infinity();
  test.inputs.push_back(std::move(mask));
  return test;
}
OpCase placed(OpCase test, std::vector<int64_t> first) {
  test.inputs.resize(4);
  const auto count = static_cast<int64_t>(first.size());
  test.inputs.push_back(integers({count}, std::move(first)));
  return test;
}

// Sums of every seventh row are 0: such rows saw no key, and their maximum is -inf.
void add_results(std::vector<Operand>& inputs, std::vector<int64_t> rows, int64_t head_dim) {
  std::vector<int64_t> shape = rows;
  shape.push_back(head_dim);
  Operand output = random_activation(std::move(shape), 5, 4.0f);
  Operand max = random_activation(rows, 6, 8.0f);
  Operand sum = positive(std::move(rows), 7);
  for (size_t i = 3; i < sum.tensor->f.size(); i += 7) {
    sum.tensor->f[i] = 0;
    max.tensor->f[i] = -std::numeric_limits<float>::infinity();
    std::fill_n(output.tensor->f.begin() + static_cast<int64_t>(i) * head_dim, head_dim, 0.0f);
  }
  for (Operand* operand : {&output, &max, &sum}) inputs.push_back(std::move(*operand));
}
OpCase running(OpCase test, const BlockShape& s) {
  test.inputs.resize(5);
  add_results(test.inputs, {s.batch, s.tokens, s.heads}, s.head_dim);
  return test;
}

void add(CaseRegistry& registry, const std::string& name, std::vector<int64_t> sizes,
         std::function<OpCase(int64_t)> make, std::vector<BenchCall> bench = {}) {
  registry.add({.name = name,
                .op = name.substr(0, name.find('/')),
                .make = std::move(make),
                .sizes = std::move(sizes),
                .tolerance = 4e-6,
                .why = "rounded chains over the head, the keys and the partials, exponentials within an ulp",
                .bench = std::move(bench)});
}

void register_block(CaseRegistry& registry) {
  const std::vector<int64_t> keys = {1, 2, 15, 16, 17, 33, 127, 128, 129, 270};
  add(
      registry, "block_attention/causal/head_dim", around_vectors(1),
      [](int64_t n) {
        return block({2, 7, 4, 2, 7, n}, {{"causal", true}});
      },
      bench_calls("", false, [](const BenchModel& m, int64_t tokens) {
        return block({1, tokens, m.heads, m.kv_heads, 512, m.head_dim}, {{"causal", true}});
      }));
  add(registry, "block_attention/keys", keys, [](int64_t n) { return block({1, 9, 2, 1, n, 24}); });
  add(
      registry, "block_attention/split/keys", keys,
      [](int64_t n) {
        return block({2, 3, 4, 2, n, 16}, {{"split", int64_t{128}}});
      },
      bench_calls("at_4096", false, [](const BenchModel& m, int64_t tokens) {
        return block({1, tokens, m.heads, m.kv_heads, 4096, m.head_dim}, {{"split", int64_t{512}}});
      }));
  add(registry, "block_attention/split/window", {130, 300, 390}, [](int64_t n) {
    return block({1, n - 120, 2, 2, n, 16}, {{"split", int64_t{256}}, {"causal", true}, {"window", int64_t{90}}});
  });
  add(registry, "block_attention/mask/keys", {1, 5, 16, 31, 130}, [](int64_t n) {
    return masked(block({2, 6, 4, 2, n, 16}, {{"softcap", 5.0}}), {2, 1, 6, n});
  });
  add(registry, "block_attention/shared/batch", {1, 2, 9, 17, 60}, [](int64_t n) {
    return masked(block({n, 2, 6, 2, 140, 16, 1}), {n, 6, 2, 140});
  });
  add(registry, "block_attention/first_query/keys", {1, 20, 130, 300}, [](int64_t n) {
    return placed(block({3, 5, 2, 1, n, 16}, {{"causal", true}, {"window", int64_t{140}}}), {n / 2, -3, n + 50});
  });
  add(registry, "block_attention/running/keys", keys, [](int64_t n) {
    const BlockShape shape{2, 5, 4, 2, n, 20};
    return running(placed(block(shape, {{"causal", true}}), {n / 3}), shape);
  });
}

OpCase load(int64_t keys, int64_t head_dim, const std::string& norm, bool weights) {
  OpCase test{.op = "qkv_load",
              .inputs = {random_activation({2, 3, 4, head_dim}, 1), random_activation({2, keys, 2, head_dim}, 2),
                         random_activation({2, keys, 2, head_dim}, 3)},
              .attrs = {{"norm", norm}, {"eps", 1e-5}}};
  if (!weights) return test;
  for (const uint32_t seed : {4u, 5u, 6u, 7u}) {
    const bool bias = seed % 2 == 1;
    if (bias && norm == "rms") {
      test.inputs.push_back(no_operand());
    } else if (seed < 6) {
      test.inputs.push_back(weight({head_dim}, random_values(head_dim, seed)));
    } else {
      test.inputs.push_back(random_activation({head_dim}, seed));
    }
  }
  return test;
}

void register_load(CaseRegistry& registry) {
  const auto loads = [&](const std::string& name, std::vector<int64_t> sizes, std::function<OpCase(int64_t)> make,
                         double tolerance) {
    registry.add({.name = "qkv_load/" + name,
                  .op = "qkv_load",
                  .make = std::move(make),
                  .sizes = std::move(sizes),
                  .tolerance = tolerance,
                  .why = tolerance == 0 ? "copies" : "sums of n rounded terms in several chains; a mean that cancels",
                  .same_as_f32 = tolerance == 0});
  };
  loads(
      "keys", {0, 1, 15, 16, 17, 33, 130}, [](int64_t n) { return load(n, 24, "none", false); }, 0);
  loads(
      "head_dim", around_vectors(1), [](int64_t n) { return load(19, n, "none", false); }, 0);
  loads(
      "rms/head_dim", around_vectors(1), [](int64_t n) { return load(19, n, "rms", true); }, 2e-6);
  loads(
      "layer/head_dim", around_vectors(2), [](int64_t n) { return load(5, n, "layer", true); }, 2e-6);
  loads(
      "layer/plain", {1, 17, 40}, [](int64_t n) { return load(n, 20, "layer", false); }, 2e-6);
  loads(
      "rms/plain", {1, 17, 40}, [](int64_t n) { return load(n, 20, "rms", false); }, 2e-6);
}

OpCase merge(const std::string& op, std::vector<int64_t> rows, int64_t head_dim, bool finish) {
  OpCase test{.op = op, .inputs = {}};
  add_results(test.inputs, std::move(rows), head_dim);
  if (op == "online_softmax") {
    test.inputs.erase(test.inputs.begin());
  } else {
    test.attrs.set("finish", finish);
  }
  return test;
}

void register_merge(CaseRegistry& registry) {
  for (const bool finish : {true, false}) {
    const std::string form = std::string("output_merge/") + (finish ? "finish" : "go_on");
    add(registry, form + "/head_dim", around_vectors(1), [finish](int64_t n) {
      return merge("output_merge", {3, 2, 5, 3}, n, finish);
    });
    add(registry, form + "/partials", {0, 1, 2, 5, 17}, [finish](int64_t n) {
      return merge("output_merge", {n, 1, 60}, 16, finish);
    });
  }
  add(registry, "online_softmax/partials", {0, 1, 2, 5, 17}, [](int64_t n) {
    return merge("online_softmax", {n, 2, 50}, 1, false);
  });
  add(registry, "online_softmax/rows", few_sizes(), [](int64_t n) {
    return merge("online_softmax", {3, n}, 1, false);
  });
}

}  // namespace

void register_case_native_steps(CaseRegistry& registry) {
  register_load(registry);
  register_block(registry);
  register_merge(registry);
}

}  // namespace atb
