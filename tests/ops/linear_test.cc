// SPDX-License-Identifier: Apache-2.0
// linear, merged_matmul and fused_gate_up beyond the table of cases: strides, zero extents, bad values, merged and
// gated products against plain ones.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/target.h"
#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

constexpr const char* kFormats[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"};

Operand weight_as(const std::string& format, int64_t n, int64_t k, uint32_t seed) {
  return testing::weight_as(format, {n, k}, random_values(n * k, seed));
}

bool is_encoded(const std::string& format) { return format[0] == 'q'; }

// Row i of `all` (of the first output) as a run of that row alone gives it.
void expect_rows_equal(OpCase test, const RefTensor<float>& all) {
  const RefTensor<float> x = *test.inputs[0].tensor;
  const int64_t rows = x.shape[0];
  const int64_t k = x.shape[1];
  const int64_t n = all.shape[1];
  test.with_reference = false;
  for (int64_t row = 0; row < rows; row += std::max<int64_t>(1, rows / 5)) {
    const auto begin = x.f.begin() + row * k;
    test.inputs[0] = activation({1, k}, std::vector<float>(begin, begin + k));
    const OpRun one = run_op(test);
    EXPECT_EQ(0, std::memcmp(one.kernel[0].f.data(), all.f.data() + row * n, static_cast<size_t>(n) * sizeof(float)))
        << "row " << row << " of " << rows;
  }
}

TEST(LinearTest, VariantsSayWhatRuns) {
  for (const std::string_view target : usable_targets()) {
    const ForcedTarget forced(target);
    for (const std::string format : kFormats) {
      for (const int64_t rows : {1, 3}) {
        for (const Precision precision : {Precision::kExact, Precision::kFast}) {
          const OpRun run =
              run_op({.op = "linear",
                      .inputs = {activation({rows, 64}, random_values(rows * 64, 7)), weight_as(format, 9, 64, 5)},
                      .precision = precision,
                      .with_reference = false});
          const bool int8 = precision == Precision::kFast && is_encoded(format);
          EXPECT_EQ(int8, run.variant.find("/int8/") != std::string::npos) << run.variant;
          EXPECT_EQ(rows == 1, run.variant.find("/rows1/") != std::string::npos) << run.variant;
          EXPECT_NE(std::string::npos, run.variant.find(target)) << run.variant;
        }
      }
    }
  }
}

TEST(LinearTest, LeadingDimensionsAndZeroExtents) {
  OpCase test{.op = "linear", .inputs = {activation({2, 3, 16}, random_values(96, 1)), weight_as("f32", 5, 16, 2)}};
  const OpRun run = run_op(test);
  EXPECT_EQ((std::vector<int64_t>{2, 3, 5}), run.kernel[0].shape);
  EXPECT_LT(max_error(run.kernel[0], run.f64[0]), 1e-6);

  test.inputs[0] = activation({0, 16}, {});
  EXPECT_EQ((std::vector<int64_t>{0, 5}), run_op(test).kernel[0].shape);

  test.inputs = {activation({16}, random_values(16, 1)), test.inputs[1]};
  const OpRun vector = run_op(test);
  EXPECT_EQ((std::vector<int64_t>{5}), vector.kernel[0].shape);
  EXPECT_LT(max_error(vector.kernel[0], vector.f64[0]), 1e-6);

  // No terms: the bias alone.
  for (const int64_t rows : {2, 20}) {
    test.inputs = {activation({rows, 0}, {}), weight({3, 0}, {}), weight({3}, {1, 2, 3})};
    const OpRun empty = run_op(test);
    for (size_t i = 0; i < empty.kernel[0].f.size(); ++i)
      EXPECT_EQ(static_cast<float>(i % 3 + 1), empty.kernel[0].f[i]);
  }
}

// Rows apart in memory, and leading axes that do not collapse into one stride.
TEST(LinearTest, StridedInputsAndOutputs) {
  Graph graph;
  OpCase test{.op = "linear", .inputs = {activation({2, 10, 32}, random_values(640, 3)), weight_as("q4_1", 20, 32, 4)}};
  const Node* node = build_op_graph(graph, test);
  for (const Precision precision : {Precision::kExact, Precision::kFast}) {
    test.precision = precision;
    const OpRun dense = run_op(test);
    PackedStore store;
    const auto kernel = node->op().make_cpu_kernel({*node, store, precision, nullptr});
    std::vector<float> x(2 * 1000);
    std::vector<float> out(2 * 500, -1.0f);
    for (size_t row = 0; row < 20; ++row) {
      std::copy_n(test.inputs[0].tensor->f.data() + row * 32, 32, x.data() + row / 10 * 1000 + row % 10 * 40);
    }
    const std::array<int64_t, 3> x_shape{2, 10, 32};
    const std::array<int64_t, 3> out_shape{2, 10, 20};
    std::vector<TensorView> inputs{TensorView::dense(reinterpret_cast<std::byte*>(x.data()), DType::kF32, x_shape), {}};
    std::vector<TensorView> outputs{
        TensorView::dense(reinterpret_cast<std::byte*>(out.data()), DType::kF32, out_shape)};
    inputs[0].stride = {1000, 40, 1};
    outputs[0].stride = {500, 24, 1};
    Call call{inputs, outputs, {}, nullptr};
    std::vector<std::byte> scratch(kernel->scratch_bytes(call) + 64);
    std::vector<std::byte> worker(kernel->worker_scratch_bytes(call) + 64);
    call.scratch = scratch.data();
    for (int phase = 0; phase < kernel->phases(); ++phase) {
      kernel->run(call, phase, 0, kernel->units(call, phase), worker.data());
    }
    for (size_t row = 0; row < 20; ++row) {
      const float* got = out.data() + row / 10 * 500 + row % 10 * 24;
      EXPECT_EQ(0, std::memcmp(got, dense.kernel[0].f.data() + row * 20, 20 * sizeof(float))) << row;
      EXPECT_EQ(-1.0f, got[20]);
    }
  }
}

void expect_all(const OpRun& run, bool (*holds)(float)) {
  ASSERT_FALSE(run.kernel.empty());
  for (const float value : run.kernel[0].f) EXPECT_TRUE(holds(value)) << value;
}

TEST(LinearTest, ZeroBlocksAndBadValuesInFastPrecision) {
  for (const std::string format : {"q8_0", "q4_0", "q4_1"}) {
    OpCase test{.op = "linear", .inputs = {no_operand(), weight_as(format, 20, 64, 1)}, .precision = Precision::kFast};
    test.with_reference = false;
    test.inputs[0] = activation({1, 64}, std::vector<float>(64, 0.0f));
    expect_all(run_op(test), [](float value) { return value == 0.0f; });
    test.inputs[0] = activation({1, 64}, std::vector<float>(64, 1e-38f));
    expect_all(run_op(test), [](float value) { return value == 0.0f; });
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      std::vector<float> x = random_values(64, 2);
      x[3] = bad;
      test.inputs[0] = activation({1, 64}, x);
      expect_all(run_op(test), [](float value) { return std::isnan(value); });
    }
  }
}

