# SPDX-License-Identifier: Apache-2.0
"""scaled_dot_product_attention in plain operators: scores, scale, mask, softmax, values."""

from __future__ import annotations

import math
from typing import Any

from atb._core import BuilderValue

from atb_torch.context import Context
from atb_torch.errors import Refused
from atb_torch.lowering.registry import lowers
from atb_torch.symbols import Dim


@lowers("scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    ctx: Context,
    query: BuilderValue,
    key: BuilderValue,
    value: BuilderValue,
    attn_mask: BuilderValue | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> BuilderValue:
    """softmax(query key^T * scale + mask) value over [..., L, E], [..., S, E], [..., S, Ev].

    The scale is 1 / sqrt(E) unless given. A row whose keys are all masked gives 0.
    """
    if dropout_p > 0:
        raise Refused(f"dropout_p = {dropout_p} draws at random; pass 0 outside of training")
    if enable_gqa:
        key, value = (repeat_heads(ctx, x, query.shape[-3]) for x in (key, value))
    _check_shapes(ctx, query, key, value)
    scores = ctx("matmul", query, key, transpose_b=True)
    scores = ctx("mul", scores, _scale(ctx, scale, query))
    if is_causal:
        attn_mask = causal_mask(ctx, query.shape[-2], key.shape[-2])
    if attn_mask is not None:
        scores = ctx("add", scores, additive(ctx, attn_mask, scores.dtype))
    return ctx("matmul", ctx("softmax", scores, axis=len(scores.shape) - 1), value)


def _check_shapes(ctx: Context, query: BuilderValue, key: BuilderValue, value: BuilderValue) -> None:
    """Export does not compare the operands' sizes. Leading ones may be 1, which broadcasts."""
    ctx.require_equal(query.shape[-1], key.shape[-1])
    ctx.require_equal(key.shape[-2], value.shape[-2])
    for a, b in ((query, key), (query, value)):
        for size, other in zip(a.shape[-3::-1], b.shape[-3::-1], strict=False):
            if size != 1 and other != 1:
                ctx.require_equal(size, other)


def _scale(ctx: Context, scale: float | None, query: BuilderValue) -> BuilderValue:
    if scale is not None:
        return ctx.scalar(scale, query.dtype)
    width = query.shape[-1]
    if isinstance(width, int):
        return ctx.scalar(1 / math.sqrt(width), query.dtype)
    return ctx("rsqrt", ctx.scalar(width, query.dtype))


def additive(ctx: Context, mask: BuilderValue, dtype: str) -> BuilderValue:
    """A mask to add to scores: that of booleans is 0 where they are true, minus infinity elsewhere."""
    if mask.dtype != "bool":
        return ctx.cast(mask, dtype)
    return ctx("where", mask, ctx.scalar(0.0, dtype), ctx.scalar(-math.inf, dtype))


def causal_mask(ctx: Context, queries: Dim, keys: Dim) -> BuilderValue:
    """Query i sees keys 0 to i, whatever their numbers: torch aligns the triangle to the top left corner."""
    columns = ctx.reshape(ctx("iota", shape=[keys]), [1, keys])
    rows = ctx.reshape(ctx("iota", shape=[queries]), [queries, 1])
    return ctx("less_equal", columns, rows)


def repeat_heads(ctx: Context, x: BuilderValue, heads: Any) -> BuilderValue:
    """[..., Hkv, S, E] -> [..., heads, S, E]: each head of x serves a group of consecutive heads."""
    *batch, kv_heads, length, width = x.shape
    if kv_heads == heads:
        return x
    heads, kv_heads = ctx.static(heads, "the number of heads"), ctx.static(kv_heads, "the number of heads")
    if heads % kv_heads != 0:
        raise Refused(f"{heads} heads are no multiple of {kv_heads} heads of keys and values")
    group = heads // kv_heads
    spread = ctx.broadcast(
        ctx.reshape(x, [*batch, kv_heads, 1, length, width]), [*batch, kv_heads, group, length, width]
    )
    return ctx.reshape(spread, [*batch, heads, length, width])
