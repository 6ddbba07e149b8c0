// SPDX-License-Identifier: Apache-2.0
// The four steps of attention one after the other against flash_attention, and what they refuse.
#include <algorithm>

#include "ops/error_text.h"
#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

struct Problem {
  int64_t batch, tokens, heads, kv_heads, keys, head_dim;
  bool causal = false;
  int64_t window = 0;
};

std::vector<Problem> problems() {
  return {{1, 1, 4, 2, 500, 32, true},       {2, 7, 4, 2, 300, 33, true},  {1, 130, 6, 3, 130, 16, true},
          {1, 50, 2, 1, 400, 64, true, 150}, {3, 4, 2, 2, 129, 48, false}, {1, 3, 2, 2, 128, 24, true}};
}

Operand values(std::vector<int64_t> shape, uint32_t seed, float scale) {
  const int64_t count = count_of(shape);
  return activation(std::move(shape), random_values(count, seed, scale));
}

struct Tensors {
  Operand q, k, v;
};

Tensors tensors_of(const Problem& p) {
  return {values({p.batch, p.tokens, p.heads, p.head_dim}, 1, 3),
          values({p.batch, p.keys, p.kv_heads, p.head_dim}, 2, 3),
          values({p.batch, p.keys, p.kv_heads, p.head_dim}, 3, 1)};
}

// Keys [begin, end) of k or v [B, S, KV, D].
Operand keys_of(const Operand& all, int64_t begin, int64_t end) {
  std::vector<int64_t> shape = all.tensor->shape;
  const int64_t width = shape[2] * shape[3];
  std::vector<float> part;
  for (int64_t batch = 0; batch < shape[0]; ++batch) {
    const auto first = all.tensor->f.begin() + (batch * shape[1] + begin) * width;
    part.insert(part.end(), first, first + (end - begin) * width);
  }
  shape[1] = end - begin;
  return activation(std::move(shape), std::move(part));
}

Operand operand(const RefTensor<float>& tensor) { return {tensor, nullptr}; }

std::vector<RefTensor<float>> kernel_of(const std::string& op, std::vector<Operand> inputs, Attrs attrs = {}) {
  OpRun run = run_op({.op = op, .inputs = std::move(inputs), .attrs = std::move(attrs), .with_reference = false});
  EXPECT_FALSE(run.kernel.empty()) << op << " has no kernel for this";
  return std::move(run.kernel);
}

Attrs attrs_of(const Problem& p) { return {{"scale", 0.2}, {"causal", p.causal}, {"window", p.window}}; }

// Partial results of keys [begin, end), gone on from `earlier` if there are any.
std::vector<RefTensor<float>> attend(const Problem& p, const Tensors& t, int64_t begin, int64_t end, int64_t split,
                                     const std::vector<RefTensor<float>>& earlier = {}) {
  const auto blocks = kernel_of("qkv_load", {t.q, keys_of(t.k, begin, end), keys_of(t.v, begin, end)});
  Attrs attrs = attrs_of(p);
  attrs.set("split", split);
  std::vector<Operand> inputs = {operand(blocks[0]), operand(blocks[1]), operand(blocks[2]), no_operand(),
                                 integers({1}, {p.keys - p.tokens - begin})};
  for (RefTensor<float> result : earlier) {
    result.shape.erase(result.shape.begin());
    inputs.push_back(operand(result));
  }
  return kernel_of("block_attention", std::move(inputs), std::move(attrs));
}

// Partial results one after the other on axis 0.
std::vector<RefTensor<float>> stacked(const std::vector<std::vector<RefTensor<float>>>& parts) {
  std::vector<RefTensor<float>> all = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    for (size_t k = 0; k < 3; ++k) {
      all[k].shape[0] += parts[i][k].shape[0];
      all[k].f.insert(all[k].f.end(), parts[i][k].f.begin(), parts[i][k].f.end());
    }
  }
  return all;
}

RefTensor<float> merged(const std::vector<RefTensor<float>>& parts) {
  return kernel_of("output_merge", {operand(parts[0]), operand(parts[1]), operand(parts[2])})[0];
}