TEST(LinearTest, PermutedAndConcatenatedWeights) {
  const ConstantRef first = weight_as("q8_0", 20, 64, 1).constant;
  std::vector<int32_t> map(20);
  for (int32_t i = 0; i < 20; ++i) map[static_cast<size_t>(i)] = 19 - i;
  const ConstantRef both = Constant::concat_rows("both", {first, Constant::permute_rows(first, map)});
  const OpRun run = run_op({.op = "linear", .inputs = {activation({3, 64}, random_values(192, 3)), constant(both)}});
  EXPECT_LT(max_error(run.kernel[0], run.f64[0]), 1e-6);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(run.kernel[0].f[i], run.kernel[0].f[39 - i]);
}

TEST(MergedMatmulTest, EachOutputEqualsItsLinear) {
  for (const std::string format : kFormats) {
    for (const int64_t rows : {1, 5, 14, 40}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        const std::vector<int64_t> splits = {20, 7, 37};
        const Operand w = weight_as(format, 64, 64, 9);
        const Operand bias = weight({64}, random_values(64, 10));
        OpCase test{.op = "merged_matmul",
                    .inputs = {activation({rows, 64}, random_values(rows * 64, 8)), w, bias},
                    .attrs = {{"splits", splits}},
                    .precision = precision};
        const OpRun merged = run_op(test);
        ASSERT_EQ(3u, merged.kernel.size());
        test.op = "linear";
        test.attrs = {};
        const OpRun whole = run_op(test);
        int64_t column = 0;
        for (size_t i = 0; i < splits.size(); ++i) {
          if (precision == Precision::kExact) {
            EXPECT_LT(max_error(merged.kernel[i], merged.f64[i]), 3e-6);
          }
          for (int64_t row = 0; row < rows; ++row) {
            EXPECT_EQ(0, std::memcmp(merged.kernel[i].f.data() + row * splits[i],
                                     whole.kernel[0].f.data() + row * 64 + column,
                                     static_cast<size_t>(splits[i]) * sizeof(float)))
                << format << " output " << i << " row " << row;
          }
          column += splits[i];
        }
      }
    }
  }
}

TEST(FusedGateUpTest, FastPrecisionOfEncodedWeights) {
  for (const std::string format : {"q8_0", "q4_0", "q4_1"}) {
    for (const int64_t rows : {1, 2, 5, 20}) {
      OpCase test{.op = "fused_gate_up",
                  .inputs = {activation({rows, 64}, random_values(rows * 64, 8)), weight_as(format, 100, 64, 9)},
                  .attrs = {{"activation", std::string("silu")}},
                  .precision = Precision::kFast};
      const OpRun run = run_op(test);
      EXPECT_NE(std::string::npos, run.variant.find("/int8/"));
      EXPECT_LT(max_error(run.kernel[0], run.f64[0]), 0.03);
      if (rows > 1) expect_rows_equal(test, run.kernel[0]);
    }
  }
}

TEST(FusedGateUpTest, BadCallsAreRefused) {
  const Operand x = activation({1, 32}, random_values(32, 1));
  const auto build = [&](const Operand& w, Attrs attrs) {
    Graph graph;
    build_op_graph(graph, {.op = "fused_gate_up", .inputs = {x, w}, .attrs = std::move(attrs)});
  };
  EXPECT_THROW(build(weight_as("f32", 7, 32, 1), {{"activation", std::string("silu")}}), Error);
  EXPECT_THROW(build(weight_as("f32", 8, 16, 1), {{"activation", std::string("silu")}}), Error);
  EXPECT_THROW(build(weight_as("f32", 8, 32, 1), {{"activation", std::string("tanh")}}), Error);
}

}  // namespace
}  // namespace atb::testing
