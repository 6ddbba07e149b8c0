// SPDX-License-Identifier: Apache-2.0
// Conversions between all element types, for the kernel and the reference kernel of cast.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"

namespace atb {

// An element as it is stored, and what arithmetic makes of it: float for halves and f32, double for f64, int64_t for
// integers and bools.
template <DType kDType>
struct Element;
template <>
struct Element<DType::kF32> {
  using Stored = float;
  static float wide(float x) { return x; }
};
template <>
struct Element<DType::kF64> {
  using Stored = double;
  static double wide(double x) { return x; }
};
template <>
struct Element<DType::kF16> {
  using Stored = uint16_t;
  static float wide(uint16_t x) { return f16_to_f32(x); }
};
template <>
struct Element<DType::kBF16> {
  using Stored = uint16_t;
  static float wide(uint16_t x) { return bf16_to_f32(x); }
};
template <class Integer>
struct IntegerElement {
  using Stored = Integer;
  static int64_t wide(Integer x) { return x; }
};
template <>
struct Element<DType::kI8> : IntegerElement<int8_t> {};
template <>
struct Element<DType::kU8> : IntegerElement<uint8_t> {};
template <>
struct Element<DType::kI32> : IntegerElement<int32_t> {};
template <>
struct Element<DType::kI64> : IntegerElement<int64_t> {};
template <>
struct Element<DType::kBool> : IntegerElement<uint8_t> {};

// The nearest integer towards 0 that there is; 0 for NaN. Integers wrap around.
template <class Integer, class Wide>
Integer to_integer(Wide x) {
  if constexpr (std::is_floating_point_v<Wide>) {
    using Limits = std::numeric_limits<Integer>;
    constexpr Wide kBeyond = static_cast<Wide>(Limits::max() / 2 + 1) * 2;  // exact, as the maximum need not be
    if (x != x) return 0;
    if (x >= kBeyond) return Limits::max();
    return x <= static_cast<Wide>(Limits::min()) ? Limits::min() : static_cast<Integer>(x);
  } else {
    return static_cast<Integer>(x);
  }
}

// Stored form of an element of dtype kTo; floats are rounded to nearest even.
template <DType kTo, class Wide>
typename Element<kTo>::Stored converted(Wide x) {
  if constexpr (kTo == DType::kBool) {
    return x != 0 ? 1 : 0;
  } else if constexpr (kTo == DType::kF16) {
    return f32_to_f16(static_cast<float>(x));
  } else if constexpr (kTo == DType::kBF16) {
    return f32_to_bf16(static_cast<float>(x));
  } else if constexpr (std::is_integral_v<typename Element<kTo>::Stored>) {
    return to_integer<typename Element<kTo>::Stored>(x);
  } else {
    return static_cast<typename Element<kTo>::Stored>(x);
  }
}

// Calls function(std::integral_constant<DType, dtype>) for any dtype but a state, which gives `none`.
template <class Result, class Function>
Result for_dtype(DType dtype, Result none, const Function& function) {
  switch (dtype) {
    case DType::kF32:
      return function(std::integral_constant<DType, DType::kF32>());
    case DType::kF64:
      return function(std::integral_constant<DType, DType::kF64>());
    case DType::kF16:
      return function(std::integral_constant<DType, DType::kF16>());
    case DType::kBF16:
      return function(std::integral_constant<DType, DType::kBF16>());
    case DType::kI8:
      return function(std::integral_constant<DType, DType::kI8>());
    case DType::kU8:
      return function(std::integral_constant<DType, DType::kU8>());
    case DType::kI32:
      return function(std::integral_constant<DType, DType::kI32>());
    case DType::kI64:
      return function(std::integral_constant<DType, DType::kI64>());
    case DType::kBool:
      return function(std::integral_constant<DType, DType::kBool>());
    case DType::kState:
      break;
  }
  return none;
}

}  // namespace atb
