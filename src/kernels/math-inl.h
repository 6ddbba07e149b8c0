// SPDX-License-Identifier: Apache-2.0
// Elementary functions on Highway vectors, once per instruction set. Include inside no namespace, as Highway's own
// *-inl.h files; call from code between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE.
#if defined(ATB_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_MATH_INL_H_
#undef ATB_KERNELS_MATH_INL_H_
#else
#define ATB_KERNELS_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {

// e^x for f32 lanes within 1 ulp. exp(0) is exactly 1, exp(-inf) exactly 0, exp(inf) = inf, NaN stays NaN; results
// below 2^-125 are flushed to 0. x = n ln2 + r with |r| <= ln2 / 2; e^r = 1 + r + r^2 p(r), p the minimax polynomial of
// degree 4 for the relative error (3.1e-9). 2^n is applied as 2^(n-1) * 2, so that n = 128 needs no exponent beyond the
// format's.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V fast_exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const V kLowest = hn::Set(d, -86.6433945f);       // 2^-125
  const V clamped = hn::Min(hn::Set(d, 89.0f), x);  // in this order x86 keeps a NaN of x
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504089f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), clamped);  // ln2 in two parts; the first times n is exact
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860682030941723212e-6f), r);
  V p = hn::Set(d, 1.38145406e-3f);
  p = hn::MulAdd(p, r, hn::Set(d, 8.36874545e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1668389e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.66665211e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.9999994e-1f));
  const V er = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 126)));
  const V scaled = hn::Mul(er, hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, kLowest), hn::Add(scaled, scaled));
}

}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
