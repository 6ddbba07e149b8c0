// SPDX-License-Identifier: Apache-2.0
// Functions of two numbers for kernels and reference kernels, floats and integers, with the sign rules of Python.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace atb {

// NaN where one of them is.
template <class T>
T larger(T a, T b) {
  return a > b || a != a ? a : b;
}

template <class T>
T smaller(T a, T b) {
  return a < b || a != a ? a : b;
}

// a^b by squaring, wrapping around; the fraction of a negative power is dropped.
template <class T>
T integer_power(T a, T b) {
  using Bits = std::make_unsigned_t<T>;
  if (b < 0) {
    if (a == 1) return 1;
    if (a == T(-1)) return b % 2 == 0 ? T(1) : T(-1);
    return 0;
  }
  uint64_t result = 1;
  uint64_t factor = static_cast<uint64_t>(a);
  for (auto left = static_cast<Bits>(b); left > 0; left = static_cast<Bits>(left / 2)) {
    if (left % 2 == 1) result *= factor;
    factor *= factor;
  }
  return static_cast<T>(result);
}

template <class T>
T power(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return b == T(2) ? a * a : std::pow(a, b);  // squares are by far the most frequent
  } else {
    return integer_power(a, b);
  }
}

// a - floor(a / b) * b, with the sign of b. Integers: b is not 0.
template <class T>
T floor_remainder(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  } else {
    if (b == T(-1)) return 0;  // the smallest integer over -1 overflows
    const T rest = static_cast<T>(a % b);
    return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
  }
}

// a / b rounded towards minus infinity. Integers: b is not 0.
template <class T>
T floor_quotient(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (b == 0) return a / b;
    const T rest = std::fmod(a, b);
    T quotient = (a - rest) / b;  // an integer up to rounding
    if (rest != 0 && (rest < 0) != (b < 0)) quotient -= T(1);
    return quotient == 0 ? std::copysign(T(0), a / b) : std::nearbyint(quotient);
  } else {
    if (b == T(-1)) return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(a));
    const T quotient = static_cast<T>(a / b);
    return a % b != 0 && (a < 0) != (b < 0) ? static_cast<T>(quotient - 1) : quotient;
  }
}

}  // namespace atb
