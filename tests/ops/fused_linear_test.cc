// SPDX-License-Identifier: Apache-2.0
// fused_linear and the norm of fused_gate_up: the very bits of the same steps as operators of their own, strides, a
// residual that the output is written over, and what is refused.
#include <gtest/gtest.h>

#include <string>

#include "ops/error_text.h"
#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

constexpr const char* kFormats[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"};

Operand result_of(OpCase test) {
  test.with_reference = false;
  OpRun run = run_op(test);
  EXPECT_FALSE(run.kernel.empty()) << test.op << " has no kernel";
  return {std::move(run.kernel.at(0)), nullptr};
}

struct Parts {
  Operand x, weight, bias = no_operand();
  std::string norm = "none";
  std::string activation = "none";
  Operand norm_weight = no_operand(), norm_bias = no_operand(), residual = no_operand();
  Precision precision = Precision::kExact;
};

Operand activated(const std::string& name, const Operand& x) {
  if (name == "none") return x;
  OpCase test{.op = name.substr(0, name.find('_')), .inputs = {x}};
  if (test.op == "gelu") test.attrs.set("approximate", name.substr(5));
  return result_of(test);
}

// Norm, linear, activation and add as kernels of their own.
Operand in_steps(const Parts& p) {
  Operand x = p.x;
  if (p.norm == "rms") {
    x = result_of({.op = "rms_norm", .inputs = {x, p.norm_weight}, .attrs = {{"eps", 1e-5}}});
  } else if (p.norm == "layer") {
    x = result_of({.op = "layer_norm", .inputs = {x, p.norm_weight, p.norm_bias}, .attrs = {{"eps", 1e-5}}});
  }
  Operand out = result_of({.op = "linear", .inputs = {x, p.weight, p.bias}, .precision = p.precision});
  out = activated(p.activation, out);
  return p.residual.absent() ? out : result_of({.op = "add", .inputs = {p.residual, out}});
}

OpCase folded(const Parts& p, int64_t features) {
  return {.op = "fused_linear",
          .inputs = {p.x, p.weight, p.bias, p.norm_weight, p.norm_bias, p.residual},
          .attrs = {{"splits", std::vector<int64_t>{features}},
                    {"norm", p.norm},
                    {"eps", 1e-5},
                    {"activation", p.activation}},
          .precision = p.precision};
}

// Every part alone and with the others, in every format, at rows on every way through the kernel. run_op also runs it
// with its units split in several ways, and in place.
TEST(FusedLinearTest, HasTheBitsOfItsStepsAsOperators) {
  constexpr int64_t kTerms = 1696;  // ten rows are more than a worker normalizes for itself
  constexpr int64_t kFeatures = 43;
  for (const std::string_view target : usable_targets()) {
    const ForcedTarget forced(target);
    for (const std::string format : kFormats) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        if (precision == Precision::kFast && format[0] != 'q') continue;
        const Operand w = weight_as(format, {kFeatures, kTerms}, random_values(kFeatures * kTerms, 5));
        int turn = 0;
        for (const int64_t rows : {1, 3, 9, 10, 16, 17, 40}) {
          for (const std::string norm : {"none", "rms", "layer"}) {
            Parts parts{.x = activation({rows, kTerms}, random_values(rows * kTerms, 7, 3.0f)), .weight = w};
            parts.precision = precision;
            parts.norm = norm;
            if (norm != "none") parts.norm_weight = weight({kTerms}, random_values(kTerms, 8));
            if (norm == "layer" && turn % 2 == 0) parts.norm_bias = weight({kTerms}, random_values(kTerms, 9));
            if (turn % 3 != 0) parts.bias = weight({kFeatures}, random_values(kFeatures, 10));
            if (norm == "none" || turn % 4 != 0) {
              parts.residual = activation({rows, kFeatures}, random_values(rows * kFeatures, 11, 9.0f));
            }
            const std::string activations[] = {"none", "silu", "gelu_none", "gelu_tanh", "relu"};
            parts.activation = activations[turn % 5];
            ++turn;
            const Operand steps = in_steps(parts);
            EXPECT_TRUE(same_bits(*steps.tensor, *result_of(folded(parts, kFeatures)).tensor))
                << target << " " << format << (precision == Precision::kFast ? " fast " : " exact ") << rows
                << " rows, norm " << norm;
          }
        }
      }
    }
  }
}

TEST(FusedLinearTest, EachSplitHasTheBitsOfItsLinear) {
  const std::vector<int64_t> splits = {20, 7, 37};
  for (const int64_t rows : {1, 5, 30}) {
    Parts parts{.x = activation({rows, 64}, random_values(rows * 64, 1)),
                .weight = weight({64, 64}, random_values(64 * 64, 2)),
                .bias = weight({64}, random_values(64, 3)),
                .norm = "rms",
                .norm_weight = weight({64}, random_values(64, 4))};
    const Operand whole = in_steps(parts);
    OpCase test = folded(parts, 64);
    test.attrs.set("splits", splits);
    const OpRun run = run_op(test);
    ASSERT_EQ(run.kernel.size(), splits.size());
    size_t column = 0;
    for (size_t i = 0; i < splits.size(); ++i) {
      const auto width = static_cast<size_t>(splits[i]);
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        EXPECT_EQ(0, std::memcmp(run.kernel[i].f.data() + row * width, whole.tensor->f.data() + row * 64 + column,
                                 width * sizeof(float)))
            << "output " << i << " row " << row;
      }
      column += width;
    }
  }
}

