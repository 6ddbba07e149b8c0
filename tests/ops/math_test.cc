// SPDX-License-Identifier: Apache-2.0
// Functions of one and two operands, comparisons and connectives: hand-worked values, extremes and messages.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/error_text.h"
#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kLowest32 = std::numeric_limits<int32_t>::min();
constexpr int64_t kLowest64 = std::numeric_limits<int64_t>::min();

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

Operand vector(Floats values) {
  const auto n = static_cast<int64_t>(values.size());
  return activation({n}, std::move(values));
}
Operand vector(DType dtype, Ints values) {
  const auto n = static_cast<int64_t>(values.size());
  return integers({n}, std::move(values), dtype);
}

// The kernel's result, which must have the bits of the reference.
RefTensor<float> result(const std::string& op, std::vector<Operand> operands) {
  const OpRun run = run_op({.op = op, .inputs = std::move(operands)});
  if (run.kernel.empty()) {
    ADD_FAILURE() << op << " has no kernel here";
    return run.f32[0];
  }
  EXPECT_TRUE(same_bits(run.kernel[0], run.f32[0])) << op;
  return run.kernel[0];
}

Floats floats(const std::string& op, Floats a) { return result(op, {vector(std::move(a))}).f; }
Floats floats(const std::string& op, Floats a, Floats b) {
  return result(op, {vector(std::move(a)), vector(std::move(b))}).f;
}
Ints ints(const std::string& op, DType dtype, Ints a, Ints b) {
  return result(op, {vector(dtype, std::move(a)), vector(dtype, std::move(b))}).i;
}

TEST(UnaryMath, KnownValues) {
  const auto value = [](const char* op, float x) {
    return run_op({.op = op, .inputs = {activation({1}, {x})}}).f64[0].f[0];
  };
  EXPECT_NEAR(value("exp", 1), 2.718281828459045, 1e-15);
  EXPECT_NEAR(value("log", 2), 0.6931471805599453, 1e-15);
  EXPECT_NEAR(value("sqrt", 2), 1.4142135623730951, 1e-15);
  EXPECT_EQ(value("rsqrt", 4), 0.5);
  EXPECT_EQ(value("reciprocal", -4), -0.25);
  EXPECT_NEAR(value("sin", 1), 0.8414709848078965, 1e-15);
  EXPECT_NEAR(value("cos", 1), 0.5403023058681398, 1e-15);
  EXPECT_NEAR(value("tanh", 0.5), 0.46211715726000973, 1e-15);
  EXPECT_NEAR(value("sigmoid", 1), 0.7310585786300049, 1e-15);
  EXPECT_NEAR(value("erf", 0.5), 0.5204998778130465, 1e-15);
}

TEST(UnaryMath, Extremes) {
  EXPECT_EQ(floats("exp", {-kInf, kInf, 0, -0.0f}), (Floats{0, kInf, 1, 1}));
  EXPECT_EQ(floats("sigmoid", {-kInf, kInf, -200, 200}), (Floats{0, 1, 0, 1}));
  EXPECT_EQ(floats("tanh", {-kInf, kInf, -50, 50}), (Floats{-1, 1, -1, 1}));
  EXPECT_EQ(floats("log", {0, 1}), (Floats{-kInf, 0}));
  EXPECT_EQ(floats("reciprocal", {0, -0.0f, kInf}), (Floats{kInf, -kInf, 0}));
  EXPECT_TRUE(std::isnan(floats("sqrt", {-1})[0]));
  EXPECT_TRUE(std::isnan(floats("log", {-1})[0]));
}

TEST(UnaryMath, SignsOfIntegersWrapAround) {
  EXPECT_EQ(result("neg", {vector(DType::kI32, {1, -2, kLowest32})}).i, (Ints{-1, 2, kLowest32}));
  EXPECT_EQ(result("abs", {vector(DType::kI64, {1, -2, kLowest64})}).i, (Ints{1, 2, kLowest64}));
  const Floats negated = floats("neg", {0, -1});
  EXPECT_TRUE(std::signbit(negated[0]));
  EXPECT_EQ(negated[1], 1);
}

TEST(UnaryMath, OtherDtypesAreRefused) {
  expect_refused({.op = "exp", .inputs = {vector(DType::kI64, {1})}}, "x (%in0: i64[1]) must be a float tensor");
  expect_refused({.op = "neg", .inputs = {vector(DType::kBool, {1})}}, "no arithmetic on bool[1]");
}

