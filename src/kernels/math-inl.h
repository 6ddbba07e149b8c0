// SPDX-License-Identifier: Apache-2.0
// Elementary functions on vectors of f32: exp and the activations. Include inside a per-target translation unit.

// Per-target include guard.
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
namespace hn = hwy::HWY_NAMESPACE;

// 2^n of integral f32 `n` in [-252, 254], as two factors each of normal range: multiply by both. One factor alone
// could not express 2^128 (overflow boundary) nor stay clear of subnormal exponents.
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR V ScaleByPowerOf2(D d, V x, V n) {
  const hn::RebindToSigned<D> di;
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const V first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::Mul(hn::Mul(x, first), second);
}

// e^x, within about 1 ulp. Results below the smallest normal number are 0 (so -inf gives exactly 0 and no subnormal is
// ever made), overflow gives +inf, NaN stays NaN.
// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln(2) / 2; e^r = 1 + r + r^2 P(r), P a minimax fit (error 3e-9 of
// e^r).
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR V Exp(D d, V x) {
  const V smallest = hn::Set(d, -87.33654f);  // ln(2^-126)
  // Operand order keeps NaN: where either is NaN, x86 min and max return the second.
  const V clamped = hn::Max(hn::Set(d, -88.0f), hn::Min(hn::Set(d, 89.0f), x));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.62ep-1f), clamped);  // high bits of ln 2: n * high is exact
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.0bfbe8p-15f), r);      // the rest of ln 2
  V p = hn::Set(d, 0x1.6a23c6p-10f);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.123a2p-7f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.5558f4p-5f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.555492p-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.fffffcp-2f));
  p = hn::MulAdd(hn::Mul(r, r), p, r);
  p = hn::Add(p, hn::Set(d, 1.0f));
  return hn::IfThenZeroElse(hn::Lt(x, smallest), ScaleByPowerOf2(d, p, n));
}

// tanh x, within about 2 ulp. With a = |x|: below 5/8, a + a^3 P(a^2), P a minimax fit (relative error 5e-9); beyond,
// (1 - e^-2a) / (1 + e^-2a). The sign is that of x, NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR V Tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V a = hn::Abs(x);
  const V aa = hn::Mul(a, a);
  V p = hn::Set(d, -0.005704986326759961f);
  p = hn::MulAdd(p, aa, hn::Set(d, 0.020639086567570852f));
  p = hn::MulAdd(p, aa, hn::Set(d, -0.05373971484563638f));
  p = hn::MulAdd(p, aa, hn::Set(d, 0.13331442194747561f));
  p = hn::MulAdd(p, aa, hn::Set(d, -0.3333328194185377f));
  const V near = hn::MulAdd(hn::Mul(a, aa), p, a);
  const V e = Exp(d, hn::Mul(a, hn::Set(d, -2.0f)));
  const V far = hn::Div(hn::Sub(one, e), hn::Add(one, e));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), near, far), x);
}

// 1 / (1 + e^-x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

// x * sigmoid(x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR V Silu(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), Exp(d, hn::Neg(x))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR V Relu(D d, V x) {
  return hn::Max(hn::Zero(d), x);  // NaN stays NaN, see Exp
}

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x * sigmoid(2 u).
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR V GeluTanh(D d, V x) {
  const V cube = hn::Mul(hn::Mul(x, x), x);
  const V u2 = hn::Mul(hn::Set(d, 1.59576912f), hn::MulAdd(hn::Set(d, 0.044715f), cube, x));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), Exp(d, hn::Neg(u2))));
}

// x Phi(x) = 0.5 x (1 + erf(x / sqrt 2)). With z = |x| / sqrt 2: for z < 1, erf(z) = z P(z^2); beyond,
// erfc(z) = e^(-z^2) Q(1 / (1 + z / 2)). Both minimax fits, relative error below 5e-9.
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR V GeluErf(D d, V x) {
  const V half = hn::Set(d, 0.5f);
  const V one = hn::Set(d, 1.0f);
  const V z = hn::Mul(hn::Abs(x), hn::Set(d, 0.707106781f));
  const V zz = hn::Mul(z, z);
  V erf = hn::Set(d, 7.85385345807299e-05f);
  erf = hn::MulAdd(erf, zz, hn::Set(d, -0.000801019137725234f));
  erf = hn::MulAdd(erf, zz, hn::Set(d, 0.00518832728266716f));
  erf = hn::MulAdd(erf, zz, hn::Set(d, -0.026853810995817184f));
  erf = hn::MulAdd(erf, zz, hn::Set(d, 0.1128358542919159f));
  erf = hn::MulAdd(erf, zz, hn::Set(d, -0.3761262595653534f));
  erf = hn::MulAdd(erf, zz, hn::Set(d, 1.1283791065216064f));
  erf = hn::Mul(erf, z);
  const V t = hn::Div(one, hn::MulAdd(half, z, one));
  V q = hn::Set(d, 0.07836338132619858f);
  q = hn::MulAdd(q, t, hn::Set(d, -0.17652513086795807f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.012803629972040653f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.1151711717247963f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.15324658155441284f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.2544223368167877f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.2807229459285736f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.28222671151161194f));
  q = hn::MulAdd(q, t, hn::Set(d, -5.284539838612545e-06f));
  const V erfc = hn::Mul(q, Exp(d, hn::Neg(zz)));
  // Phi(-|x|) without cancellation, then Phi(x).
  const V tail = hn::Mul(half, hn::IfThenElse(hn::Lt(z, one), hn::Sub(one, erf), erfc));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail)));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#endif  // ATB_KERNELS_MATH_INL_H_