RefTensor<float> whole(const Problem& p, const Tensors& t) {
  return kernel_of("flash_attention", {t.q, t.k, t.v}, attrs_of(p))[0];
}

TEST(NativeSteps, OnePartialAPartitionMergedInOrderHasTheBitsOfFlashAttention) {
  for (const std::string_view target : usable_targets()) {
    const ForcedTarget forced(target);
    for (const Problem& p : problems()) {
      const Tensors t = tensors_of(p);
      EXPECT_TRUE(same_bits(merged(attend(p, t, 0, p.keys, 128)), whole(p, t))) << p.keys << " keys, " << target;
      EXPECT_TRUE(same_bits(merged(attend(p, t, 0, p.keys, 0)), whole(p, t))) << p.keys << " keys in one, " << target;
    }
  }
}

TEST(NativeSteps, GoingOnFromEarlierKeysHasTheBitsOfFlashAttention) {
  for (const Problem& p : problems()) {
    const Tensors t = tensors_of(p);
    const auto first = attend(p, t, 0, 128, 0);
    const auto all = p.keys > 128 ? attend(p, t, 128, p.keys, 0, first) : first;
    EXPECT_TRUE(same_bits(merged(all), whole(p, t))) << p.keys << " keys";
  }
}

TEST(NativeSteps, AnySplitInAnyOrderAgrees) {
  for (const Problem& p : problems()) {
    const Tensors t = tensors_of(p);
    std::vector<std::vector<RefTensor<float>>> parts;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{100, p.keys}, {0, 37}, {37, 100}}) {
      parts.push_back(attend(p, t, begin, end, 0));
    }
    const RefTensor<float> once = merged(stacked(parts));
    std::vector<RefTensor<float>> two = stacked({parts[2], parts[0]});
    const RefTensor<float> output =
        kernel_of("output_merge", {operand(two[0]), operand(two[1]), operand(two[2])}, {{"finish", false}})[0];
    const auto statistics = kernel_of("online_softmax", {operand(two[1]), operand(two[2])});
    std::vector<RefTensor<float>> half = {output, statistics[0], statistics[1]};
    for (RefTensor<float>& result : half) result.shape.insert(result.shape.begin(), 1);
    const RefTensor<float> tree = merged(stacked({parts[1], half}));
    const RefTensor<float> expected = whole(p, t);
    double scale = 0;
    for (const float value : expected.f) scale = std::max(scale, std::abs(static_cast<double>(value)));
    for (size_t i = 0; i < expected.f.size(); ++i) {
      ASSERT_NEAR(once.f[i], expected.f[i], 1e-6 * scale) << p.keys << " keys, element " << i;
      ASSERT_NEAR(tree.f[i], expected.f[i], 1e-6 * scale) << p.keys << " keys, element " << i;
    }
  }
}

TEST(NativeSteps, ABatchOverSharedKeysHasTheBitsOfEachQueryAlone) {
  const Problem p{5, 3, 4, 2, 200, 40};
  const Problem one{1, 3, 4, 2, 200, 40};
  Tensors t = tensors_of(p);
  const Tensors shared{t.q, tensors_of(one).k, tensors_of(one).v};
  const RefTensor<float> together = merged(attend(p, shared, 0, 200, 0));
  const size_t size = together.f.size() / 5;
  for (size_t batch = 0; batch < 5; ++batch) {
    const auto first = t.q.tensor->f.begin() + static_cast<int64_t>(batch * size);
    const Operand q = activation({1, 3, 4, 40}, {first, first + static_cast<int64_t>(size)});
    const RefTensor<float> alone = whole(one, {q, shared.k, shared.v});
    EXPECT_TRUE(std::equal(alone.f.begin(), alone.f.end(), together.f.begin() + static_cast<int64_t>(batch * size)))
        << "query " << batch;
  }
}