TEST(BinaryMath, SignsOfDivisionAreThoseOfPython) {
  const Ints a{7, -7, 7, -7, 6, -6, 0};
  const Ints b{2, 2, -2, -2, 3, 3, 5};
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    EXPECT_EQ(ints("floor_divide", dtype, a, b), (Ints{3, -4, -4, 3, 2, -2, 0}));
    EXPECT_EQ(ints("remainder", dtype, a, b), (Ints{1, 1, -1, -1, 0, 0, 0}));
  }
  EXPECT_EQ(floats("floor_divide", {7, -7, 7, -7, 6.5f}, {2, 2, -2, -2, 0.5f}), (Floats{3, -4, -4, 3, 13}));
  EXPECT_EQ(floats("remainder", {7, -7, 7, -7, 6.5f}, {2, 2, -2, -2, 0.5f}), (Floats{1, 1, -1, -1, 0}));
}

TEST(BinaryMath, DivisionAtTheEdges) {
  EXPECT_EQ(ints("floor_divide", DType::kI32, {kLowest32}, {-1}), (Ints{kLowest32}));
  EXPECT_EQ(ints("floor_divide", DType::kI64, {kLowest64}, {-1}), (Ints{kLowest64}));
  EXPECT_EQ(ints("remainder", DType::kI64, {kLowest64}, {-1}), (Ints{0}));
  EXPECT_EQ(floats("floor_divide", {1, -1, -5}, {0, 0, kInf}), (Floats{kInf, -kInf, -1}));
  EXPECT_EQ(floats("floor_divide", {1e10f}, {1}), (Floats{1e10f}));
  EXPECT_TRUE(std::isnan(floats("remainder", {1}, {0})[0]));
}

// A program must not stop on a division by zero: the kernel reports it, the reference throws.
TEST(BinaryMath, IntegersByZeroFailTheStep) {
  for (const char* op : {"floor_divide", "remainder"}) {
    for (const DType dtype : {DType::kI32, DType::kI64}) {
      const OpCase test{.op = op, .inputs = {vector(dtype, {4, 5, 6}), vector(dtype, {2, 0, 4})}};
      EXPECT_THROW(run_op(test), Error);
      Graph graph;
      const Node* node = build_op_graph(graph, test);
      PackedStore store;
      const std::unique_ptr<Kernel> kernel = make_case_kernel(test, *node, store);
      KernelRun run(test, *node, *kernel);
      EXPECT_EQ(run.run({})->outputs[0].i, (op[0] == 'f' ? Ints{2, 0, 1} : Ints{0, 0, 2}));
      ASSERT_EQ(run.faults().size(), 1u);
      EXPECT_NE(run.faults()[0].find("set the fault flag"), std::string::npos);
    }
  }
}

TEST(BinaryMath, Powers) {
  EXPECT_EQ(floats("pow", {3, 2, 4, -2, 0, kInf}, {2, -1, 0.5f, 3, 0, 2}), (Floats{9, 0.5f, 2, -8, 1, kInf}));
  EXPECT_TRUE(std::isnan(floats("pow", {-2}, {0.5f})[0]));
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    EXPECT_EQ(ints("pow", dtype, {3, -2, 7, 1, -1, -1, 2, 0}, {4, 3, 0, -3, -3, -2, -1, 0}),
              (Ints{81, -8, 1, 1, -1, 1, 0, 1}));
  }
  EXPECT_EQ(ints("pow", DType::kI32, {65536}, {2}), (Ints{0}));
  EXPECT_EQ(ints("pow", DType::kI64, {65536}, {2}), (Ints{int64_t{1} << 32}));
}

TEST(BinaryMath, ExtremaKeepNan) {
  const Floats largest = floats("maximum", {1, kNan, 1, -kInf}, {2, 1, kNan, -5});
  EXPECT_EQ(largest[0], 2);
  EXPECT_TRUE(std::isnan(largest[1]));
  EXPECT_TRUE(std::isnan(largest[2]));
  EXPECT_EQ(largest[3], -5);
  const Floats smallest = floats("minimum", {1, kNan, 1}, {2, 1, kNan});
  EXPECT_EQ(smallest[0], 1);
  EXPECT_TRUE(std::isnan(smallest[1]));
  EXPECT_TRUE(std::isnan(smallest[2]));
  EXPECT_EQ(ints("maximum", DType::kBool, {0, 0, 1, 1}, {0, 1, 0, 1}), (Ints{0, 1, 1, 1}));
}

