// SPDX-License-Identifier: Apache-2.0
// Constant handles: sizes that are checked before use, and edits that compose segments and maps.
#include "core/constant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace atb {
namespace {

// [rows, 2] with rows (10 i, 10 i + 1).
ConstantRef counted(const std::string& name, int rows, float base = 0) {
  std::vector<float> values;
  for (int i = 0; i < rows; ++i) {
    values.push_back(base + 10.0f * static_cast<float>(i));
    values.push_back(base + 10.0f * static_cast<float>(i) + 1);
  }
  return Constant::from_f32(name, {rows, 2}, values);
}

std::vector<float> first_column(const Constant& constant) {
  std::vector<float> column;
  const std::vector<float> values = constant.to_f32();
  for (size_t i = 0; i < values.size(); i += 2) column.push_back(values[i]);
  return column;
}

TEST(Constant, FromStorageChecksSizes) {
  const StorageRef storage = storage_from_bytes(std::vector<std::byte>(64));
  EXPECT_EQ(Constant::from_storage("w", DType::kF32, nullptr, {4, 4}, storage, 0)->num_bytes(), 64u);
  EXPECT_EQ(Constant::from_storage("w", DType::kF32, nullptr, {0, 4}, storage, 64)->num_rows(), 0);
  const auto code = [&](std::vector<int64_t> shape, size_t offset) {
    try {
      Constant::from_storage("w", DType::kF32, nullptr, std::move(shape), storage, offset);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kInternal;
  };
  EXPECT_EQ(code({4, 5}, 0), Code::kDataLoss);
  EXPECT_EQ(code({4, 4}, 1), Code::kDataLoss);
  EXPECT_EQ(code({1}, static_cast<size_t>(-1)), Code::kDataLoss);
  EXPECT_EQ(code({-1, -4}, 0), Code::kDataLoss);
  EXPECT_EQ(code({int64_t{1} << 32, int64_t{1} << 32}, 0), Code::kDataLoss);
  EXPECT_EQ(code({int64_t{1} << 62}, 0), Code::kDataLoss);
  EXPECT_EQ(code({0, int64_t{1} << 62, int64_t{1} << 62}, 0), Code::kDataLoss);
}

TEST(Constant, EncodedRowsMustBeWholeBlocks) {
  const Encoding* q8 = find_encoding("q8_0");
  ASSERT_NE(q8, nullptr);
  EXPECT_THROW(Constant::absent("w", DType::kF32, q8, {4, 40}), Error);
  const ConstantRef constant = Constant::absent("w", DType::kF32, q8, {4, 64});
  EXPECT_EQ(constant->row_bytes(), static_cast<size_t>(2 * q8->block_bytes));
}

TEST(Constant, AbsentHasTypesButNoData) {
  const ConstantRef constant = Constant::absent("w", DType::kBF16, nullptr, {2, 3});
  EXPECT_TRUE(constant->absent());
  EXPECT_EQ(constant->num_bytes(), 12u);
  EXPECT_THROW(constant->row(0), Error);
  EXPECT_THROW(constant->to_f32(), Error);
  EXPECT_TRUE(Constant::concat_rows("ww", {constant, constant})->absent());
  EXPECT_TRUE(Constant::permute_rows(constant, {1, 0})->absent());
}

TEST(Constant, ConcatenationAndPermutationsCompose) {
  const ConstantRef a = counted("a", 3);
  const ConstantRef b = counted("b", 2, 100);
  const ConstantRef ab = Constant::concat_rows("ab", {a, b});
  EXPECT_EQ(ab->shape(), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(first_column(*ab), (std::vector<float>{0, 10, 20, 100, 110}));
  EXPECT_EQ(ab->row(0), a->row(0));  // the bytes are shared
  EXPECT_EQ(ab->row(4), b->row(1));

  const ConstantRef reversed = Constant::permute_rows(ab, {4, 3, 2, 1, 0});
  EXPECT_EQ(first_column(*reversed), (std::vector<float>{110, 100, 20, 10, 0}));
  EXPECT_EQ(reversed->row(0), b->row(1));

  const ConstantRef nested = Constant::concat_rows("n", {Constant::permute_rows(reversed, {4, 1, 0, 3, 2}), reversed});
  EXPECT_EQ(first_column(*nested), (std::vector<float>{0, 100, 110, 10, 20, 110, 100, 20, 10, 0}));
  const ConstantRef again = Constant::permute_rows(nested, {9, 0, 5, 1});
  EXPECT_EQ(first_column(*again), (std::vector<float>{0, 0, 110, 100}));
  EXPECT_EQ(again->shape(), (std::vector<int64_t>{4, 2}));
}

TEST(Constant, EveryPermutationOfEveryPermutation) {
  std::vector<int32_t> p(4);
  std::iota(p.begin(), p.end(), 0);
  const ConstantRef source = Constant::concat_rows("s", {counted("a", 1), counted("b", 2, 100), counted("c", 1, 200)});
  const std::vector<float> base = first_column(*source);
  do {
    const ConstantRef once = Constant::permute_rows(source, p);
    const ConstantRef twice = Constant::permute_rows(once, p);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(first_column(*once)[i], base[static_cast<size_t>(p[i])]);
      EXPECT_EQ(first_column(*twice)[i], base[static_cast<size_t>(p[static_cast<size_t>(p[i])])]);
    }
  } while (std::next_permutation(p.begin(), p.end()));
}

TEST(Constant, VectorsConcatenateAndPermuteByElement) {
  const ConstantRef a = Constant::from_f32("a", {2}, std::vector<float>{1, 2});
  const ConstantRef b = Constant::from_f32("b", {3}, std::vector<float>{3, 4, 5});
  const ConstantRef ab = Constant::concat_rows("ab", {a, b});
  EXPECT_EQ(ab->shape(), (std::vector<int64_t>{5}));
  EXPECT_EQ(ab->to_f32(), (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(Constant::permute_rows(ab, {4, 0, 2, 1, 3})->to_f32(), (std::vector<float>{5, 1, 3, 2, 4}));
}

TEST(Constant, RefusesWhatDoesNotFit) {
  const ConstantRef a = counted("a", 3);
  EXPECT_THROW(Constant::concat_rows("x", {}), Error);
  EXPECT_THROW(Constant::concat_rows("x", {a, Constant::from_f32("b", {1, 3}, std::vector<float>(3))}), Error);
  EXPECT_THROW(Constant::concat_rows("x", {a, Constant::from_i32("b", {1, 2}, std::vector<int32_t>(2))}), Error);
  EXPECT_THROW(Constant::permute_rows(a, {0, 1, 3}), Error);
  EXPECT_THROW(Constant::permute_rows(a, {0, -1, 2}), Error);
  EXPECT_THROW(a->row(3), Error);
  EXPECT_THROW(a->row(-1), Error);
}

TEST(Constant, DecodesPlainTypes) {
  const std::vector<uint16_t> halves = {0x3c00, 0xc000, 0x0001, 0x7c00};
  std::vector<std::byte> bytes(8);
  std::memcpy(bytes.data(), halves.data(), 8);
  const ConstantRef f16 = Constant::from_storage("h", DType::kF16, nullptr, {4}, storage_from_bytes(bytes), 0);
  EXPECT_EQ(f16->to_f32(), (std::vector<float>{1, -2, 0x1p-24f, std::numeric_limits<float>::infinity()}));
  const ConstantRef i32 = Constant::from_i32("i", {2}, std::vector<int32_t>{-7, 9});
  EXPECT_EQ(i32->to_f32(), (std::vector<float>{-7, 9}));
  const ConstantRef scalar = Constant::from_f32("s", {}, std::vector<float>{2.5f});
  EXPECT_EQ(scalar->num_rows(), 1);
  EXPECT_EQ(scalar->to_f32(), (std::vector<float>{2.5f}));
}

TEST(Constant, TransposesOnceAndBack) {
  std::vector<float> values(70 * 130);
  std::iota(values.begin(), values.end(), 0.0f);
  const ConstantRef matrix = Constant::from_f32("w", {70, 130}, values);
  const ConstantRef turned = Constant::transpose(matrix);
  EXPECT_EQ(turned->shape(), (std::vector<int64_t>{130, 70}));
  const std::vector<float> moved = turned->to_f32();
  for (size_t r = 0; r < 70; ++r) {
    for (size_t c = 0; c < 130; ++c) ASSERT_EQ(moved[c * 70 + r], values[r * 130 + c]);
  }
  EXPECT_EQ(Constant::transpose(matrix), turned) << "one copy for all readers";
  EXPECT_EQ(Constant::transpose(turned), matrix);
  EXPECT_EQ(Constant::transpose(Constant::permute_rows(matrix, {69, 0}))->to_f32()[0], values[69 * 130]);
}

TEST(Constant, TransposesMatricesOfPlainElementsOnly) {
  EXPECT_THROW(Constant::transpose(Constant::absent("v", DType::kF32, nullptr, {4})), Error);
  EXPECT_THROW(Constant::transpose(Constant::absent("q", DType::kF32, find_encoding("q8_0"), {2, 32})), Error);
  EXPECT_EQ(Constant::transpose(Constant::absent("w", DType::kBF16, nullptr, {2, 3}))->shape(),
            (std::vector<int64_t>{3, 2}));
}

TEST(Constant, ReinterpretsRowsOfTheSameBytes) {
  const ConstantRef half = Constant::absent("h", DType::kBF16, nullptr, {2, 3});
  const ConstantRef wide = Constant::reinterpreted(half, DType::kF32, find_encoding("bf16"));
  EXPECT_EQ(wide->dtype(), DType::kF32);
  EXPECT_EQ(wide->row_bytes(), half->row_bytes());
  EXPECT_THROW(Constant::reinterpreted(half, DType::kF32, nullptr), Error);
}

TEST(Constant, HandlesHaveDistinctIds) { EXPECT_NE(counted("a", 1)->id(), counted("a", 1)->id()); }

TEST(Constant, ReleasesOnlyTheRowsItUses) {
  auto storage = std::make_shared<Storage>(*storage_from_bytes(std::vector<std::byte>(80)));
  std::vector<std::pair<const std::byte*, size_t>> released;
  storage->release_pages = [&](const std::byte* begin, size_t size) { released.emplace_back(begin, size); };
  const ConstantRef whole = Constant::from_storage("w", DType::kF32, nullptr, {4, 4}, storage, 16);
  Constant::permute_rows(whole, {2, 1})->release_pages();
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].first, storage->bytes.data() + 16 + 16);
  EXPECT_EQ(released[0].second, 32u);
}

}  // namespace
}  // namespace atb
