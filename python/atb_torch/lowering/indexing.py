# SPDX-License-Identifier: Apache-2.0
"""Selections by position, gathers by index tensors, and tensors made from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atb._core import BuilderValue

from atb_torch.context import Context, axis_of
from atb_torch.dtypes import INTEGERS
from atb_torch.errors import Refused
from atb_torch.lowering.registry import lowers
from atb_torch.symbols import Dim

# --- Parts of one axis


def plus(a: Dim, b: Dim) -> Dim:
    return a + b if isinstance(a, int) and isinstance(b, int) else f"{a} + {b}"


def _from_end(begin: Dim, extent: Dim) -> Dim:
    """A start that may count from the end, within the axis where that is known."""
    if not isinstance(begin, int):
        return begin
    if begin < 0:
        begin = extent + begin if isinstance(extent, int) else f"{extent} - {-begin}"
    if isinstance(begin, int) and isinstance(extent, int):
        begin = min(max(begin, 0), extent)
    return begin


@lowers("slice.Tensor")
def slice_(
    ctx: Context, x: BuilderValue, dim: int = 0, start: Dim | None = None, end: Any = None, step: int = 1
) -> BuilderValue:
    """The end follows from the extent that export found."""
    axis = axis_of(x, dim)
    extent = x.shape[axis]
    length = ctx.out_shape[axis]
    if length == extent:
        return x
    begin = _from_end(0 if start is None else start, extent)
    if step == 1:
        return ctx.slice(x, axis, begin, plus(begin, length))
    if not isinstance(length, int):
        if end is not None and not (isinstance(end, int) and end > 1 << 60):
            raise Refused("a slice with a step that ends within an axis of variable size is not supported")
        return ctx.slice(x, axis, begin, extent, step)
    return ctx.slice(x, axis, begin, plus(begin, (length - 1) * step + 1 if length else 0), step)


@lowers("narrow.default")
def narrow(ctx: Context, x: BuilderValue, dim: int, start: Dim, length: Dim) -> BuilderValue:
    axis = axis_of(x, dim)
    begin = _from_end(start, x.shape[axis])
    return ctx.slice(x, axis, begin, plus(begin, length))


@lowers("select.int")
def select(ctx: Context, x: BuilderValue, dim: int, index: Dim) -> BuilderValue:
    axis = axis_of(x, dim)
    begin = _from_end(index, x.shape[axis])
    return _drop_axis(ctx, ctx.slice(x, axis, begin, plus(begin, 1)), axis)


def _drop_axis(ctx: Context, x: BuilderValue, axis: int) -> BuilderValue:
    return ctx.reshape(x, [*x.shape[:axis], *x.shape[axis + 1 :]])


@lowers("split.Tensor", "split.sizes", "split_with_sizes.default", "chunk.default", "tensor_split.sections")
def split(ctx: Context, x: BuilderValue, _sizes: Any, dim: int = 0) -> list[BuilderValue]:
    """Parts of the extents that export found."""
    axis = axis_of(x, dim)
    parts = []
    begin: Dim = 0
    for part in ctx.out:
        end = plus(begin, ctx.symbols.dim(part.shape[axis]))
        parts.append(ctx.slice(x, axis, begin, end))
        begin = end
    return parts


@lowers("unbind.int")
def unbind(ctx: Context, x: BuilderValue, dim: int = 0) -> list[BuilderValue]:
    axis = axis_of(x, dim)
    return [_drop_axis(ctx, ctx.slice(x, axis, i, i + 1), axis) for i in range(len(ctx.out))]


# --- Index tensors


@lowers("embedding.default")
def embedding(ctx: Context, weight: BuilderValue, indices: BuilderValue, *_args: Any, **_kwargs: Any) -> BuilderValue:
    return ctx("embedding", indices, weight)


@lowers("index_select.default")
def index_select(ctx: Context, x: BuilderValue, dim: int, indices: BuilderValue) -> BuilderValue:
    return _index(ctx, x, {axis_of(x, dim): indices})


@lowers("index.Tensor")
def index(ctx: Context, x: BuilderValue, indices: Sequence[BuilderValue | None]) -> BuilderValue:
    return _index(ctx, x, {axis: values for axis, values in enumerate(indices) if values is not None})


@lowers("gather.default")
def gather(ctx: Context, x: BuilderValue, dim: int, indices: BuilderValue, **_kwargs: Any) -> BuilderValue:
    """x at the indices along one axis, and along each other axis at the element's own place."""
    if not x.shape:
        raise Refused("a gather from a tensor without axes is not supported")
    at = {}
    for axis, size in enumerate(indices.shape):
        at[axis] = ctx.reshape(ctx("iota", shape=[size]), [size if i == axis else 1 for i in range(len(x.shape))])
    return _index(ctx, x, {**at, axis_of(x, dim): indices})


