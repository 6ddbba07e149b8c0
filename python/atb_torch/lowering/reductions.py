# SPDX-License-Identifier: Apache-2.0
"""Reductions, softmax, norms and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from atb._core import BuilderValue

from atb_torch.context import Context, axis_of
from atb_torch.dtypes import TORCH
from atb_torch.errors import Refused
from atb_torch.lowering.registry import lowers
from atb_torch.symbols import product


def _axes(x: BuilderValue, dims: Any) -> list[int]:
    """Axes to reduce over: all of them for None and for an empty list."""
    if dims is None or dims == []:
        return list(range(len(x.shape)))
    return [axis_of(x, axis) for axis in (dims if isinstance(dims, (list, tuple)) else [dims])]


def _reduce(ctx: Context, op: str, x: BuilderValue, dims: Any, keep: bool) -> BuilderValue:
    axes = _axes(x, dims)
    return ctx(op, x, axes=axes, keep=keep) if len(x.shape) > 0 and axes else x


@lowers("sum.default", "sum.dim_IntList")
def sum_(ctx: Context, x: BuilderValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> BuilderValue:
    return _reduce(ctx, "sum", ctx.cast(x, ctx.out_dtype), dim, keepdim)


@lowers("mean.default", "mean.dim")
def mean(ctx: Context, x: BuilderValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> BuilderValue:
    return _reduce(ctx, "mean", ctx.cast(x, ctx.out_dtype), dim, keepdim)


@lowers("amax.default")
def amax(ctx: Context, x: BuilderValue, dim: Any = (), keepdim: bool = False) -> BuilderValue:
    return _reduce(ctx, "max", x, list(dim), keepdim)


@lowers("amin.default")
def amin(ctx: Context, x: BuilderValue, dim: Any = (), keepdim: bool = False) -> BuilderValue:
    return ctx("neg", _reduce(ctx, "max", ctx("neg", x), list(dim), keepdim))


@lowers("max.default")
def max_(ctx: Context, x: BuilderValue) -> BuilderValue:
    return _reduce(ctx, "max", x, None, False)


@lowers("any.default", "any.dim")
def any_(ctx: Context, x: BuilderValue, dim: Any = None, keepdim: bool = False) -> BuilderValue:
    counted = ctx.cast(ctx.cast(x, "bool"), "i64")
    return ctx.cast(_reduce(ctx, "sum", counted, dim, keepdim), "bool")


@lowers("all.default", "all.dim")
def all_(ctx: Context, x: BuilderValue, dim: Any = None, keepdim: bool = False) -> BuilderValue:
    return ctx("logical_not", any_(ctx, ctx("logical_not", ctx.cast(x, "bool")), dim, keepdim))


def _variance(ctx: Context, x: BuilderValue, dim: Any, correction: Any, keepdim: bool) -> BuilderValue:
    """Mean of squared distances to the mean, over n - correction."""
    centred = ctx("sub", x, _reduce(ctx, "mean", x, dim, True))
    squares = ctx("mul", centred, centred)
    correction = 1 if correction is None else correction
    if correction == 0:
        return _reduce(ctx, "mean", squares, dim, keepdim)
    extent = product([x.shape[axis] for axis in _axes(x, dim)])
    count = ctx.scalar(float(extent - correction) if isinstance(extent, int) else f"{extent} - {correction}", x.dtype)
    return ctx("div", _reduce(ctx, "sum", squares, dim, keepdim), count)


@lowers("var.dim", "var.default")
def var_unbiased(
    ctx: Context, x: BuilderValue, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> BuilderValue:
    return _variance(ctx, x, dim, int(unbiased), keepdim)


@lowers("var.correction")
def var(ctx: Context, x: BuilderValue, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _variance(ctx, x, dim, correction, keepdim)


@lowers("std.dim", "std.default")
def std_unbiased(
    ctx: Context, x: BuilderValue, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> BuilderValue:
    return ctx("sqrt", _variance(ctx, x, dim, int(unbiased), keepdim))


@lowers("std.correction")
def std(ctx: Context, x: BuilderValue, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return ctx("sqrt", _variance(ctx, x, dim, correction, keepdim))


# --- Softmax


@lowers("softmax.int", "_softmax.default")
def softmax(ctx: Context, x: BuilderValue, dim: int, _dtype: Any = None, **_kwargs: Any) -> BuilderValue:
    x = ctx.cast(x, ctx.out_dtype)
    axis, last = axis_of(x, dim), len(x.shape) - 1
    if axis >= last:
        return ctx("softmax", x, axis=last) if x.shape else ctx.scalar(1.0, x.dtype)
    perm = list(range(len(x.shape)))
    perm[axis], perm[last] = last, axis
    return ctx.transpose(ctx("softmax", ctx.transpose(x, perm), axis=last), perm)


@lowers("log_softmax.int", "_log_softmax.default")
def log_softmax(ctx: Context, x: BuilderValue, dim: int, _dtype: Any = None, **_kwargs: Any) -> BuilderValue:
    x = ctx.cast(x, ctx.out_dtype)
    shifted = ctx("sub", x, ctx("max", x, axes=[axis_of(x, dim)], keep=True))
    return ctx("sub", shifted, ctx("log", ctx("sum", ctx("exp", shifted), axes=[axis_of(x, dim)], keep=True)))


# --- Norms over the last axis


def _last_axis(x: BuilderValue, normalized_shape: Sequence[Any]) -> None:
    if len(normalized_shape) != 1:
        raise Refused(f"a norm over {len(normalized_shape)} axes is not supported, only over the last one")


@lowers("layer_norm.default")
def layer_norm(
    ctx: Context,
    x: BuilderValue,
    normalized_shape: Sequence[Any],
    weight: BuilderValue | None = None,
    bias: BuilderValue | None = None,
    eps: float = 1e-5,
    _cudnn_enable: bool = True,
) -> BuilderValue:
    _last_axis(x, normalized_shape)
    return ctx("layer_norm", x, weight, bias, eps=eps)


@lowers("rms_norm.default")
def rms_norm(
    ctx: Context,
    x: BuilderValue,
    normalized_shape: Sequence[Any],
    weight: BuilderValue | None = None,
    eps: float | None = None,
) -> BuilderValue:
    _last_axis(x, normalized_shape)
    if weight is None:
        ones = torch.ones([int(size) for size in normalized_shape], dtype=TORCH[x.dtype])
        weight = ctx.constant(f"{ctx.place.name}.ones", ones)
    return ctx("rms_norm", x, weight, eps=torch.finfo(TORCH[x.dtype]).eps if eps is None else eps)


@lowers("native_layer_norm.default")
def native_layer_norm(
    ctx: Context, x: BuilderValue, normalized_shape: Sequence[Any], weight: Any, bias: Any, eps: float
) -> list[BuilderValue]:
    """With the mean and the reciprocal of the deviation, which are dead code unless somebody reads them."""
    _last_axis(x, normalized_shape)
    average = ctx("mean", x, axes=[len(x.shape) - 1], keep=True)
    variance = _variance(ctx, x, [-1], 0, True)
    rstd = ctx("rsqrt", ctx("add", variance, ctx.scalar(eps, x.dtype)))
    return [ctx("layer_norm", x, weight, bias, eps=eps), average, rstd]


# --- Along an axis


@lowers("cumsum.default")
def cumsum(ctx: Context, x: BuilderValue, dim: int, *, dtype: Any = None) -> BuilderValue:
    if not x.shape:
        return ctx.cast(x, ctx.out_dtype)
    return ctx.cast(ctx("cumsum", ctx.cast(x, ctx.out_dtype), axis=axis_of(x, dim)), ctx.out_dtype)


@lowers("diff.default")
def diff(
    ctx: Context,
    x: BuilderValue,
    n: int = 1,
    dim: int = -1,
    prepend: BuilderValue | None = None,
    append: BuilderValue | None = None,
) -> BuilderValue:
    if n != 1 or x.dtype == "bool":
        raise Refused("only first differences of numbers are supported")
    axis = axis_of(x, dim)
    parts = [part for part in (prepend, x, append) if part is not None]
    whole = ctx("concat", *parts, axis=axis) if len(parts) > 1 else x
    extent = whole.shape[axis]
    last = extent - 1 if isinstance(extent, int) else f"{extent} - 1"
    return ctx("sub", ctx.slice(whole, axis, 1, extent), ctx.slice(whole, axis, 0, last))


@lowers("batch_norm.default")
def batch_norm(
    ctx: Context,
    x: BuilderValue,
    weight: BuilderValue | None,
    bias: BuilderValue | None,
    mean: BuilderValue | None,
    var: BuilderValue | None,
    training: bool,
    _momentum: float,
    eps: float,
    *_args: Any,
) -> BuilderValue:
    """x * scale + shift over axis 1, from the statistics that were kept: scale = weight / sqrt(var + eps)."""
    if training or mean is None or var is None:
        raise Refused("statistics of the batch itself are not supported, only those kept by training")
    scale = ctx("rsqrt", ctx("add", ctx.cast(var, "f32"), ctx.scalar(eps, "f32")))
    if weight is not None:
        scale = ctx("mul", scale, ctx.cast(weight, "f32"))
    shift = ctx("neg", ctx("mul", ctx.cast(mean, "f32"), scale))
    if bias is not None:
        shift = ctx("add", shift, ctx.cast(bias, "f32"))
    along = [x.shape[1], *[1] * (len(x.shape) - 2)]
    scaled = ctx("mul", ctx.cast(x, "f32"), ctx.reshape(scale, along))
    return ctx.cast(ctx("add", scaled, ctx.reshape(shift, along)), ctx.out_dtype)
