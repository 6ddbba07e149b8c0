// SPDX-License-Identifier: Apache-2.0
// Block encodings against goldens made with the gguf package (tests/goldens/make_dequant_golden.py), bit for bit.
#include "core/encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace atb {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes(text.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

std::vector<float> as_floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

nlohmann::json golden() {
  std::ifstream file(std::string(ATB_TEST_DATA) + "/goldens/dequant.json");
  return nlohmann::json::parse(file);
}

std::vector<float> round_trip(const Encoding& encoding, const std::vector<float>& values) {
  const auto blocks = static_cast<int64_t>(values.size()) / encoding.block_elems;
  std::vector<std::byte> encoded(static_cast<size_t>(blocks * encoding.block_bytes));
  encoding.encode(values.data(), blocks, encoded.data());
  std::vector<float> decoded(values.size());
  encoding.decode(encoded.data(), blocks, decoded.data());
  return decoded;
}

TEST(Encoding, DecodesBitForBitAsTheGgufPackage) {
  const nlohmann::json formats = golden();
  for (const auto& [name, data] : formats.items()) {
    const Encoding* encoding = find_encoding(name);
    ASSERT_NE(encoding, nullptr) << name;
    const auto blocks = from_hex(data["blocks"]);
    const auto expected = as_floats(from_hex(data["values"]));
    std::vector<std::byte> shifted(blocks.size() + 1);  // sources may be unaligned
    std::memcpy(shifted.data() + 1, blocks.data(), blocks.size());
    std::vector<float> values(expected.size());
    encoding->decode(shifted.data() + 1, static_cast<int64_t>(values.size()) / encoding->block_elems, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i])) << name << " value " << i;
    }
  }
}

TEST(Encoding, EncodesByteForByteAsTheGgufPackage) {
  const nlohmann::json formats = golden();
  for (const auto& [name, data] : formats.items()) {
    const Encoding* encoding = find_encoding(name);
    const auto values = as_floats(from_hex(data["encode_input"]));
    const auto expected = from_hex(data["encode_output"]);
    std::vector<std::byte> encoded(expected.size());
    encoding->encode(values.data(), static_cast<int64_t>(values.size()) / encoding->block_elems, encoded.data());
    EXPECT_EQ(encoded, expected) << name;
  }
}

TEST(Encoding, ZeroTinyAndHugeBlocksStayFinite) {
  for (const Encoding* encoding : encodings()) {
    if (encoding->block_elems == 1) continue;  // no block scale: rounds and overflows as IEEE 754 says
    for (const float value : {0.0f, 1e-30f}) {
      for (const float decoded : round_trip(*encoding, std::vector<float>(32, value))) {
        EXPECT_EQ(decoded, 0.0f) << encoding->name << " of " << value;
      }
    }
    for (const float decoded : round_trip(*encoding, std::vector<float>(32, 1e30f))) {
      EXPECT_TRUE(std::isfinite(decoded)) << encoding->name;
    }
    std::vector<float> odd(32, std::numeric_limits<float>::quiet_NaN());
    odd[3] = std::numeric_limits<float>::infinity();
    round_trip(*encoding, odd);  // any result, but no undefined behaviour
  }
}

TEST(Encoding, UnknownNamesAreNull) { EXPECT_EQ(find_encoding("q3_7"), nullptr); }

}  // namespace
}  // namespace atb