TEST(NativeSteps, NormsOnTheWayHaveTheBitsOfTheNorms) {
  const Problem p{2, 3, 4, 2, 40, 24};
  const Tensors t = tensors_of(p);
  const Operand weight_q = values({24}, 8, 1), weight_k = values({24}, 9, 1);
  const Attrs eps{{"eps", 1e-5}};
  const auto q = kernel_of("rms_norm", {t.q, weight_q}, eps);
  const auto k = kernel_of("rms_norm", {t.k, weight_k}, eps);
  const auto apart = kernel_of("qkv_load", {operand(q[0]), operand(k[0]), t.v});
  const auto folded = kernel_of("qkv_load", {t.q, t.k, t.v, weight_q, no_operand(), weight_k},
                                {{"norm", std::string("rms")}, {"eps", 1e-5}});
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(apart[i], folded[i])) << "output " << i;
}

OpCase call(const std::string& op, std::vector<std::vector<int64_t>> shapes, Attrs attrs = {}) {
  OpCase test{.op = op, .inputs = {}, .attrs = std::move(attrs)};
  for (std::vector<int64_t>& shape : shapes) test.inputs.push_back(shape.empty() ? no_operand() : values(shape, 1, 1));
  return test;
}

TEST(NativeSteps, BadLoadsAreRefused) {
  const std::vector<int64_t> q = {2, 3, 4, 8}, k = {2, 5, 2, 8};
  expect_refused(call("qkv_load", {q, k, {2, 6, 2, 8}}), "extents of k and v");
  expect_refused(call("qkv_load", {q, {3, 5, 2, 8}, {3, 5, 2, 8}}), "batches of q and k");
  expect_refused(call("qkv_load", {q, {2, 5, 3, 8}, {2, 5, 3, 8}}), "4 query heads are not a multiple of 3 kv heads");
  expect_refused(call("qkv_load", {q, k, k}, {{"norm", std::string("batch")}}), "norm \"batch\"");
  expect_refused(call("qkv_load", {q, k, k, {8}}), "q_weight is given; norm \"none\" has none");
  expect_refused(call("qkv_load", {q, k, k, {}, {8}}, {{"norm", std::string("rms")}}), "q_bias is given");
  expect_refused(call("qkv_load", {q, k, k, {9}}, {{"norm", std::string("rms")}}), "head size");
}

TEST(NativeSteps, BadBlocksAreRefused) {
  const std::vector<int64_t> q = {2, 3, 4, 8}, k = {2, 2, 1, 8, 16}, v = {2, 2, 5, 8};
  const auto refused = [&](std::vector<std::vector<int64_t>> shapes, const std::string& part, Attrs attrs = {}) {
    attrs.set("scale", 1.0);
    expect_refused(call("block_attention", std::move(shapes), std::move(attrs)), part);
  };
  refused({q, {2, 2, 2, 8, 16}, v}, "panels of k and ceil(S / 16)");
  refused({q, {2, 2, 1, 8, 8}, v}, "keys of a panel and 16");
  refused({q, {2, 2, 1, 9, 16}, {2, 2, 5, 9}}, "head sizes of q and k");
  refused({q, {1, 2, 1, 8, 16}, v}, "batches of k and v");
  refused({q, k, v}, "split 100 must be 0 (one partial) or a multiple of 128", {{"split", int64_t{100}}});
  refused({q, k, v}, "window must be 0", {{"window", int64_t{-1}}});
  refused({q, k, v, {2, 6}}, "mask and scores");
  refused({q, k, v, {}, {2}}, "first_query must be i32");
  refused({q, k, v, {}, {}, {2, 3, 4, 8}}, "give all three or none");
  refused({q, k, v, {}, {}, {2, 3, 4, 8}, {2, 3, 4}, {2, 3, 5}}, "extents of running results and of q");
  refused({q, k, v, {}, {}, {2, 3, 4, 8}, {2, 3, 4}, {2, 3, 4}}, "split must be 0", {{"split", int64_t{128}}});
}

TEST(NativeSteps, BadMergesAreRefused) {
  expect_refused(call("online_softmax", {{2, 3}, {2, 4}}), "extents of max and sum");
  expect_refused(call("output_merge", {{2, 3, 8}, {2, 4}, {2, 4}}), "extents of output and max");
  expect_refused(call("output_merge", {{2, 3, 8}, {2}, {2}}), "must have rank 2");
}

}  // namespace
}  // namespace atb::testing