TEST(FusedGateUpTest, ANormHasTheBitsOfItsOperator) {
  for (const std::string format : kFormats) {
    for (const Precision precision : {Precision::kExact, Precision::kFast}) {
      for (const int64_t rows : {1, 4, 16, 33}) {
        const Operand x = activation({rows, 64}, random_values(rows * 64, 8));
        const Operand vector = weight({64}, random_values(64, 4));
        OpCase test{.op = "fused_gate_up",
                    .inputs = {x, weight_as(format, {42, 64}, random_values(42 * 64, 9)), no_operand(), vector},
                    .attrs = {{"activation", std::string("silu")}, {"norm", std::string("rms")}, {"eps", 1e-5}},
                    .precision = precision};
        const Operand with_norm = result_of(test);
        test.inputs = {result_of({.op = "rms_norm", .inputs = {x, vector}, .attrs = {{"eps", 1e-5}}}), test.inputs[1]};
        test.attrs = {{"activation", std::string("silu")}};
        EXPECT_TRUE(same_bits(*with_norm.tensor, *result_of(test).tensor)) << format << " rows " << rows;
      }
    }
  }
}

// Runs a kernel of a one-node graph on these views, all phases in one piece.
void run_on(const Kernel& kernel, std::span<const TensorView> inputs, std::span<const TensorView> outputs) {
  Call call{inputs, outputs, {}, nullptr};
  std::vector<std::byte> scratch(kernel.scratch_bytes(call) + 64);
  std::vector<std::byte> worker(kernel.worker_scratch_bytes(call) + 64);
  call.scratch = scratch.data();
  for (int phase = 0; phase < kernel.phases(); ++phase) {
    kernel.run(call, phase, 0, kernel.units(call, phase), worker.data());
  }
}

// Rows of x, residual and output apart in memory; the output over the residual.
TEST(FusedLinearTest, StridedOperandsAndAResidualInPlace) {
  constexpr int64_t kTerms = 32;
  constexpr int64_t kFeatures = 20;
  Parts parts{.x = activation({2, 10, kTerms}, random_values(20 * kTerms, 3)),
              .weight = weight({kFeatures, kTerms}, random_values(kFeatures * kTerms, 4)),
              .norm = "layer",
              .norm_weight = weight({kTerms}, random_values(kTerms, 5)),
              .residual = activation({2, 10, kFeatures}, random_values(20 * kFeatures, 6))};
  const OpCase test = folded(parts, kFeatures);
  const Operand dense = result_of(test);
  Graph graph;
  const Node* node = build_op_graph(graph, test);
  PackedStore store;
  const auto kernel = make_case_kernel(test, *node, store);
  std::vector<float> x(2 * 1000);
  std::vector<float> sums(2 * 500, -1.0f);  // residual, then output
  for (size_t row = 0; row < 20; ++row) {
    std::copy_n(parts.x.tensor->f.data() + row * kTerms, kTerms, x.data() + row / 10 * 1000 + row % 10 * 40);
    std::copy_n(parts.residual.tensor->f.data() + row * kFeatures, kFeatures,
                sums.data() + row / 10 * 500 + row % 10 * 24);
  }
  const std::array<int64_t, 3> x_shape{2, 10, kTerms};
  const std::array<int64_t, 3> out_shape{2, 10, kFeatures};
  TensorView x_view = TensorView::dense(reinterpret_cast<std::byte*>(x.data()), DType::kF32, x_shape);
  TensorView out_view = TensorView::dense(reinterpret_cast<std::byte*>(sums.data()), DType::kF32, out_shape);
  x_view.stride = {1000, 40, 1};
  out_view.stride = {500, 24, 1};
  run_on(*kernel, std::array<TensorView, 6>{x_view, {}, {}, {}, {}, out_view}, std::array<TensorView, 1>{out_view});
  for (size_t row = 0; row < 20; ++row) {
    const float* got = sums.data() + row / 10 * 500 + row % 10 * 24;
    EXPECT_EQ(0, std::memcmp(got, dense.tensor->f.data() + row * kFeatures, kFeatures * sizeof(float))) << row;
    EXPECT_EQ(-1.0f, got[kFeatures]);
  }
}

TEST(FusedLinearTest, BadCallsAreRefused) {
  Parts parts{.x = activation({2, 8}, random_values(16, 1)), .weight = weight({5, 8}, random_values(40, 2))};
  const Operand vector = weight({8}, random_values(8, 3));
  OpCase test = folded(parts, 4);
  expect_refused(test, "the sum of splits and the rows of w");
  test = folded(parts, 5);
  test.attrs.set("activation", std::string("tanh"));
  expect_refused(test, "activation \"tanh\": use none, silu, gelu_none, gelu_tanh or relu");
  test = folded(parts, 5);
  test.attrs.set("norm", std::string("batch"));
  expect_refused(test, "norm \"batch\": use none, rms or layer");

  parts.norm_weight = vector;
  expect_refused(folded(parts, 5), "norm is none: leave out norm_weight");
  parts.norm = "rms";
  parts.norm_bias = vector;
  expect_refused(folded(parts, 5), "an rms norm has a norm_weight and no norm_bias");
  parts.norm_weight = weight({7}, random_values(7, 3));
  parts.norm_bias = no_operand();
  expect_refused(folded(parts, 5), "the weight and the last extent of x");

  parts.norm_weight = vector;
  parts.residual = activation({1, 5}, random_values(5, 4));
  expect_refused(folded(parts, 5), "the residual is f32[1, 5], the output f32[2, 5]: they must be of one type");
  parts.residual = activation({2, 5}, random_values(10, 4));
  test = folded(parts, 5);
  test.attrs.set("splits", std::vector<int64_t>{2, 3});
  expect_refused(test, "a residual needs one output, not 2");
}

}  // namespace
}  // namespace atb::testing
