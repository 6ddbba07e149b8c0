// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every machine and with every standard library: splitmix64 and plain arithmetic.
// Draws stand in statements of their own or in braces, never as two arguments of one call or two operands of a sum: the
// order of those is the compiler's choice.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace atb::random_graphs {

// Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
class Prng {
 public:
  explicit Prng(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  // In [0, limit); limit > 0.
  int64_t below(int64_t limit) { return static_cast<int64_t>(next() % static_cast<uint64_t>(limit)); }
  // In [lo, hi].
  int64_t between(int64_t lo, int64_t hi) { return lo + below(hi - lo + 1); }
  bool chance(double probability) { return unit() < probability; }
  // In [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // Mean 0, variance 1, in (-3.5, 3.5): the sum of four uniform numbers.
  double bell() {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += unit();
    return (sum - 2) * 1.7320508075688772;
  }
  template <class T>
  const T& pick(const std::vector<T>& items) {
    return items[static_cast<size_t>(below(static_cast<int64_t>(items.size())))];
  }

 private:
  uint64_t state_;
};

inline bool is_power_of_two(double x) { return std::exp2(std::round(std::log2(x))) == x; }

}  // namespace atb::random_graphs
