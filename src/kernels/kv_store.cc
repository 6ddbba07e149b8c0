// SPDX-License-Identifier: Apache-2.0
#include "kernels/kv_store.h"

namespace atb::kernels {
namespace {

void put(float value, float* to) { *to = value; }
void put(float value, uint16_t* to) { *to = f32_to_bf16(value); }

// T is the element as stored: float, or uint16_t for bf16 bits.
template <class T>
void store_keys_as(const KvLayout& layout, std::byte* slot, int64_t position, int64_t rows, const KvRows& keys) {
  for (int64_t h = 0; h < layout.kv_heads; ++h) {
    T* panel = reinterpret_cast<T*>(slot + layout.k_panel(h, position / kKeyPanel)) + position % kKeyPanel;
    const float* from = keys.data + h * keys.head_stride;
    for (int64_t d = 0; d < layout.head_dim; ++d, panel += kKeyPanel) {
      for (int64_t r = 0; r < rows; ++r) put(from[r * keys.row_stride + d], panel + r);
    }
  }
}

template <class T>
void store_values_as(const KvLayout& layout, std::byte* slot, int64_t position, int64_t rows, const KvRows& values) {
  for (int64_t h = 0; h < layout.kv_heads; ++h) {
    T* to = reinterpret_cast<T*>(slot + layout.v_row(h, position));
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = values.data + r * values.row_stride + h * values.head_stride;
      for (int64_t d = 0; d < layout.head_dim; ++d) put(from[d], to++);
    }
  }
}

}  // namespace

void store_keys(const KvLayout& layout, std::byte* slot, int64_t position, int64_t rows, const KvRows& keys) {
  if (layout.dtype == DType::kBF16) {
    store_keys_as<uint16_t>(layout, slot, position, rows, keys);
  } else {
    store_keys_as<float>(layout, slot, position, rows, keys);
  }
}

void store_values(const KvLayout& layout, std::byte* slot, int64_t position, int64_t rows, const KvRows& values) {
  if (layout.dtype == DType::kBF16) {
    store_values_as<uint16_t>(layout, slot, position, rows, values);
  } else {
    store_values_as<float>(layout, slot, position, rows, values);
  }
}

}  // namespace atb::kernels
