# SPDX-License-Identifier: Apache-2.0
"""Operators that only move or view elements. Shapes of results are those that export found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atb._core import BuilderValue

from atb_torch.context import Context, axis_of
from atb_torch.errors import Refused
from atb_torch.lowering.registry import lowers
from atb_torch.symbols import Dim, product

# --- Views of all elements in their order


@lowers(
    "view.default",
    "reshape.default",
    "_unsafe_view.default",
    "view_as.default",
    "reshape_as.default",
    "unsqueeze.default",
    "flatten.using_ints",
    "unflatten.int",
)
def reshape(ctx: Context, x: BuilderValue, *_args: Any, **_kwargs: Any) -> BuilderValue:
    return ctx.reshape(x, ctx.out_shape)


@lowers("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(ctx: Context, x: BuilderValue, dims: Any = None) -> BuilderValue:
    """Axes of size 1 go. One of variable size stays, so the program is not right where that size is 1."""
    axes = range(len(x.shape)) if dims is None else [dims] if isinstance(dims, int) else dims
    for axis in axes:
        extent = x.shape[axis] if x.shape else 1
        if not isinstance(extent, int):
            ctx.not_one.update(ctx.symbols.in_text(extent))
    return ctx.reshape(x, ctx.out_shape)


@lowers("view.dtype")
def view_dtype(ctx: Context, x: BuilderValue, _dtype: Any) -> BuilderValue:
    if x.dtype != ctx.out_dtype:
        raise Refused(f"a view of the bits of {x.dtype} as {ctx.out_dtype} is not supported; .to() converts values")
    return x


# --- Permutations of axes


@lowers("transpose.int", "swapaxes.default", "swapdims.default")
def transpose(ctx: Context, x: BuilderValue, dim0: int, dim1: int) -> BuilderValue:
    perm = list(range(len(x.shape)))
    if perm:
        a, b = axis_of(x, dim0), axis_of(x, dim1)
        perm[a], perm[b] = perm[b], perm[a]
    return ctx.transpose(x, perm)


@lowers("permute.default")
def permute(ctx: Context, x: BuilderValue, dims: Sequence[int]) -> BuilderValue:
    return ctx.transpose(x, [axis_of(x, axis) for axis in dims])


@lowers("t.default", "numpy_T.default")
def reverse_axes(ctx: Context, x: BuilderValue) -> BuilderValue:
    return ctx.transpose(x, list(range(len(x.shape)))[::-1])


@lowers("mT.default", "adjoint.default")
def transpose_matrix(ctx: Context, x: BuilderValue) -> BuilderValue:
    return transpose(ctx, x, -2, -1)


@lowers("movedim.int", "movedim.intlist")
def movedim(ctx: Context, x: BuilderValue, source: Any, destination: Any) -> BuilderValue:
    listed = [[axis] if isinstance(axis, int) else axis for axis in (source, destination)]
    moves = {axis_of(x, to): axis_of(x, axis) for axis, to in zip(*listed, strict=True)}
    rest = iter(axis for axis in range(len(x.shape)) if axis not in moves.values())
    return ctx.transpose(x, [moves[to] if to in moves else next(rest) for to in range(len(x.shape))])


# --- Repetition


@lowers("expand.default", "expand_as.default", "broadcast_to.default")
def expand(ctx: Context, x: BuilderValue, *_args: Any, **_kwargs: Any) -> BuilderValue:
    return ctx.broadcast(x, ctx.out_shape)


@lowers("repeat.default", "tile.default")
def repeat(ctx: Context, x: BuilderValue, repeats: Sequence[Dim]) -> BuilderValue:
    """Axis by axis [n] -> [1, n] -> [r, n] -> [r * n]."""
    rank = max(len(repeats), len(x.shape))
    shape: list[Dim] = [*[1] * (rank - len(x.shape)), *x.shape]
    counts: list[Dim] = [*[1] * (rank - len(repeats)), *repeats]
    paired = [pair for extent in shape for pair in (1, extent)]
    spread = [pair for count, extent in zip(counts, shape, strict=True) for pair in (count, extent)]
    return ctx.reshape(ctx.broadcast(ctx.reshape(x, paired), spread), ctx.out_shape)


@lowers("repeat_interleave.self_int")
def repeat_interleave(
    ctx: Context, x: BuilderValue, repeats: Dim, dim: int | None = None, **_kwargs: Any
) -> BuilderValue:
    """Each element of the axis `repeats` times: [n] -> [n, 1] -> [n, r] -> [n * r]."""
    if dim is None:
        x, dim = ctx.reshape(x, [product(x.shape)]), 0
    axis = axis_of(x, dim)
    before, after = list(x.shape[: axis + 1]), list(x.shape[axis + 1 :])
    spread = ctx.broadcast(ctx.reshape(x, [*before, 1, *after]), [*before, repeats, *after])
    return ctx.reshape(spread, ctx.out_shape)


# --- Joining


@lowers("cat.default", "concat.default")
def cat(ctx: Context, tensors: Sequence[BuilderValue], dim: int = 0) -> BuilderValue:
    # Tensors of shape [0] join anything: a rule of torch from before tensors could be empty.
    parts = [ctx.cast(x, ctx.out_dtype) for x in tensors if x.shape != (0,)]
    if not parts:
        return tensors[0]
    return ctx("concat", *parts, axis=axis_of(parts[0], dim)) if len(parts) > 1 else parts[0]


@lowers("stack.default")
def stack(ctx: Context, tensors: Sequence[BuilderValue], dim: int = 0) -> BuilderValue:
    axis = dim + len(tensors[0].shape) + 1 if dim < 0 else dim
    parts = []
    for x in tensors:
        parts.append(ctx.reshape(ctx.cast(x, ctx.out_dtype), [*x.shape[:axis], 1, *x.shape[axis:]]))
    return ctx("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]
