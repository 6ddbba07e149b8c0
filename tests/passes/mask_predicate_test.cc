// SPDX-License-Identifier: Apache-2.0
// Masks are recognised by what they compute, in any spelling; what is not proven is unknown.
#include "passes/analysis/mask_predicate.h"

#include <gtest/gtest.h>

#include <limits>

#include "ir/builder.h"

namespace atb {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using Kind = MaskPredicate::Kind;

class MaskTest : public ::testing::Test {
 protected:
  MaskTest() : b_(graph_) {
    Value* pos = b_("iota", {}, {{"shape", Shape{t_}}});
    keys_ = b_.reshape(pos, {Dim(1), t_});
    queries_ = b_.reshape(pos, {t_, Dim(1)});
  }
  Value* integer(int32_t value) { return b_.constant(Constant::from_i32("int", {}, std::span(&value, 1))); }
  Value* le(Value* a, Value* b) { return b_("less_equal", {a, b}); }
  Value* where(Value* c, Value* a, Value* b) { return b_("where", {c, a, b}); }
  Value* seen() { return b_.scalar(0); }
  Value* blocked() { return b_.scalar(-kInf); }
  void expect(Value* mask, Kind kind, int64_t window = 0) {
    const MaskPredicate found = analyse_mask(mask, t_, t_);
    EXPECT_EQ(found.kind, kind) << found.why;
    EXPECT_EQ(found.window, window);
    EXPECT_EQ(found.why.empty(), kind != Kind::kUnknown);
  }
  Graph graph_;
  Builder b_;
  Dim t_ = Dim::symbol("T");
  Value* keys_;
  Value* queries_;
};

TEST_F(MaskTest, Causal) {
  expect(where(le(keys_, queries_), seen(), blocked()), Kind::kCausal);
  expect(where(le(keys_, queries_), seen(), b_.scalar(-3.4e38)), Kind::kCausal);
  expect(where(le(b_("add", {queries_, integer(1)}), keys_), blocked(), seen()), Kind::kCausal);
  expect(where(le(integer(0), b_("sub", {queries_, keys_})), seen(), blocked()), Kind::kCausal);
  expect(where(le(b_("mul", {keys_, integer(3)}), b_("mul", {integer(3), queries_})), seen(), blocked()),
         Kind::kCausal);
  Value* turned = b_.transpose(where(le(queries_, keys_), seen(), blocked()), {1, 0});
  expect(turned, Kind::kCausal);
  expect(b_.reshape(where(le(keys_, queries_), seen(), blocked()), {1, 1, t_, t_}), Kind::kCausal);
  expect(b_("add", {where(le(keys_, queries_), seen(), blocked()), seen()}), Kind::kCausal);
}

TEST_F(MaskTest, Window) {
  Value* causal = le(keys_, queries_);
  Value* recent = le(b_("sub", {queries_, integer(3)}), keys_);
  expect(where(recent, where(causal, seen(), blocked()), blocked()), Kind::kWindow, 4);
  expect(b_("add", {where(recent, seen(), blocked()), where(causal, seen(), blocked())}), Kind::kWindow, 4);
  // q - k >= 4 is blocked.
  Value* old = le(b_("add", {keys_, integer(4)}), queries_);
  expect(where(old, blocked(), where(causal, seen(), blocked())), Kind::kWindow, 4);
}

TEST_F(MaskTest, Full) {
  expect(seen(), Kind::kFull);
  expect(where(le(integer(0), integer(1)), seen(), blocked()), Kind::kFull);
}

TEST_F(MaskTest, Unknown) {
  expect(graph_.add_input("mask", {DType::kF32, {t_, t_}, nullptr}), Kind::kUnknown);
  expect(where(le(queries_, keys_), seen(), blocked()), Kind::kUnknown);                           // anti-causal
  expect(where(le(keys_, b_("add", {queries_, integer(1)})), seen(), blocked()), Kind::kUnknown);  // sees one ahead
  expect(where(le(keys_, b_("sub", {queries_, integer(1)})), seen(), blocked()), Kind::kUnknown);  // not itself
  expect(where(le(keys_, integer(5)), seen(), blocked()), Kind::kUnknown);                         // absolute position
  expect(where(le(keys_, queries_), seen(), b_.scalar(-10)), Kind::kUnknown);                      // a bias, no mask
  expect(where(le(keys_, queries_), b_.scalar(1), blocked()), Kind::kUnknown);
  expect(b_.scalar(-kInf), Kind::kUnknown);
  EXPECT_EQ(analyse_mask(where(le(keys_, queries_), seen(), blocked()), t_, Dim::symbol("S")).kind, Kind::kUnknown);
}

TEST_F(MaskTest, Constants) {
  const auto constant = [&](auto visible) {
    std::vector<float> data;
    for (int p = 0; p < 6; ++p) {
      for (int s = 0; s < 6; ++s) data.push_back(visible(p, s) ? 0.0F : -std::numeric_limits<float>::infinity());
    }
    return analyse_mask(b_.constant(Constant::from_f32("m", {1, 1, 6, 6}, data)), 6, 6);
  };
  EXPECT_EQ(constant([](int p, int s) { return s <= p; }).kind, Kind::kCausal);
  EXPECT_EQ(constant([](int p, int s) { return s <= p && p - s < 3; }).window, 3);
  EXPECT_EQ(constant([](int, int) { return true; }).kind, Kind::kFull);
  EXPECT_EQ(constant([](int p, int s) { return s <= p && !(p == 4 && s == 2); }).kind, Kind::kUnknown);
  EXPECT_EQ(constant([](int p, int s) { return s >= p; }).kind, Kind::kUnknown);
  EXPECT_EQ(constant([](int, int) { return false; }).kind, Kind::kUnknown);
}

// Numbers by the triangle, and what is computed of them.
class TriangleTest : public MaskTest {
 protected:
  Value* triangle(double low, double high) { return where(le(keys_, queries_), b_.scalar(low), b_.scalar(high)); }
  Value* is(Value* x, double number) { return b_("equal", {x, b_.scalar(number)}); }
  Value* flip(Value* x) { return b_("logical_not", {x}); }
  Value* cast(Value* x, const char* dtype) { return b_("cast", {x}, {{"dtype", std::string(dtype)}}); }
  Value* hidden_where(Value* c, double fill = -kInf) { return where(c, b_.scalar(fill), seen()); }
  Value* seen_where(Value* c) { return where(c, seen(), blocked()); }
  Value* upper() { return b_("sub", {b_.scalar(1), triangle(1, 0)}); }  // 1 above the diagonal
};

TEST_F(TriangleTest, ComparedWithNumbers) {
  Value* lower = triangle(1, 0);
  expect(hidden_where(is(lower, 0)), Kind::kCausal);
  expect(seen_where(is(lower, 1)), Kind::kCausal);
  expect(seen_where(flip(is(lower, 0))), Kind::kCausal);
  expect(hidden_where(b_("less", {lower, b_.scalar(1)})), Kind::kCausal);
  expect(hidden_where(b_("less_equal", {lower, b_.scalar(0.5)})), Kind::kCausal);
  expect(hidden_where(b_("less", {b_.scalar(0), upper()})), Kind::kCausal);
  expect(seen_where(cast(lower, "bool")), Kind::kCausal);
  expect(hidden_where(flip(cast(lower, "bool"))), Kind::kCausal);
  expect(hidden_where(is(cast(cast(cast(lower, "u8"), "i64"), "f32"), 0)), Kind::kCausal);
  expect(seen_where(is(triangle(2, 5), 2)), Kind::kCausal);
  expect(seen_where(is(triangle(2, 5), 3)), Kind::kUnknown);    // hides all
  expect(hidden_where(is(triangle(2, 0), 1)), Kind::kFull);     // and nothing
  expect(hidden_where(is(triangle(2, 0), 2)), Kind::kUnknown);  // and what should be seen
}

TEST_F(TriangleTest, MadeAMaskByArithmetic) {
  expect(b_("mul", {upper(), b_.scalar(-1e9)}), Kind::kCausal);
  expect(b_("mul", {b_.scalar(-1e4), upper()}), Kind::kCausal);
  expect(b_("neg", {b_("mul", {upper(), b_.scalar(1e9)})}), Kind::kCausal);
  expect(b_("log", {triangle(1, 0)}), Kind::kCausal);
  expect(b_("mul", {b_("sub", {triangle(1, 0), b_.scalar(1)}), b_.scalar(3e38)}), Kind::kCausal);
  expect(b_("div", {b_("sub", {triangle(1, 0), b_.scalar(1)}), b_.scalar(1e-9)}), Kind::kCausal);
  expect(b_("add", {triangle(0, -1e9), triangle(0, -1e4)}), Kind::kCausal);
  expect(b_("mul", {b_("add", {triangle(0, -1e9), triangle(0, -1e5)}), b_.scalar(0.125)}), Kind::kCausal);
  expect(where(is(triangle(1, 0), 0), b_.scalar(-1e9), triangle(0, -kInf)), Kind::kCausal);
  expect(where(is(triangle(1, 0), 1), seen(), where(is(triangle(1, 0), 0), blocked(), triangle(1, 0))), Kind::kCausal);
  Value* recent = where(le(b_("sub", {queries_, integer(3)}), keys_), b_.scalar(1), b_.scalar(0));
  Value* band = b_("mul", {triangle(1, 0), recent});
  expect(hidden_where(is(band, 0)), Kind::kWindow, 4);
  expect(b_("mul", {b_("sub", {b_.scalar(1), band}), b_.scalar(-1e9)}), Kind::kWindow, 4);
  expect(hidden_where(flip(cast(b_("minimum", {cast(triangle(1, 0), "i32"), cast(recent, "i32")}), "bool"))),
         Kind::kWindow, 4);
  Value* old = b_("logical_or", {is(triangle(1, 0), 0), is(recent, 0)});
  expect(hidden_where(old), Kind::kWindow, 4);
}

TEST_F(TriangleTest, MadeNoMaskByArithmetic) {
  expect(b_("mul", {upper(), b_.scalar(-kInf)}), Kind::kUnknown);        // 0 * -inf
  expect(b_("mul", {upper(), b_.scalar(-100)}), Kind::kUnknown);         // too little
  expect(b_("mul", {upper(), b_.scalar(1e9)}), Kind::kUnknown);          // the wrong sign
  expect(b_("mul", {triangle(1, 0), b_.scalar(-1e9)}), Kind::kUnknown);  // the wrong side
  expect(triangle(1, -1e9), Kind::kUnknown);
  expect(b_("add", {triangle(0, -1e9), b_.scalar(1)}), Kind::kUnknown);
  expect(b_("add", {triangle(0, -1e9), triangle(0, 1e9)}), Kind::kFull);
  expect(b_("add", {triangle(0, -1e9), where(le(queries_, keys_), seen(), b_.scalar(1e9))}), Kind::kUnknown);
  expect(b_("mul", {triangle(0, -1e9), b_.scalar(1e-6)}), Kind::kUnknown);
  expect(hidden_where(b_("logical_and", {is(triangle(1, 0), 0), is(triangle(1, 0), 1)})), Kind::kFull);
}

TEST_F(TriangleTest, FillsAsLowAsScoresAreNot) {
  for (const double fill : {-1e4, -65504.0, -1e9, -3.4e38, -kInf}) {
    Value* mask = hidden_where(is(triangle(1, 0), 0), fill);
    expect(mask, Kind::kCausal);
    EXPECT_EQ(analyse_mask(mask, t_, t_).infinite, fill == -kInf);
    expect(cast(mask, "f16"), Kind::kCausal);
    EXPECT_EQ(analyse_mask(cast(mask, "f16"), t_, t_).infinite, fill < -65504) << "f16 has no other number for it";
  }
  for (const double fill : {0.0, -1.0, -100.0, -9999.0, 1e9, kInf}) {
    expect(hidden_where(is(triangle(1, 0), 0), fill), fill == 0 ? Kind::kFull : Kind::kUnknown);
  }
}

TEST_F(TriangleTest, SaysWhyItIsUnknown) {
  const auto why = [&](Value* mask) { return analyse_mask(mask, t_, t_).why; };
  expect(graph_.add_input("given", {DType::kF32, {t_, t_}, nullptr}), Kind::kUnknown);
  EXPECT_EQ(why(graph_.inputs()[0]), "input %given may hold anything");
  EXPECT_NE(why(triangle(0, -100)).find("adds 0 or -100; a key is seen by 0 and hidden by -10000 or less"),
            std::string::npos);
  EXPECT_EQ(why(seen_where(le(keys_, b_("add", {queries_, integer(1)})))),
            "a query at position p sees the keys from 0 to p + 1, not up to p");
  EXPECT_EQ(why(seen_where(le(queries_, keys_))),
            "a query at position p sees the keys from p to the last, not up to p");
  EXPECT_NE(why(seen_where(is(triangle(2, 0), 1))).find("hides every key"), std::string::npos);
}

// A square of numbers by q - k, as a constant of each type.
class BandTest : public TriangleTest {
 protected:
  template <class T, class Number>
  Value* constant(DType dtype, std::vector<int64_t> shape, Number number) {
    std::vector<std::byte> bytes;
    for (int q = 0; q < 6; ++q) {
      for (int k = 0; k < 6; ++k) {
        const T element = static_cast<T>(number(q, k));
        const auto* begin = reinterpret_cast<const std::byte*>(&element);
        bytes.insert(bytes.end(), begin, begin + sizeof(T));
      }
    }
    return b_.constant(
        Constant::from_storage("table", dtype, nullptr, std::move(shape), storage_from_bytes(std::move(bytes)), 0));
  }
  // Its first n rows and columns, n < 6 unknown.
  Value* part(Value* x, int64_t rows_from = 0) {
    const int64_t rank = x->rank();
    x = b_("slice", {x}, {{"axis", rank - 2}, {"bounds", Shape{rows_from, n_ + Dim(rows_from)}}});
    return b_("slice", {x}, {{"axis", rank - 1}, {"bounds", Shape{0, n_}}});
  }
  void expect_part(Value* mask, Kind kind, int64_t window = 0) {
    const MaskPredicate found = analyse_mask(mask, n_, n_);
    EXPECT_EQ(found.kind, kind) << found.why;
    EXPECT_EQ(found.window, window);
  }
  Dim n_ = Dim::symbol("N", 1, 4);
};

int lower(int q, int k) { return k <= q ? 1 : 0; }

TEST_F(BandTest, OfEveryType) {
  const std::vector<Value*> triangles = {
      constant<float>(DType::kF32, {6, 6}, lower),       constant<double>(DType::kF64, {1, 6, 6}, lower),
      constant<int32_t>(DType::kI32, {6, 6}, lower),     constant<int64_t>(DType::kI64, {1, 1, 6, 6}, lower),
      constant<uint8_t>(DType::kBool, {1, 6, 6}, lower), constant<uint8_t>(DType::kU8, {6, 6}, lower),
      constant<int8_t>(DType::kI8, {6, 6}, lower)};
  for (Value* table : triangles) {
    SCOPED_TRACE(table->type().str());
    expect_part(hidden_where(flip(cast(part(table), "bool"))), Kind::kCausal);
    expect_part(seen_where(cast(part(table), "bool")), Kind::kCausal);
    expect_part(hidden_where(is(cast(part(table), "f32"), 0)), Kind::kCausal);
    expect_part(seen_where(cast(part(table, 1), "bool")), Kind::kUnknown);  // sees one ahead
  }
}

TEST_F(BandTest, OfAnyTwoNumbers) {
  const auto additive = [](double fill, auto visible) {
    return [=](int q, int k) { return visible(q, k) ? 0.0 : fill; };
  };
  const auto causal = [](int q, int k) { return k <= q; };
  const auto window = [](int q, int k) { return k <= q && q - k < 3; };
  for (const double fill : {-kInf, -1e9, -1e4}) {
    expect_part(part(constant<float>(DType::kF32, {6, 6}, additive(fill, causal))), Kind::kCausal);
    expect_part(part(constant<double>(DType::kF64, {1, 1, 6, 6}, additive(fill, window))), Kind::kWindow, 3);
  }
  const double lowest = std::numeric_limits<double>::lowest();
  const MaskPredicate found = analyse_mask(constant<double>(DType::kF64, {6, 6}, additive(lowest, causal)), 6, 6);
  EXPECT_EQ(found.kind, Kind::kCausal);
  EXPECT_FALSE(found.infinite);
  Value* far = constant<float>(DType::kF32, {6, 6}, [](int q, int k) { return q - k < 3 ? 7.0 : 3.0; });
  Value* recent = seen_where(is(part(far), 7));
  Value* past = part(constant<float>(DType::kF32, {6, 6}, additive(-kInf, causal)));
  expect_part(b_("add", {recent, past}), Kind::kWindow, 3);
}

TEST_F(BandTest, NearMisses) {
  const auto mask = [&](auto visible) {
    Value* table = constant<float>(DType::kF32, {6, 6}, [=](int q, int k) { return visible(q, k) ? 0.0 : -kInf; });
    return part(table);
  };
  expect_part(mask([](int q, int k) { return k <= q + 1; }), Kind::kUnknown);
  expect_part(mask([](int q, int k) { return k < q; }), Kind::kUnknown);
  expect_part(mask([](int q, int k) { return k <= q && !(q == 4 && k == 2); }), Kind::kUnknown);
  expect_part(mask([](int q, int k) { return k <= q && k != q - 2; }), Kind::kUnknown);
  expect_part(mask([](int q, int k) { return k <= 3 - q; }), Kind::kUnknown);
  Value* three = constant<float>(DType::kF32, {6, 6}, [](int q, int k) { return k <= q ? 0.0 : -1e9 * (k - q); });
  expect_part(part(three), Kind::kUnknown);
  Value* nan = constant<float>(DType::kF32, {6, 6}, [](int q, int k) { return k <= q ? 0.0 : 0.0 / 0.0; });
  expect_part(part(nan), Kind::kUnknown);
  // One row of a triangle for all queries.
  Value* row = b_("slice", {constant<float>(DType::kF32, {6, 6}, [](int q, int k) { return k <= q ? 0.0 : -kInf; })},
                  {{"axis", int64_t{0}}, {"bounds", Shape{0, 1}}});
  EXPECT_EQ(analyse_mask(row, 6, 6).kind, Kind::kUnknown);
  Value* shown = constant<float>(DType::kF32, {6, 6}, [](int, int) { return 0.0; });
  EXPECT_EQ(analyse_mask(b_("add", {row, shown}), 6, 6).kind, Kind::kUnknown);
}

// Rows of a table by position, and positions held as a constant.
TEST_F(BandTest, TakenByPositions) {
  Value* table = constant<float>(DType::kF32, {6, 6}, [](int q, int k) { return k <= q ? 0.0 : -kInf; });
  Value* positions = b_("iota", {}, {{"shape", Shape{n_}}});
  Value* rows = b_("embedding", {positions, table});
  const auto columns = [&](Value* x) { return b_("slice", {x}, {{"axis", int64_t{1}}, {"bounds", Shape{0, n_}}}); };
  expect_part(columns(rows), Kind::kCausal);
  Value* later = b_("embedding", {b_("add", {positions, integer(1)}), table});
  expect_part(columns(later), Kind::kUnknown);
  const std::vector<int32_t> counted = {0, 1, 2, 3, 4, 5};
  const auto held = [&](std::vector<int32_t> numbers) {
    Value* all = b_.constant(Constant::from_i32("places", {1, 6}, numbers));
    return b_("slice", {all}, {{"axis", int64_t{1}}, {"bounds", Shape{0, n_}}});
  };
  const auto past = [&](Value* places) { return seen_where(le(places, b_.transpose(places, {1, 0}))); };
  expect_part(past(held({0, 1, 2, 3, 4, 5})), Kind::kCausal);
  expect_part(past(held({7, 10, 13, 16, 19, 22})), Kind::kCausal);
  expect_part(past(held({0, 1, 2, 3, 5, 5})), Kind::kUnknown);
}

// Scores [B, 1, T, T] of sequences that lie one behind the other in a row.
class PackedMaskTest : public MaskTest {
 protected:
  PackedMaskTest() {
    segments_ = graph_.add_input("segments", {DType::kI32, {batch_, t_}, nullptr});
    causal_ = le(keys_, queries_);
  }
  Value* at_queries(Value* x) { return b_.reshape(x, {x->dim(0), 1, x->dim(1), 1}); }
  Value* at_keys(Value* x) { return b_.reshape(x, {x->dim(0), 1, 1, x->dim(1)}); }
  Value* equal(Value* a, Value* b) { return b_("equal", {a, b}); }
  Value* both(Value* a, Value* b) { return b_("logical_and", {a, b}); }
  Value* flip(Value* a) { return b_("logical_not", {a}); }
  Value* mask(Value* visible) { return where(visible, seen(), blocked()); }
  Value* of_one(Value* segments) { return equal(at_queries(segments), at_keys(segments)); }
  Value* cast(Value* x, const char* dtype) { return b_("cast", {x}, {{"dtype", std::string(dtype)}}); }
  Value* input(const char* name, Shape shape, DType dtype = DType::kI32) {
    return graph_.add_input(name, {dtype, std::move(shape), nullptr});
  }
  // x[b, t] by index arithmetic, t of the shape of `place`.
  Value* gather(Value* x, Value* place) {
    Value* rows = b_.reshape(b_("iota", {}, {{"shape", Shape{batch_}}}), {batch_, 1, 1, 1});
    return b_("take", {x, rows, b_.reshape(place, {1, 1, place->dim(0), place->dim(1)})});
  }
  // cumsum(P[t] - P[t - 1] != step); `late` takes P[t - 2] or so instead.
  Value* runs(Value* positions, int32_t step = 1, int64_t late = 0) {
    const auto slice = [&](Value* x, Dim begin, Dim end) {
      return b_("slice", {x}, {{"axis", int64_t{1}}, {"bounds", Shape{begin, end}}});
    };
    Value* first = b_("sub", {slice(positions, 0, 1), integer(1)});
    std::vector<Value*> pieces = {first, positions};
    if (late > 0) pieces.insert(pieces.begin(), first);
    Value* longer = b_("concat", pieces, {{"axis", int64_t{1}}});
    Value* difference = b_("sub", {positions, slice(longer, 0, t_)});
    Value* starts = cast(flip(equal(difference, integer(step))), "i64");
    return b_("cumsum", {starts}, {{"axis", int64_t{1}}});
  }
  void expect_packed(Value* mask, Kind kind, const Value* segments, int64_t window = 0) {
    expect(mask, kind, window);
    const MaskPredicate found = analyse_mask(mask, t_, t_);
    ASSERT_EQ(found.packing.size(), 1U);
    EXPECT_EQ(found.packing[0].segments, segments);
    EXPECT_EQ(found.packing[0].batch, segments->rank() == 1 ? Dim(1) : segments->dim(0));
  }
  Dim batch_ = Dim::symbol("B");
  Value* segments_;
  Value* causal_;
};

TEST_F(PackedMaskTest, EverySpellingOfOneSequence) {
  expect_packed(mask(of_one(segments_)), Kind::kFull, segments_);
  expect_packed(mask(equal(at_keys(segments_), at_queries(segments_))), Kind::kFull, segments_);
  expect_packed(where(flip(of_one(segments_)), blocked(), seen()), Kind::kFull, segments_);
  expect_packed(mask(equal(gather(segments_, queries_), gather(segments_, keys_))), Kind::kFull, segments_);
  Value* wide = cast(at_queries(segments_), "i64");
  expect_packed(mask(equal(wide, cast(at_keys(segments_), "i64"))), Kind::kFull, segments_);
  Value* later = b_("add", {at_queries(segments_), integer(1)});
  expect_packed(mask(equal(later, b_("add", {integer(1), at_keys(segments_)}))), Kind::kFull, segments_);
  Value* turned = b_.transpose(at_queries(segments_), {0, 1, 3, 2});
  expect_packed(mask(equal(at_queries(segments_), turned)), Kind::kFull, segments_);
  expect_packed(b_.transpose(mask(of_one(segments_)), {0, 1, 3, 2}), Kind::kFull, segments_);
}

TEST_F(PackedMaskTest, AnyIntegersNumberSequences) {
  Value* row = input("row", {t_});
  expect_packed(mask(equal(b_.reshape(row, {t_, 1}), b_.reshape(row, {1, t_}))), Kind::kFull, row);
  Value* shared = input("shared", {1, t_}, DType::kI64);
  expect_packed(mask(of_one(shared)), Kind::kFull, shared);
  Value* bytes = input("bytes", {batch_, t_}, DType::kU8);
  expect_packed(mask(of_one(bytes)), Kind::kFull, bytes);
  Value* sums = b_("cumsum", {equal(segments_, integer(3))}, {{"axis", int64_t{1}}});
  expect_packed(mask(of_one(sums)), Kind::kFull, sums);
  Value* longer = input("longer", {batch_, t_ + Dim(1)});
  Value* part = b_("slice", {longer}, {{"axis", int64_t{1}}, {"bounds", Shape{1, t_ + Dim(1)}}});
  expect_packed(mask(of_one(part)), Kind::kFull, part);
}

TEST_F(PackedMaskTest, InConjunction) {
  expect_packed(mask(both(of_one(segments_), causal_)), Kind::kCausal, segments_);
  expect_packed(where(of_one(segments_), mask(causal_), blocked()), Kind::kCausal, segments_);
  expect_packed(b_("add", {mask(of_one(segments_)), mask(causal_)}), Kind::kCausal, segments_);
  Value* recent = le(b_("sub", {queries_, integer(3)}), keys_);
  expect_packed(mask(both(both(causal_, of_one(segments_)), recent)), Kind::kWindow, segments_, 4);
  Value* present = input("present", {batch_, t_}, DType::kBool);
  Value* all = mask(both(both(causal_, at_keys(present)), of_one(segments_)));
  expect_packed(all, Kind::kCausal, segments_);
  const MaskPredicate found = analyse_mask(all, t_, t_);
  ASSERT_EQ(found.padding.size(), 1U);
  EXPECT_EQ(found.padding[0].present, present);
  EXPECT_TRUE(found.infinite);
  EXPECT_TRUE(found.by_batch());
  EXPECT_FALSE(analyse_mask(where(of_one(segments_), seen(), b_.scalar(-3e38)), t_, t_).infinite);
}

// Positions that count up by 1 within each sequence stand for indices.
TEST_F(PackedMaskTest, PositionsThatStartAnew) {
  Value* positions = input("positions", {batch_, t_});
  Value* segments = runs(positions);
  Value* past = le(at_keys(positions), at_queries(positions));
  expect_packed(mask(both(past, of_one(segments))), Kind::kCausal, segments);
  expect_packed(mask(both(of_one(segments), flip(b_("less", {at_queries(positions), at_keys(positions)})))),
                Kind::kCausal, segments);
  Value* recent = b_("less", {b_("sub", {at_queries(positions), integer(4)}), at_keys(positions)});
  expect_packed(mask(both(both(recent, past), of_one(segments))), Kind::kWindow, segments, 4);
  Value* gathered = le(gather(positions, keys_), gather(positions, queries_));
  expect_packed(mask(both(gathered, equal(gather(segments, queries_), gather(segments, keys_)))), Kind::kCausal,
                segments);
  // One row of positions for all.
  Value* row = input("row", {1, t_});
  Value* spread = b_("broadcast", {row}, {{"shape", Shape{batch_, t_}}});
  Value* of_row = runs(spread);
  expect_packed(mask(both(le(at_keys(spread), at_queries(spread)), of_one(of_row))), Kind::kCausal, of_row);
}

TEST_F(PackedMaskTest, PositionsThatSayNothingAboutIndices) {
  Value* positions = input("positions", {batch_, t_});
  Value* others = input("others", {batch_, t_});
  Value* past = le(at_keys(positions), at_queries(positions));
  const auto unknown = [&](Value* segments) { expect(mask(both(past, of_one(segments))), Kind::kUnknown); };
  expect(mask(past), Kind::kUnknown);
  unknown(segments_);              // given, not made of the positions
  unknown(runs(others));           // of others
  unknown(runs(positions, 2));     // which count up by 2
  unknown(runs(positions, 0));     // or stay
  unknown(runs(positions, 1, 1));  // P[t] - P[t - 2]
  Value* turned = le(at_queries(positions), at_keys(positions));
  expect(mask(both(turned, of_one(runs(positions)))), Kind::kUnknown);  // anti-causal
  Value* products = b_("mul", {at_keys(positions), integer(2)});
  expect(mask(both(le(products, at_queries(positions)), of_one(runs(positions)))), Kind::kUnknown);
}

TEST_F(PackedMaskTest, NearMisses) {
  Value* others = input("others", {batch_, t_});
  Value* queries = at_queries(segments_);
  Value* keys = at_keys(segments_);
  expect(mask(equal(queries, at_keys(others))), Kind::kUnknown);
  expect(mask(equal(at_queries(others), keys)), Kind::kUnknown);
  expect(mask(flip(equal(queries, keys))), Kind::kUnknown);
  expect(where(equal(queries, keys), blocked(), seen()), Kind::kUnknown);
  expect(mask(le(queries, keys)), Kind::kUnknown);
  expect(mask(b_("less", {keys, queries})), Kind::kUnknown);
  expect(mask(equal(queries, b_("add", {keys, integer(1)}))), Kind::kUnknown);
  expect(mask(b_("logical_or", {causal_, equal(queries, keys)})), Kind::kUnknown);
  // Pairs of numbers, and another row than the query's.
  Value* square = input("square", {t_, t_});
  Value* rows = b_.reshape(square, {1, 1, t_, t_});
  expect(mask(equal(rows, b_.transpose(rows, {0, 1, 3, 2}))), Kind::kUnknown);
  Value* three = input("three", {3, t_});
  Value* second = b_("slice", {three}, {{"axis", int64_t{0}}, {"bounds", Shape{1, 2}}});
  expect(mask(equal(at_queries(three), at_keys(second))), Kind::kUnknown);
  // Parts of a larger value, which has another extent than the mask.
  for (Value* larger : {input("longer", {batch_, t_ + Dim(1)}), input("more", {batch_ + Dim(1), t_})}) {
    expect(mask(equal(gather(larger, queries_), gather(larger, keys_))), Kind::kUnknown);
  }
  // Narrowed numbers may collide.
  expect(mask(equal(queries, cast(cast(keys, "i8"), "i32"))), Kind::kUnknown);
  // A pair of elements that are not at a query and a key is read as it is: a padding mask of its own.
  Value* first = b_("take", {b_.transpose(segments_, {1, 0}), integer(0)});
  Value* present = equal(segments_, b_.reshape(first, {batch_, 1}));
  const MaskPredicate padded = analyse_mask(mask(both(causal_, at_keys(present))), t_, t_);
  EXPECT_EQ(padded.kind, Kind::kCausal) << padded.why;
  EXPECT_EQ(padded.padding.size(), 1U);
}

}  // namespace
}  // namespace atb
