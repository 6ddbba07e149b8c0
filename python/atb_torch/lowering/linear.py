# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

from __future__ import annotations

from typing import Any

from atb._core import BuilderValue

from atb_torch.context import Context
from atb_torch.lowering.elementwise import needs_float
from atb_torch.lowering.registry import lowers


@lowers("linear.default")
def linear(ctx: Context, x: BuilderValue, weight: BuilderValue, bias: BuilderValue | None = None) -> BuilderValue:
    needs_float(x, "a product")
    if len(weight.shape) == 1:  # one output feature, whose axis goes
        out = ctx.reshape(ctx("linear", x, ctx.reshape(weight, [1, *weight.shape]), None), ctx.out_shape)
        return out if bias is None else ctx("add", out, bias)
    return ctx("linear", x, weight, bias)


@lowers("matmul.default", "mm.default", "bmm.default", "mv.default", "dot.default")
def matmul(ctx: Context, a: BuilderValue, b: BuilderValue) -> BuilderValue:
    """Vectors are matrices of one row or column, whose axis goes afterwards."""
    needs_float(a, "a product")
    if len(a.shape) == 1:
        a = ctx.reshape(a, [1, *a.shape])
    if len(b.shape) == 1:
        b = ctx.reshape(b, [*b.shape, 1])
    return ctx.reshape(ctx("matmul", a, b), ctx.out_shape)


@lowers("addmm.default", "baddbmm.default")
def addmm(
    ctx: Context, c: BuilderValue, a: BuilderValue, b: BuilderValue, *, beta: Any = 1, alpha: Any = 1
) -> BuilderValue:
    needs_float(a, "a product")
    product = ctx("matmul", a, b)
    if alpha != 1:
        product = ctx("mul", product, ctx.scalar(alpha, product.dtype))
    if beta == 0:
        return product
    if beta != 1:
        c = ctx("mul", c, ctx.scalar(beta, c.dtype))
    return ctx("add", product, c)
