// SPDX-License-Identifier: Apache-2.0
// Weight panels and quantized rows at the level of kernels: decoding bit for bit, block sums, targets.
#include "kernels/matmul.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/constant.h"
#include "core/encoding.h"
#include "core/error.h"
#include "kernels/target.h"

namespace atb {
namespace {

class MatmulFormatTest : public ::testing::Test {
 protected:
  void TearDown() override { force_cpu_target({}); }
};

std::vector<std::string_view> usable_targets() {
  std::vector<std::string_view> names = cpu_targets();
  std::erase(names, "SCALAR");
  return names;
}

// Random bytes with f16 headers that are finite: every bit pattern of the weights themselves.
std::vector<std::byte> random_blocks(const Encoding& encoding, size_t headers, size_t blocks) {
  std::mt19937 generator(3);
  std::vector<std::byte> bytes(blocks * static_cast<size_t>(encoding.block_bytes));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator());
  for (size_t block = 0; block < blocks; ++block) {
    for (size_t i = 0; i < headers; ++i) {
      const uint16_t scale = f32_to_f16(static_cast<float>(generator() % 4096) * 0.0013f - 2.0f);
      std::memcpy(bytes.data() + block * static_cast<size_t>(encoding.block_bytes) + 2 * i, &scale, 2);
    }
  }
  return bytes;
}

// One row of x with a single 1 reads one weight of each feature: exact decoding, bit for bit, by the few-rows kernel
// and by unpacking.
TEST_F(MatmulFormatTest, DecodesBitForBit) {
  constexpr int64_t kTerms = 64;
  struct Case {
    const char* name;
    size_t headers;
  };
  for (const Case& c : {Case{"q8_0", 1}, Case{"q4_0", 1}, Case{"q4_1", 2}}) {
    const Encoding& encoding = *find_encoding(c.name);
    const size_t row_bytes = static_cast<size_t>(kTerms / encoding.block_elems * encoding.block_bytes);
    const std::vector<std::byte> rows = random_blocks(encoding, c.headers, 16 * kTerms / 32);
    std::vector<float> expected(16 * kTerms);
    encoding.decode(rows.data(), 16 * kTerms / 32, expected.data());
    for (const std::string_view target : usable_targets()) {
      force_cpu_target(target);
      const auto format = find_matmul_format(c.name, false);
      ASSERT_TRUE(format.has_value());
      EXPECT_EQ(target, format->target);
      EXPECT_EQ(16 * row_bytes, format->panel_bytes(kTerms));
      std::array<const std::byte*, 16> pointers;
      for (size_t i = 0; i < 16; ++i) pointers[i] = rows.data() + i * row_bytes;
      std::vector<std::byte> panel(format->panel_bytes(kTerms));
      format->pack(pointers.data(), kTerms, panel.data());

      const std::byte* panels[] = {panel.data()};
      std::vector<std::byte> unpacked(format->unpacked_bytes(kTerms));
      format->unpack(panels, 1, 0, kTerms, unpacked.data());
      std::vector<float> x(kTerms, 0.0f);
      std::array<float, 16> out{};
      const float* x_rows[] = {x.data()};
      FewRowsArgs args{};
      args.panels[0] = panel.data();
      args.streams = 1;
      args.rows = 1;
      args.k = kTerms;
      args.x = x_rows;
      args.out = out.data();
      for (int64_t k = 0; k < kTerms; ++k) {
        x[static_cast<size_t>(k)] = 1.0f;
        format->few_rows(args);
        x[static_cast<size_t>(k)] = 0.0f;
        for (int64_t lane = 0; lane < 16; ++lane) {
          const float want = expected[static_cast<size_t>(lane * kTerms + k)];
          float widened;
          std::memcpy(&widened, unpacked.data() + static_cast<size_t>(k * 16 + lane) * sizeof(float), sizeof(float));
          EXPECT_EQ(want, out[static_cast<size_t>(lane)]) << c.name << " " << target << " term " << k;
          EXPECT_EQ(want, widened) << c.name << " " << target << " term " << k;
        }
      }
    }
  }
}

// The largest sums that can occur must not saturate on any target: all weights and activations at their extremes.
TEST_F(MatmulFormatTest, ExtremeSumsAreExact) {
  for (const char* name : {"q8_0", "q4_0", "q4_1"}) {
    const Encoding& encoding = *find_encoding(name);
    for (const int fill : {0x00, 0x7f, 0x80, 0x81, 0xff}) {
      std::vector<std::byte> rows(16 * static_cast<size_t>(encoding.block_bytes), static_cast<std::byte>(fill));
      const uint16_t one = f32_to_f16(1.0f);
      for (size_t i = 0; i < 16; ++i) {
        std::memcpy(rows.data() + i * static_cast<size_t>(encoding.block_bytes), &one, 2);
        if (encoding.block_bytes == 20) std::memcpy(rows.data() + i * 20 + 2, &one, 2);
      }
      std::vector<float> decoded(16 * 32);
      encoding.decode(rows.data(), 16, decoded.data());
      for (const float sign : {1.0f, -1.0f}) {
        const std::vector<float> x(32, sign * 127.0f);  // quantizes to itself
        for (const std::string_view target : usable_targets()) {
          force_cpu_target(target);
          const auto format = find_matmul_format(name, true);
          std::array<const std::byte*, 16> pointers;
          for (size_t i = 0; i < 16; ++i) pointers[i] = rows.data() + i * static_cast<size_t>(encoding.block_bytes);
          std::vector<std::byte> panel(format->panel_bytes(32));
          format->pack(pointers.data(), 32, panel.data());
          std::vector<std::byte> memory(QuantizedRows::bytes(1, 32));
          FewRowsArgs args{};
          args.quantized = QuantizedRows::bind(memory.data(), 1, 32);
          quantize_row(x.data(), args.quantized, 0);
          std::array<float, 16> out{};
          args.panels[0] = panel.data();
          args.streams = 1;
          args.rows = 1;
          args.k = 32;
          args.out = out.data();
          format->few_rows(args);
          double want = 0;
          for (size_t i = 0; i < 32; ++i) want += static_cast<double>(decoded[i]) * static_cast<double>(x[i]);
          EXPECT_EQ(want, static_cast<double>(out[0])) << name << " " << target << " fill " << fill;
        }
      }
    }
  }
}

TEST_F(MatmulFormatTest, QuantizesToNearestEven) {
  std::vector<float> x(64, 0.0f);
  const float values[] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49f, 0.51f};
  std::copy(std::begin(values), std::end(values), x.begin());
  for (const std::string_view target : cpu_targets()) {
    force_cpu_target(target);
    std::vector<std::byte> memory(QuantizedRows::bytes(2, 64));
    const QuantizedRows q = QuantizedRows::bind(memory.data(), 2, 64);
    quantize_row(x.data(), q, 1);
    const int8_t wanted[] = {127, 0, 2, 2, 0, -2, 0, 1};
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(wanted[i], q.values[64 + i]) << i << " " << target;
    EXPECT_EQ(1.0f, q.scales[2]);
    EXPECT_EQ(130, q.sums[2]);
    EXPECT_EQ(130.0f, q.mins[2]);
    EXPECT_EQ(0.0f, q.scales[3]);
    EXPECT_EQ(0, q.sums[3]);
  }
}

TEST_F(MatmulFormatTest, UnknownFormatsAndTargets) {
  EXPECT_FALSE(find_matmul_format("q3_k", false).has_value());
  EXPECT_FALSE(find_matmul_format("f32", true).has_value());
  EXPECT_THROW(force_cpu_target("AVX9"), Error);
  EXPECT_NO_THROW(require_cpu_target());
  EXPECT_EQ(cpu_targets().front(), cpu_target_name());
}

// A CPU with that target and none better.
TEST_F(MatmulFormatTest, StopsBelowTheLeastTarget) {
  for (const int64_t target : {HWY_SSE4, HWY_SCALAR}) {
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_THROW(require_cpu_target(), Error) << hwy::TargetName(target);
    EXPECT_THROW(find_matmul_format("f32", false), Error) << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(HWY_AVX2);
  EXPECT_NO_THROW(require_cpu_target());
  // Tests may go below: that is what SSE4 is compiled for.
  for (const std::string_view target : usable_targets()) {
    force_cpu_target(target);
    EXPECT_NO_THROW(require_cpu_target()) << target;
  }
}

}  // namespace
}  // namespace atb
