// SPDX-License-Identifier: Apache-2.0
// Dimensions: normal forms, proofs of equality, bounds, evaluation, text.
#include "core/dim.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "core/error.h"

namespace atb {
namespace {

const Dim kT = Dim::symbol("T", 1, 8192);
const Dim kB = Dim::symbol("B", 1, 64);
const Dim kL = Dim::symbol("L", 0, 100);
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(Dim, NormalFormIsOneForEveryWayOfWriting) {
  EXPECT_EQ((kT + 1) * (kT - 1), kT * kT - 1);
  EXPECT_EQ(kT * kB + kB * kT, Dim(2) * kB * kT);
  EXPECT_EQ(kT - kT, Dim(0));
  EXPECT_EQ((kT + kB) * Dim(3) - Dim(3) * kB, Dim(3) * kT);
  EXPECT_TRUE((kT + 5 - kT).is_constant());
  EXPECT_FALSE(kT == kB);
}

TEST(Dim, TheSameNameIsTheSameSymbolWhateverItsRange) {
  EXPECT_EQ(Dim::symbol("T"), kT);
  EXPECT_EQ(Dim::symbol("T", 3, 4) - kT, Dim(0));
}

TEST(Dim, EqualityIsProvenRefutedOrUnknown) {
  EXPECT_EQ(equal(kT * 2, kT + kT), Tri::kYes);
  EXPECT_EQ(equal(kT, kB), Tri::kUnknown);
  EXPECT_EQ(equal(kT, kT + 1), Tri::kNo);
  EXPECT_EQ(equal(kB, Dim(65)), Tri::kNo);  // out of range
  EXPECT_EQ(equal(kB, Dim(64)), Tri::kUnknown);
  EXPECT_EQ(equal(kT * 2, kB * 2 + 1), Tri::kNo);  // even and odd
  EXPECT_EQ(equal(Shape{kT, 2}, Shape{kT, 3}), Tri::kNo);
  EXPECT_EQ(equal(Shape{kT, 2}, Shape{kB, 2}), Tri::kUnknown);
  EXPECT_EQ(equal(Shape{kT}, Shape{kT, 1}), Tri::kNo);
}

TEST(Dim, FloordivAndModSimplifyWhatIsProven) {
  EXPECT_EQ(Dim::floordiv(kT * 16, 16), kT);
  EXPECT_EQ(Dim::floordiv(kT * 17 + 35, 16).str(), "T + floordiv(T + 3, 16) + 2");
  EXPECT_EQ(Dim::floordiv(kT * kB, kB), kT);
  EXPECT_EQ(Dim::floordiv(kB, 65), Dim(0));  // 1..64
  EXPECT_EQ(Dim::mod(kT * 32 + 7, 16), Dim(7));
  EXPECT_EQ(Dim::mod(kT * kB, kB), Dim(0));
  EXPECT_EQ(Dim::mod(kB, 65), kB);
  EXPECT_EQ(Dim::floordiv(-7, 2), Dim(-4));
  EXPECT_EQ(Dim::mod(-7, 2), Dim(1));
  EXPECT_EQ(Dim::mod(7, -2), Dim(-1));
  // L may be 0, so L / L is not 1.
  EXPECT_FALSE(Dim::floordiv(kL * kT, kL).is_constant());
  EXPECT_FALSE(Dim::floordiv(kL * kT, kL) == kT);
}

TEST(Dim, MinAndMaxFollowProvenOrder) {
  EXPECT_EQ(Dim::min(kT, 8192), kT);
  EXPECT_EQ(Dim::max(kT, 8192), Dim(8192));
  EXPECT_EQ(Dim::min(kT, kT + 1), kT);
  EXPECT_EQ(Dim::max(kT, kT - 1), kT);
  EXPECT_EQ(Dim::min(kT, kB), Dim::min(kB, kT));
  EXPECT_EQ(Dim::min(kT, 100).str(), "min(100, T)");
}

TEST(Dim, BoundsComeFromRanges) {
  EXPECT_EQ((kT * kB).lower(), 1);
  EXPECT_EQ((kT * kB).upper(), 8192 * 64);
  EXPECT_EQ((Dim(3) - kT).lower(), 3 - 8192);
  EXPECT_EQ((Dim(3) - kT).upper(), 2);
  EXPECT_EQ(Dim::floordiv(kT + 1, 16).upper(), 512);
  EXPECT_EQ(Dim::mod(kT, 16).upper(), 15);
  EXPECT_EQ(Dim::min(kT, 100).upper(), 100);
  EXPECT_EQ(Dim::max(kT, 100).lower(), 100);
  const Dim big = Dim::symbol("big", 0, kMax);
  EXPECT_EQ((big * big).upper(), kMax);  // saturates
}

TEST(Dim, EvaluatesAndNamesWhatIsMissing) {
  const Bindings bindings{{"T", 100}, {"B", 3}};
  EXPECT_EQ((kT * kB * 2 - 1).eval(bindings), 599);
  EXPECT_EQ(Dim::floordiv(kT, 16).eval(bindings), 6);
  EXPECT_EQ(Dim::mod(kT, 16).eval(bindings), 4);
  EXPECT_EQ(Dim::max(Dim::min(kT, kB), 2).eval(bindings), 3);
  EXPECT_EQ(eval(Shape{kT, 4}, bindings), (std::vector<int64_t>{100, 4}));
  try {
    (void)kL.eval(bindings);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("L"), std::string::npos);
  }
}

TEST(Dim, OverflowAndDivisionByZeroAreErrors) {
  EXPECT_THROW(Dim(kMax) + Dim(1), Error);
  EXPECT_THROW(Dim(kMax) * Dim(2), Error);
  EXPECT_THROW((kT * kT).eval({{"T", int64_t{1} << 40}}), Error);
  EXPECT_THROW(Dim::floordiv(kT, 0), Error);
  EXPECT_THROW(Dim::mod(3, 0), Error);
  EXPECT_THROW(Dim::floordiv(kT, kL).eval({{"T", 1}, {"L", 0}}), Error);
  EXPECT_THROW(Dim::floordiv(std::numeric_limits<int64_t>::min(), -1), Error);
  EXPECT_EQ(equal(Dim(kMax) * kT, Dim(-2) * kT), Tri::kUnknown);  // the difference overflows
}

TEST(Dim, RefusesBadSymbols) {
  EXPECT_THROW(Dim::symbol("2T"), Error);
  EXPECT_THROW(Dim::symbol("min"), Error);
  EXPECT_THROW(Dim::symbol(""), Error);
  EXPECT_THROW(Dim::symbol("T", -1, 4), Error);
  EXPECT_THROW(Dim::symbol("T", 5, 4), Error);
}

TEST(Dim, SubstitutesAndRenormalizes) {
  EXPECT_EQ((kT * kB).substitute({{"B", Dim(1)}}), kT);
  EXPECT_EQ(Dim::floordiv(kT + 8, 16).substitute({{"T", kB * 16 + 8}}), kB + 1);
}

TEST(Dim, TextRoundTrip) {
  for (const Dim& dim :
       {Dim(0), Dim(-5), kT, kT * 2 + 3, kT * kB - kB - 1, Dim(0) - kT + 5, kT * kT * 3, Dim::floordiv(kT + 1, 16),
        Dim::mod(kT - kB, 7), Dim::min(Dim::max(kT, kB), kL + 2) * 4 + kT}) {
    EXPECT_EQ(Dim::parse(dim.str()), dim) << dim.str();
    EXPECT_EQ(Dim::parse(dim.str()).str(), dim.str());
  }
  EXPECT_EQ((kT * 2 + 3).str(), "2*T + 3");
  EXPECT_EQ((Dim(5) - kT).str(), "-T + 5");
  EXPECT_EQ(Dim::parse("(T + 1)*(T - 1)"), kT * kT - 1);
  EXPECT_EQ(to_string(Shape{kT, 576}), "[T, 576]");
}

TEST(Dim, BadTextIsRefused) {
  for (const char* text : {"", "T +", "2 * ", "T T", "floordiv(T)", "floordiv(T, 0)", "min(T, 2", "9999999999999999999",
                           "T $", ")", "((((((", "foo(T, 2)", "1T"}) {
    EXPECT_THROW(Dim::parse(text), Error) << text;
  }
  EXPECT_THROW(Dim::parse(std::string(3000, '(')), Error);
  EXPECT_THROW(Dim::parse(std::string(100000, '1')), Error);
  std::string product = "T";
  for (int i = 0; i < 100; ++i) product += "*T";
  EXPECT_THROW(Dim::parse(product), Error);  // degree
}

TEST(Dim, CollectsSymbolsAndIntersectsRanges) {
  SymbolRanges ranges;
  collect_symbols(Dim::floordiv(kT + kL, 16) * kB, ranges);
  collect_symbols(Dim::symbol("T", 0, 100), ranges);
  EXPECT_EQ(ranges, (SymbolRanges{{"B", {1, 64}}, {"L", {0, 100}}, {"T", {1, 100}}}));
}

}  // namespace
}  // namespace atb
