// SPDX-License-Identifier: Apache-2.0
// Quantization of activations to int8, one scale a block of 32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize_rows.cc"  // NOLINT
#include "hwy/foreach_target.h"                        // IWYU pragma: keep
// After foreach_target.h.
#include <limits>

#include "hwy/highway.h"
#include "kernels/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_ATTR void quantize_blocks(const float* x, const QuantizedRows& out, int64_t row) {
  const hn::CappedTag<float, static_cast<size_t>(kBlockTerms)> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const QuantizedRows to = out.from(row);
  for (int64_t block = 0; block < to.blocks(); ++block) {
    const float* in = x + block * kBlockTerms;
    int8_t* values = to.values + block * kBlockTerms;
    auto largest = hn::Zero(d);
    auto poison = hn::Zero(d);  // NaN where x is not finite: comparisons alone would lose it
    for (int64_t i = 0; i < kBlockTerms; i += lanes) {
      const auto v = hn::LoadU(d, in + i);
      largest = hn::Max(largest, hn::Abs(v));
      poison = hn::MulAdd(v, hn::Zero(d), poison);
    }
    const float top = hn::GetLane(hn::MaxOfLanes(d, largest));
    const float finite = hn::GetLane(hn::SumOfLanes(d, poison));
    const bool zero = top < 1e-30f;
    const auto inverse = hn::Set(d, zero ? 0.0f : 127.0f / top);
    auto sum = hn::Zero(di);
    for (int64_t i = 0; i < kBlockTerms; i += lanes) {
      const auto q = hn::NearestInt(hn::Mul(hn::LoadU(d, in + i), inverse));
      sum = hn::Add(sum, q);
      hn::StoreU(hn::DemoteTo(d8, q), d8, values + i);
    }
    const int32_t total = finite == finite ? hn::GetLane(hn::SumOfLanes(di, sum)) : 0;
    to.scales[block] = finite != finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : top / 127.0f;
    to.sums[block] = total;
    to.mins[block] = to.scales[block] * static_cast<float>(total);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(quantize_blocks);

namespace {

constexpr size_t kAlign = 64;

size_t padded(int64_t bytes) { return (static_cast<size_t>(bytes) + kAlign - 1) / kAlign * kAlign; }

}  // namespace

size_t QuantizedRows::bytes(int64_t rows, int64_t k) {
  return padded(rows * k) + 3 * padded(rows * (k / kBlockTerms) * static_cast<int64_t>(sizeof(float)));
}

QuantizedRows QuantizedRows::bind(std::byte* memory, int64_t rows, int64_t k) {
  const size_t values = padded(rows * k);
  const size_t column = padded(rows * (k / kBlockTerms) * static_cast<int64_t>(sizeof(float)));
  QuantizedRows q;
  q.values = reinterpret_cast<int8_t*>(memory);
  q.scales = reinterpret_cast<float*>(memory + values);
  q.sums = reinterpret_cast<int32_t*>(memory + values + column);
  q.mins = reinterpret_cast<float*>(memory + values + 2 * column);
  q.k = k;
  return q;
}

void quantize_row(const float* x, const QuantizedRows& out, int64_t row) {
  HWY_DYNAMIC_DISPATCH(quantize_blocks)(x, out, row);
}

}  // namespace atb
#endif  // HWY_ONCE