TEST(BinaryMath, KindsMustAgree) {
  expect_refused({.op = "maximum", .inputs = {vector({1}), vector(DType::kI64, {1})}},
                 "a (%in0: f32[1]) and b (%in1: i64[1]) differ in kind: cast one of them");
  expect_refused({.op = "remainder", .inputs = {vector(DType::kBool, {1}), vector(DType::kBool, {1})}},
                 "no arithmetic on bools; cast them");
  expect_refused({.op = "pow", .inputs = {vector({1, 2}), vector({1, 2, 3})}}, "extents 2 and 3 do not broadcast");
}

TEST(Compare, FloatsWithNan) {
  const Operand a = vector({1, 2, kNan, -0.0f});
  const Operand b = vector({1, 1, kNan, 0});
  EXPECT_EQ(result("less", {a, b}).i, (Ints{0, 0, 0, 0}));
  EXPECT_EQ(result("less_equal", {a, b}).i, (Ints{1, 0, 0, 1}));
  EXPECT_EQ(result("equal", {a, b}).i, (Ints{1, 0, 0, 1}));
  EXPECT_EQ(result("less", {vector({1, 2}), vector({2, 2})}).i, (Ints{1, 0}));
}

TEST(Compare, IntegersBeyondWhatFloatsHold) {
  const int64_t big = (int64_t{1} << 53) + 1;
  EXPECT_EQ(ints("equal", DType::kI64, {big, big}, {big - 1, big}), (Ints{0, 1}));
  EXPECT_EQ(ints("less", DType::kI64, {big - 1, big}, {big, big}), (Ints{1, 0}));
  EXPECT_EQ(ints("equal", DType::kBool, {0, 1, 1}, {0, 0, 1}), (Ints{1, 0, 1}));
  expect_refused({.op = "equal", .inputs = {vector({1}), vector(DType::kBool, {1})}}, "differ in kind");
}

TEST(Logical, TruthTables) {
  EXPECT_EQ(ints("logical_and", DType::kBool, {0, 0, 1, 1}, {0, 1, 0, 1}), (Ints{0, 0, 0, 1}));
  EXPECT_EQ(ints("logical_or", DType::kBool, {0, 0, 1, 1}, {0, 1, 0, 1}), (Ints{0, 1, 1, 1}));
  EXPECT_EQ(result("logical_not", {vector(DType::kBool, {0, 1})}).i, (Ints{1, 0}));
  expect_refused({.op = "logical_and", .inputs = {vector(DType::kBool, {1}), vector(DType::kI64, {1})}},
                 "b (%in1: i64[1]) must be bool");
}

TEST(Arithmetic, WideIntegersAndBools) {
  EXPECT_EQ(ints("add", DType::kI64, {int64_t{1} << 40}, {1}), (Ints{(int64_t{1} << 40) + 1}));
  EXPECT_EQ(ints("add", DType::kI32, {2147483647}, {1}), (Ints{kLowest32}));
  EXPECT_EQ(ints("add", DType::kBool, {0, 0, 1, 1}, {0, 1, 0, 1}), (Ints{0, 1, 1, 1}));
  EXPECT_EQ(ints("mul", DType::kBool, {0, 0, 1, 1}, {0, 1, 0, 1}), (Ints{0, 0, 0, 1}));
  expect_refused({.op = "sub", .inputs = {vector(DType::kBool, {1}), vector(DType::kBool, {1})}},
                 "bools cannot be subtracted; see logical_not");
  // The wider integer is the result's dtype.
  EXPECT_EQ(run_op({.op = "add", .inputs = {vector(DType::kI32, {1}), vector(DType::kI64, {2})}}).f32[0].dtype,
            DType::kI64);
}

// Kernels get no bytes of a constant that is put together of several: such a node runs by its definition.
TEST(Arithmetic, ConstantsInPiecesHaveNoKernel) {
  const Operand part = weight({2, 3}, {1, 2, 3, 4, 5, 6});
  const Operand both = constant(Constant::concat_rows("both", {part.constant, part.constant}));
  const OpRun run = run_op({.op = "add", .inputs = {activation({4, 3}, random_values(12, 1)), both}});
  EXPECT_TRUE(run.kernel.empty());
  EXPECT_EQ(run.f32[0].size(), 12);
}

}  // namespace
}  // namespace atb::testing
