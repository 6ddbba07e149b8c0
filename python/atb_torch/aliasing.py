# SPDX-License-Identifier: Apache-2.0
"""Views and in-place operators as values: a write through any alias is seen through every other one.

Each tensor of the exported program is a chain of views of a storage. A storage holds the present value of its base; a
write puts a new value there, brought back through the chain; a tensor whose storage changed since it was last read is
viewed anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from atb._core import BuilderValue

from atb_torch.context import Context, axis_of
from atb_torch.errors import Refused
from atb_torch.lowering.indexing import _from_end, plus

Replay = Callable[[BuilderValue], BuilderValue]


@dataclass
class Storage:
    """The present value of a base tensor, and how often it was written. `base` is the node that made it."""

    base: torch.fx.Node
    value: BuilderValue
    version: int = 0


@dataclass
class View:
    """One step of a chain: `node` (an operator, and which of its results) views the tensor before it."""

    node: torch.fx.Node
    index: int | None
    replay: Replay


@dataclass
class Alias:
    """A tensor: a chain of views of a storage, and its value as of `version`."""

    storage: Storage
    chain: tuple[View, ...]
    value: BuilderValue
    version: int

    def read(self) -> BuilderValue:
        if self.version != self.storage.version:
            value = self.storage.value
            for view in self.chain:
                value = view.replay(value)
            self.value, self.version = value, self.storage.version
        return self.value

    def write(self, ctx: Context, value: BuilderValue) -> None:
        """Makes `value` the contents of this tensor, and so of its part of the storage."""
        befores = [self.storage.value]
        for view in self.chain[:-1]:
            befores.append(view.replay(befores[-1]))
        for view, before in zip(reversed(self.chain), reversed(befores), strict=True) if self.chain else ():
            value = scatter(ctx, view, before, value)
        self.storage.value = value
        self.storage.version += 1


def is_mutable(node: torch.fx.Node) -> bool:
    """Whether an operator writes to one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


def written_argument(node: torch.fx.Node) -> torch.fx.Node:
    """The one argument that an operator writes to. `Refused` where there are several."""
    arguments = node.target._schema.arguments
    written = [i for i, argument in enumerate(arguments) if argument.alias_info and argument.alias_info.is_write]
    if written != [0] or not isinstance(node.args[0], torch.fx.Node):
        raise Refused("an operator that writes to other tensors than its first argument is not supported")
    return node.args[0]


# Composite operators that return their argument itself, which their schemas do not tell.
_RETURNS_ARGUMENT = ("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default")


def viewed_argument(node: torch.fx.Node) -> torch.fx.Node | None:
    """The argument that a node's result shares memory with; None for a result of its own.

    Export recorded it: operators such as reshape and contiguous view where they can and copy otherwise.
    """
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    result, argument = node.meta.get("val"), node.args[0].meta.get("val")
    if isinstance(result, (list, tuple)):  # of these export records nothing
        return node.args[0] if any(part.alias_info is not None for part in schema.returns) else None
    if not isinstance(result, torch.Tensor) or not isinstance(argument, torch.Tensor):
        return None
    shared = result.untyped_storage()._cdata == argument.untyped_storage()._cdata
    return node.args[0] if shared or str(node.target) in _RETURNS_ARGUMENT else None


# --- The other way through a view


def scatter(ctx: Context, view: View, before: BuilderValue, value: BuilderValue) -> BuilderValue:
    """`before` with the part that `view` shows replaced by `value`."""
    name = str(view.node.target).removeprefix("aten.")
    args = view.node.args
    if name in _SAME_ELEMENTS:
        return ctx.reshape(value, before.shape)
    if name in _PERMUTATIONS:
        return ctx.transpose(value, _inverse(_permutation(name, before, args)))
    if name in _PARTS:
        return _scatter_part(ctx, view, name, before, value)
    raise Refused(f"writing in place through a view by {view.node.target} is not supported")


_SAME_ELEMENTS = {
    "alias.default",
    "alpha_dropout.default",
    "contiguous.default",
    "detach.default",
    "dropout.default",
    "feature_dropout.default",
    "flatten.using_ints",
    "positive.default",
    "reshape.default",
    "reshape_as.default",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
    "to.device",
    "to.dtype",
    "to.dtype_layout",
    "to.other",
    "type_as.default",
    "unflatten.int",
    "unsqueeze.default",
    "view.default",
    "view_as.default",
}
_PERMUTATIONS = {
    "mT.default",
    "numpy_T.default",
    "permute.default",
    "swapaxes.default",
    "swapdims.default",
    "t.default",
    "transpose.int",
}
_PARTS = {
    "chunk.default",
    "narrow.default",
    "select.int",
    "slice.Tensor",
    "split.Tensor",
    "split.sizes",
    "split_with_sizes.default",
    "unbind.int",
}


def _permutation(name: str, x: BuilderValue, args: tuple[Any, ...]) -> list[int]:
    rank = len(x.shape)
    perm = list(range(rank))
    if name == "permute.default":
        return [axis_of(x, axis) for axis in args[1]]
    if name in ("t.default", "numpy_T.default"):
        return perm[::-1]
    a, b = (-2, -1) if name == "mT.default" else args[1:3]
    if rank:
        a, b = axis_of(x, a), axis_of(x, b)
        perm[a], perm[b] = perm[b], perm[a]
    return perm


def _inverse(perm: list[int]) -> list[int]:
    return [perm.index(axis) for axis in range(len(perm))]


def _scatter_part(ctx: Context, view: View, name: str, before: BuilderValue, value: BuilderValue) -> BuilderValue:
    """Puts `value` between what lies before and after it on the axis."""
    node = view.node
    default = 0
    at = {"slice.Tensor": 1, "narrow.default": 1, "select.int": 1, "unbind.int": 1}.get(name, 2)
    axis = axis_of(before, node.args[at] if len(node.args) > at else node.kwargs.get("dim", default))
    extent = before.shape[axis]
    if name == "slice.Tensor" and (node.args[4] if len(node.args) > 4 else 1) != 1:
        raise Refused("writing in place through a slice with a step is not supported")
    if name in ("select.int", "unbind.int"):
        value = ctx.reshape(value, [*before.shape[:axis], 1, *before.shape[axis + 1 :]])
    begin = _begin(ctx, view, name, axis, extent)
    end = plus(begin, value.shape[axis])
    parts = []
    if begin != 0:
        parts.append(ctx.slice(before, axis, 0, begin))
    parts.append(value)
    if end != extent:
        parts.append(ctx.slice(before, axis, end, extent))
    return ctx("concat", *parts, axis=axis) if len(parts) > 1 else value


def _begin(ctx: Context, view: View, name: str, axis: int, extent: Any) -> Any:
    """Where the part begins on its axis."""
    node = view.node
    if name in ("slice.Tensor", "narrow.default", "select.int"):
        start = node.args[2] if len(node.args) > 2 else None
        if isinstance(start, torch.fx.Node):
            start = ctx.symbols.dim(start.meta["val"])
        return _from_end(0 if start is None else start, extent)
    if name == "unbind.int":
        return view.index
    begin: Any = 0
    for part in node.meta["val"][: view.index]:
        begin = plus(begin, ctx.symbols.dim(part.shape[axis]))
    return begin
