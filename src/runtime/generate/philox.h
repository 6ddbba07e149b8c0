// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, a counter-based random generator: the n-th number of a stream is a function of its position alone.
#pragma once

#include <array>
#include <cstdint>

namespace atb {

// Ten rounds over `counter` with `key`. Constants and rounds: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011, section 3.3 and table 2.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// A uniform number in [0, 1) with 53 bits: number `index` of stream `stream` under `seed`.
constexpr double uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto bits = philox4x32({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
  const uint64_t word = (uint64_t{bits[1]} << 32) | bits[0];
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

}  // namespace atb
