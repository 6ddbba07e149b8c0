// SPDX-License-Identifier: Apache-2.0
// The table of GGUF tensor types.
#include "frontends/gguf_types.h"

#include <algorithm>
#include <iterator>

namespace atb {
namespace {

constexpr GgufTensorType plain(uint32_t id, const char* name, DType dtype, uint32_t bytes) {
  return {id, name, 1, bytes, true, dtype, nullptr};
}

constexpr GgufTensorType blocks(uint32_t id, const char* name, uint32_t elems, uint32_t bytes, const char* encoding) {
  return {id, name, elems, bytes, true, DType::kF32, encoding};
}

constexpr GgufTensorType other(uint32_t id, const char* name, uint32_t elems, uint32_t bytes) {
  return {id, name, elems, bytes, false, DType::kF32, nullptr};
}

constexpr GgufTensorType kTypes[] = {
    plain(0, "F32", DType::kF32, 4),
    plain(1, "F16", DType::kF16, 2),
    plain(30, "BF16", DType::kBF16, 2),
    blocks(2, "Q4_0", 32, 18, "q4_0"),
    blocks(3, "Q4_1", 32, 20, "q4_1"),
    blocks(8, "Q8_0", 32, 34, "q8_0"),
    other(6, "Q5_0", 32, 22),
    other(7, "Q5_1", 32, 24),
    other(9, "Q8_1", 32, 36),
    other(10, "Q2_K", 256, 84),
    other(11, "Q3_K", 256, 110),
    other(12, "Q4_K", 256, 144),
    other(13, "Q5_K", 256, 176),
    other(14, "Q6_K", 256, 210),
    other(15, "Q8_K", 256, 292),
    other(16, "IQ2_XXS", 256, 66),
    other(17, "IQ2_XS", 256, 74),
    other(18, "IQ3_XXS", 256, 98),
    other(19, "IQ1_S", 256, 50),
    other(20, "IQ4_NL", 32, 18),
    other(21, "IQ3_S", 256, 110),
    other(22, "IQ2_S", 256, 82),
    other(23, "IQ4_XS", 256, 136),
    other(24, "I8", 1, 1),
    other(25, "I16", 1, 2),
    other(26, "I32", 1, 4),
    other(27, "I64", 1, 8),
    other(28, "F64", 1, 8),
    other(29, "IQ1_M", 256, 56),
    other(34, "TQ1_0", 256, 54),
    other(35, "TQ2_0", 256, 66),
    other(39, "MXFP4", 32, 17),
    other(40, "NVFP4", 64, 36),
    other(41, "Q1_0", 128, 18),
};

}  // namespace

const GgufTensorType* find_gguf_tensor_type(uint32_t id) {
  const auto found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [id](const auto& type) { return type.id == id; });
  return found != std::end(kTypes) ? &*found : nullptr;
}

}  // namespace atb
