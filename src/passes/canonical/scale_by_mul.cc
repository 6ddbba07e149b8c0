// SPDX-License-Identifier: Apache-2.0
// Normal form: scaling is a multiplication where that is exact.
#include <cmath>

#include "passes/analysis/scalar.h"
#include "passes/canonical/canonical.h"

namespace atb {

bool scale_by_mul(const Node& node, Rewriter& rewriter) {
  if (!node.is("div") || !is_float(node.input(1)->type().dtype)) return false;
  const std::optional<double> divisor = scalar_value(node.input(1));
  if (!divisor || !std::isfinite(*divisor) || *divisor == 0) return false;
  // A divisor with axes, [1, 1, 1, 1], may have given the result its rank.
  if (node.input(1)->rank() > node.input(0)->rank()) return false;
  int exponent = 0;
  const double mantissa = std::frexp(*divisor, &exponent);
  // 2^e for e in [-14, 14] has an exact reciprocal in every float type.
  if (std::abs(mantissa) != 0.5 || std::abs(exponent - 1) > 14) return false;
  Value* factor = rewriter.constant(
      scalar_constant(node.input(1)->type().dtype, 1.0 / *divisor, node.input(1)->name() + ".reciprocal"));
  rewriter.replace(node.output(), rewriter.value("mul", {node.input(0), factor}));
  return true;
}

}  // namespace atb
