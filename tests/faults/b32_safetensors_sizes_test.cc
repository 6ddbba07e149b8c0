// SPDX-License-Identifier: Apache-2.0
// B32: header length or offsets trusted: wrap on add, negative numbers, shape and span that disagree. The header cap.
#include <gtest/gtest.h>

#include "faults/file_limits.h"
#include "frontends/safetensors.h"
#include "models/model.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::as_bytes;
using testing::safetensors_file;
using testing::TempDir;

// Both ways in: the file by itself, and as the weights of a model.
void expect_refused(const std::string& bytes, const std::string& first, const std::string& second) {
  const TempDir dir;
  const auto file = dir.write("model.safetensors", bytes);
  dir.write("config.json", testing::TinyLlama().config_json());
  testing::expect_frugal([&] {
    EXPECT_ATB_ERROR(read_safetensors(file), Code::kDataLoss, "[safetensors]", "model.safetensors", first, second);
    EXPECT_ATB_ERROR(load_model(dir.path()), Code::kDataLoss, "model.safetensors", first, second);
  });
}

std::string one_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(B32, HeaderLength) {
  const std::string rest = "{}" + std::string(100, ' ');
  expect_refused(as_bytes(~uint64_t{0}) + rest, "header length 18446744073709551615", "above the limit");
  expect_refused(as_bytes(~uint64_t{0} >> 1) + rest, "header length 9223372036854775807", "above the limit");
  expect_refused(as_bytes(~uint64_t{0} - 7) + rest, "18446744073709551608", "above the limit");  // + 8 wraps to 0
  expect_refused(as_bytes(uint64_t{0}) + rest, "header length 0", "at least 2");
  expect_refused(as_bytes(uint64_t{103}) + rest, "cut", "1 missing");
  expect_refused(as_bytes(kMaxSafetensorsHeader) + rest, "cut", "missing");
  expect_refused(as_bytes(kMaxSafetensorsHeader + 1) + rest, "header length 268435457", "268435456");
}

TEST(B32, ShapeAgainstSpan) {
  const std::string data(65536, '\0');
  expect_refused(safetensors_file(one_tensor("F32", "[32,8]", "[0,65536]"), data), "needs 1024 bytes", "span 65536");
  expect_refused(safetensors_file(one_tensor("F32", "[1000,1000]", "[0,4]"), data.substr(0, 4)), "needs 4000000 bytes",
                 "span 4");
  expect_refused(safetensors_file(one_tensor("F32", "[1000,1000]", "[0,4000000]"), data.substr(0, 4)), "cut",
                 "3999996 missing");
  expect_refused(safetensors_file(one_tensor("F32", "[4294967296,4294967296]", "[0,0]"), ""), "tensor w",
                 "more elements than");
  expect_refused(safetensors_file(one_tensor("F32", "[4611686018427387905]", "[0,4]"), data.substr(0, 4)), "tensor w",
                 "more elements than");  // 4 * (2^62 + 1) wraps to 4
  expect_refused(safetensors_file(one_tensor("F32", "[-1,-1]", "[0,4]"), data.substr(0, 4)), "tensor w", "negative");
}

TEST(B32, Offsets) {
  const auto with = [](const std::string& offsets) {
    return safetensors_file(one_tensor("F32", "[2]", offsets), std::string(8, '\0'));
  };
  expect_refused(with("[8,0]"), "tensor w", "[8, 0]");
  expect_refused(with("[]"), "data_offsets has 0 numbers", "must have 2");
  expect_refused(with("[0]"), "data_offsets has 1 numbers", "must have 2");
  expect_refused(with("[0,8,8]"), "data_offsets has 3 numbers", "must have 2");
  expect_refused(with("[-8,0]"), "tensor w", "negative number -8");
  expect_refused(with("[18446744073709551608,18446744073709551615]"), "tensor w", "18446744073709551608");
  expect_refused(with("[18446744073709551616,8]"), "tensor w", "18446744073709551616");
  expect_refused(with("[0.0,8.0]"), "tensor w", "not an integer");
}

TEST(B32, UnknownType) {
  expect_refused(safetensors_file(one_tensor("X9", "[2]", "[0,8]"), std::string(8, '\0')), "tensor w",
                 "unknown dtype X9");
}

// The length of a header that a published model has, beyond what the reference library reads.
TEST(B32, TheLongestHeaderKnownIsRead) {
  constexpr size_t kLength = 132'095'296;
  static_assert(kLength < kMaxSafetensorsHeader);
  const TempDir dir;
  std::string header = one_tensor("U8", "[1]", "[0,1]");
  header.resize(kLength, ' ');
  const Safetensors file = read_safetensors(dir.write("a.safetensors", safetensors_file(header, "x")));
  EXPECT_EQ(file.tensors.at("w")->num_bytes(), 1u);
}

}  // namespace
}  // namespace atb
