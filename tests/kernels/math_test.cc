// SPDX-License-Identifier: Apache-2.0
// exp and the activations on every compiled target against f64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math_test.cc"  // NOLINT
#include "hwy/foreach_target.h"                    // IWYU pragma: keep
// After foreach_target.h.
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {

// f(x) for each x: 0 exp, 1 silu, 2 gelu (erf), 3 gelu (tanh), 4 relu.
HWY_ATTR void evaluate(int function, const std::vector<float>& x, std::vector<float>& y) {
  const hn::CappedTag<float, 16> d;
  std::vector<float> in = x;
  in.resize(x.size() + 16, 0.0f);
  y.resize(in.size());
  for (size_t i = 0; i < x.size(); i += hn::Lanes(d)) {
    auto v = hn::LoadU(d, in.data() + i);
    switch (function) {
      case 0:
        v = Exp(d, v);
        break;
      case 1:
        v = Silu(d, v);
        break;
      case 2:
        v = GeluErf(d, v);
        break;
      case 3:
        v = GeluTanh(d, v);
        break;
      default:
        v = Relu(d, v);
    }
    hn::StoreU(v, d, y.data() + i);
  }
  y.resize(x.size());
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(evaluate);

namespace {

std::vector<float> run_on_target(int function, const std::vector<float>& x) {
  std::vector<float> y;
  HWY_DYNAMIC_DISPATCH(evaluate)(function, x, y);
  return y;
}

double ulps(float got, double want) {
  const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
  return std::abs(static_cast<double>(got) - want) / ulp;
}

// Highway's scalar fallback, on which no kernel runs, has another rule for NaN in min and max.
std::vector<std::string_view> usable_targets() {
  std::vector<std::string_view> names = cpu_targets();
  std::erase(names, "SCALAR");
  return names;
}

class MathTest : public ::testing::Test {
 protected:
  void TearDown() override { force_cpu_target({}); }
};

TEST_F(MathTest, ExpWithinTwoUlps) {
  std::vector<float> x;
  for (float v = -87.3f; v < 88.7f; v += 0.00137f) x.push_back(v);
  for (float v = -1e-3f; v < 1e-3f; v += 1.7e-6f) x.push_back(v);
  for (const std::string_view target : usable_targets()) {
    force_cpu_target(target);
    const std::vector<float> y = run_on_target(0, x);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_LT(ulps(y[i], std::exp(static_cast<double>(x[i]))), 2.0) << x[i];
  }
}

TEST_F(MathTest, ExpAtTheEdges) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::string_view target : usable_targets()) {
    force_cpu_target(target);
    const std::vector<float> y =
        run_on_target(0, {-kInf, -1e30f, -104.0f, -87.4f, 0.0f, 88.72f, 89.0f, 1e30f, kInf, std::nanf("")});
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(0.0f, y[i]) << i << " " << target;
    EXPECT_EQ(1.0f, y[4]);
    EXPECT_TRUE(std::isfinite(y[5]));
    for (size_t i = 6; i < 9; ++i) EXPECT_EQ(kInf, y[i]) << i << " " << target;
    EXPECT_TRUE(std::isnan(y[9])) << target;
  }
}

TEST_F(MathTest, Activations) {
  std::vector<float> x;
  for (float v = -20.0f; v < 20.0f; v += 0.00371f) x.push_back(v);
  double (*const wanted[])(double) = {
      nullptr,
      [](double v) { return v / (1 + std::exp(-v)); },
      [](double v) { return 0.5 * v * std::erfc(-v / std::sqrt(2.0)); },
      [](double v) {
        return v / (1 + std::exp(-2 * std::sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
      },
      [](double v) { return v < 0 ? 0 : v; },
  };
  for (const std::string_view target : usable_targets()) {
    force_cpu_target(target);
    for (int function = 1; function < 5; ++function) {
      const std::vector<float> y = run_on_target(function, x);
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = wanted[function](static_cast<double>(x[i]));
        // The exponent's own rounding grows with its size, and tiny tails may be flushed to zero.
        const double allowed = 4e-7 * (1 + x[i] * x[i]) * std::abs(want) + 1e-36;
        ASSERT_NEAR(want, static_cast<double>(y[i]), allowed) << function << " at " << x[i] << " on " << target;
      }
      EXPECT_TRUE(std::isnan(run_on_target(function, {std::nanf("")})[0])) << function;
    }
  }
}

}  // namespace
}  // namespace atb
#endif  // HWY_ONCE