def _index(ctx: Context, x: BuilderValue, indices: dict[int, BuilderValue]) -> BuilderValue:
    """x[..., i, j, ...]: the indexed axes go first, are taken, and the new axes go where the first of them was."""
    for values in indices.values():
        if values.dtype not in INTEGERS:
            raise Refused("an index by booleans gives a size that depends on their values")
    axes = sorted(indices)
    rest = [axis for axis in range(len(x.shape)) if axis not in indices]
    taken = ctx("take", ctx.transpose(x, axes + rest), *(indices[axis] for axis in axes))
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return taken  # indices apart: the new axes stay in front
    new = len(taken.shape) - len(rest)
    before = list(range(new, new + axes[0]))
    return ctx.transpose(taken, [*before, *range(new), *range(new + axes[0], len(taken.shape))])


# --- Tensors from nothing


def _filled(ctx: Context, number: Any) -> BuilderValue:
    return ctx.broadcast(ctx.operand(number, ctx.out_dtype), ctx.out_shape)


@lowers("full.default", "full_like.default", "new_full.default")
def full(ctx: Context, _like: Any, *args: Any, fill_value: Any = None, **_kwargs: Any) -> BuilderValue:
    return _filled(ctx, args[-1] if args else fill_value)


@lowers("zeros.default", "zeros_like.default", "new_zeros.default")
def zeros(ctx: Context, *_args: Any, **_kwargs: Any) -> BuilderValue:
    return _filled(ctx, _number(ctx, 0))


@lowers("ones.default", "ones_like.default", "new_ones.default")
def ones(ctx: Context, *_args: Any, **_kwargs: Any) -> BuilderValue:
    return _filled(ctx, _number(ctx, 1))


@lowers("scalar_tensor.default")
def scalar_tensor(ctx: Context, number: Any, **_kwargs: Any) -> BuilderValue:
    return ctx.scalar(number, ctx.out_dtype)


def _number(ctx: Context, number: int) -> Any:
    if ctx.out_dtype == "bool":
        return bool(number)
    return number if ctx.out_dtype in INTEGERS else float(number)


@lowers("arange.default", "arange.start", "arange.start_step")
def arange(ctx: Context, *args: Any, **_kwargs: Any) -> BuilderValue:
    """start + step * i for the number of elements that export found."""
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    out = ctx.cast(ctx("iota", shape=list(ctx.out_shape)), ctx.out_dtype)
    if step != 1:
        out = ctx("mul", out, ctx.operand(step, ctx.out_dtype))
    return out if start == 0 else ctx("add", out, ctx.operand(start, ctx.out_dtype))


# --- Triangles


def _triangle(ctx: Context, x: BuilderValue, diagonal: Dim, lower: bool) -> BuilderValue:
    """Keeps column <= row + diagonal (lower), or column >= row + diagonal, and is 0 elsewhere."""
    rows, columns = x.shape[-2:]
    row = ctx.reshape(ctx("iota", shape=[rows]), [rows, 1])
    column = ctx.reshape(ctx("iota", shape=[columns]), [1, columns])
    if diagonal != 0:
        row = ctx("add", row, ctx.operand(diagonal, "i32"))
    kept = ctx("less_equal", column, row) if lower else ctx("less_equal", row, column)
    if x.dtype == "bool":
        return ctx("logical_and", x, kept)
    return ctx("where", kept, x, ctx.scalar(_number(ctx, 0), x.dtype))


@lowers("tril.default")
def tril(ctx: Context, x: BuilderValue, diagonal: Dim = 0) -> BuilderValue:
    return _triangle(ctx, x, diagonal, True)


@lowers("triu.default")
def triu(ctx: Context, x: BuilderValue, diagonal: Dim = 0) -> BuilderValue:
    return _triangle(ctx, x, diagonal, False)


# --- Padding


@lowers("constant_pad_nd.default")
def constant_pad(ctx: Context, x: BuilderValue, pad: Sequence[Dim], value: Any = 0) -> BuilderValue:
    """pad: (before, after) of the last axis, then of the one before it, ...; where negative, that much is cut off."""
    counts = [ctx.static(count, "a width of padding") for count in pad]
    filling = ctx.operand(value, ctx.out_dtype)
    for axis, before, after in zip(reversed(range(len(x.shape))), counts[::2], counts[1::2], strict=False):
        x = _cut(ctx, x, axis, max(-before, 0), max(-after, 0))
        sides = [
            ctx.broadcast(filling, [*x.shape[:axis], width, *x.shape[axis + 1 :]]) if width > 0 else None
            for width in (before, after)
        ]
        parts = [part for part in (sides[0], x, sides[1]) if part is not None]
        x = ctx("concat", *parts, axis=axis) if len(parts) > 1 else x
    return x


def _cut(ctx: Context, x: BuilderValue, axis: int, before: int, after: int) -> BuilderValue:
    extent = x.shape[axis]
    end = extent - after if isinstance(extent, int) else f"{extent} - {after}" if after else extent
    return ctx.slice(x, axis, before, end)
