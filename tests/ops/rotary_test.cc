// SPDX-License-Identifier: Apache-2.0
// rotary_table, rotary, rotary_embedding and rotary_kv_append.
#include <gtest/gtest.h>

#include "ops/attention_rig.h"

namespace atb::testing {
namespace {

std::vector<float> inverse_frequencies(int64_t half, double theta) {
  std::vector<float> values;
  for (int64_t i = 0; i < half; ++i) {
    values.push_back(static_cast<float>(std::pow(theta, -static_cast<double>(i) / static_cast<double>(half))));
  }
  return values;
}

std::vector<int64_t> counting(int64_t n, int64_t first = 0) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(first + i);
  return values;
}

TEST(RotaryTable, IsTheCosineAndSineOfTheF32Angle) {
  const std::vector<float> inv_freq = inverse_frequencies(32, 100000);
  for (const double scale : {1.0, 1.25}) {
    const OpRun run = run_op({.op = "rotary_table",
                              .inputs = {integers({2, 50}, counting(100, 1990)), weight({32}, inv_freq)},
                              .attrs = {{"scale", scale}}});
    ASSERT_EQ(run.kernel.size(), 2u);
    EXPECT_LT(max_error(run.kernel[0], run.f64[0]), 2e-7);
    EXPECT_LT(max_error(run.kernel[1], run.f64[1]), 2e-7);
    const float angle = 2000.0f * inv_freq[1];
    const float expected = static_cast<float>(std::cos(static_cast<double>(angle))) * static_cast<float>(scale);
    EXPECT_EQ(run.kernel[0].f[10 * 32 + 1], expected);
  }
}

TEST(RotaryTable, TakesPositionsOfBothWidthsAndAnActivationOfFrequencies) {
  const std::vector<float> inv_freq = inverse_frequencies(3, 10000);
  const auto table = [&](DType dtype, const Operand& frequencies) {
    return run_op({.op = "rotary_table", .inputs = {integers({7}, counting(7), dtype), frequencies}}).kernel[1];
  };
  const RefTensor<float> expected = table(DType::kI32, weight({3}, inv_freq));
  EXPECT_TRUE(same_bits(table(DType::kI64, weight({3}, inv_freq)), expected));
  EXPECT_TRUE(same_bits(table(DType::kI32, activation({3}, inv_freq)), expected));
}

struct RotaryShape {
  std::vector<int64_t> x;      // [..., T, H, D]
  std::vector<int64_t> table;  // [..., T, R/2]
};

std::vector<RotaryShape> rotary_shapes() {
  return {{{5, 3, 64}, {5, 32}}, {{2, 5, 3, 64}, {5, 32}}, {{2, 5, 3, 64}, {2, 5, 32}}, {{4, 1, 80}, {4, 16}},
          {{3, 2, 2}, {3, 1}},   {{6, 2, 50}, {6, 25}},    {{1, 7, 128}, {1, 64}},      {{0, 3, 64}, {0, 32}},
          {{3, 2, 7}, {3, 3}},   {{2, 2, 8}, {2, 0}},      {{9, 4, 34}, {9, 17}}};
}

int64_t size_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

TEST(Rotary, MatchesTheInterpreterBitForBitInF32) {
  for (const std::string_view target : usable_targets()) {
    const ForcedTarget forced(target);
    for (const RotaryShape& shape : rotary_shapes()) {
      for (const bool interleaved : {false, true}) {
        const OpRun run = run_op({.op = "rotary",
                                  .inputs = {activation(shape.x, random_values(size_of(shape.x), 1)),
                                             activation(shape.table, random_values(size_of(shape.table), 2)),
                                             activation(shape.table, random_values(size_of(shape.table), 3))},
                                  .attrs = {{"interleaved", interleaved}},
                                  .misalign = 4});
        ASSERT_EQ(run.kernel.size(), 1u);
        EXPECT_TRUE(same_bits(run.kernel[0], run.f32[0])) << run.variant << " of D " << shape.x.back();
      }
    }
  }
}

TEST(RotaryEmbedding, IsRotaryOfBoth) {
  const std::vector<float> q = random_values(5 * 4 * 24, 1);
  const std::vector<float> k = random_values(5 * 2 * 24, 2);
  const Operand cos = activation({5, 8}, random_values(40, 3));
  const Operand sin = activation({5, 8}, random_values(40, 4));
  for (const bool interleaved : {false, true}) {
    const Attrs attrs{{"interleaved", interleaved}};
    const OpRun both = run_op({.op = "rotary_embedding",
                               .inputs = {activation({5, 4, 24}, q), activation({5, 2, 24}, k), cos, sin},
                               .attrs = attrs});
    const OpRun first = run_op({.op = "rotary", .inputs = {activation({5, 4, 24}, q), cos, sin}, .attrs = attrs});
    const OpRun second = run_op({.op = "rotary", .inputs = {activation({5, 2, 24}, k), cos, sin}, .attrs = attrs});
    ASSERT_EQ(both.kernel.size(), 2u);
    EXPECT_TRUE(same_bits(both.kernel[0], first.kernel[0]));
    EXPECT_TRUE(same_bits(both.kernel[1], second.kernel[0]));
    EXPECT_TRUE(same_bits(both.kernel[1], both.f32[1]));
  }
}

TEST(Rotary, RefusesTablesThatDoNotFit) {
  const auto make = [](std::vector<int64_t> x, std::vector<int64_t> cos, std::vector<int64_t> sin) {
    Graph graph;
    build_op_graph(
        graph, {.op = "rotary",
                .inputs = {activation(x, random_values(size_of(x), 1)), activation(cos, random_values(size_of(cos), 2)),
                           activation(sin, random_values(size_of(sin), 3))}});
  };
  EXPECT_NO_THROW(make({5, 2, 16}, {5, 8}, {5, 8}));
  EXPECT_THROW(make({5, 2, 16}, {5, 9}, {5, 9}), Error);        // more than the head
  EXPECT_THROW(make({5, 2, 16}, {4, 8}, {4, 8}), Error);        // other tokens
  EXPECT_THROW(make({5, 2, 16}, {5, 8}, {5, 7}), Error);        // cos and sin differ
  EXPECT_THROW(make({5, 2, 16}, {2, 5, 8}, {2, 5, 8}), Error);  // a batch that x lacks
}

// What a step stores, by the fused operator and by rotary and kv_append one after the other.
class RotaryKvAppend : public ::testing::TestWithParam<std::tuple<DType, bool>> {};

TEST_P(RotaryKvAppend, StoresTheSameBitsAsItsParts) {
  const auto [dtype, interleaved] = GetParam();
  const KvLayout layout{dtype, 2, 2, 24, 32};
  const int64_t rows = 43;  // two sequences: 40 rows from position 5 on, and 3 from 31 on
  const Operand cos = activation({rows, 10}, random_values(rows * 10, 1));
  const Operand sin = activation({rows, 10}, random_values(rows * 10, 2));
  const Operand q = activation({rows, 4, 24}, random_values(rows * 96, 3));
  const Operand k = activation({rows, 2, 24}, random_values(rows * 48, 4));
  const Operand v = activation({rows, 2, 24}, random_values(rows * 48, 5));
  const Attrs rotation{{"interleaved", interleaved}};
  const auto steps = [](const CachedSequence& a, const CachedSequence& b) {
    return std::vector<SequenceStep>{{0, 40, 5, a.blocks()}, {40, 3, 31, b.blocks()}};
  };
  CachedSequence a(layout, 64), b(layout, 64), c(layout, 64), d(layout, 64);
  const OpRun fused = run_op({.op = "rotary_kv_append",
                              .inputs = {q, k, v, cos, sin, state()},
                              .attrs = {{"interleaved", interleaved}, {"slot", int64_t{1}}},
                              .kv = &layout,
                              .sequences = steps(a, b),
                              .with_reference = false});
  const OpRun rotated_q = run_op({.op = "rotary", .inputs = {q, cos, sin}, .attrs = rotation});
  const OpRun rotated_k = run_op({.op = "rotary", .inputs = {k, cos, sin}, .attrs = rotation});
  run_op({.op = "kv_append",
          .inputs = {activation({rows, 2, 24}, rotated_k.kernel[0].f), v, state()},
          .attrs = {{"slot", int64_t{1}}},
          .kv = &layout,
          .sequences = steps(c, d),
          .with_reference = false});
  EXPECT_TRUE(same_bits(fused.kernel[0], rotated_q.kernel[0]));
  for (int block = 0; block < 2; ++block) {
    EXPECT_EQ(std::memcmp(a.blocks()[block], c.blocks()[block], layout.block_bytes()), 0);
    EXPECT_EQ(std::memcmp(b.blocks()[block], d.blocks()[block], layout.block_bytes()), 0);
  }
  EXPECT_TRUE(a.intact() && b.intact());
  // Position 5 of the first sequence is row 0: its value row, and its keys down their panel.
  const std::byte* slot = a.blocks()[0] + layout.slot_bytes();
  const auto stored = [&](size_t offset, int64_t at) {
    if (dtype == DType::kF32) return reinterpret_cast<const float*>(slot + offset)[at];
    return bf16_to_f32(reinterpret_cast<const uint16_t*>(slot + offset)[at]);
  };
  const auto rounded = [&, type = dtype](float value) {
    return type == DType::kF32 ? value : bf16_to_f32(f32_to_bf16(value));
  };
  for (int64_t i = 0; i < 24; ++i) {
    const size_t at = static_cast<size_t>(24 + i);  // head 1
    EXPECT_EQ(stored(layout.v_row(1, 5), i), rounded(v.tensor->f[at]));
    EXPECT_EQ(stored(layout.k_panel(1, 0), i * 16 + 5), rounded(rotated_k.kernel[0].f[at]));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RotaryKvAppend,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16), ::testing::Bool()));

}  // namespace
}  // namespace atb::testing
