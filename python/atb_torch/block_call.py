# SPDX-License-Identifier: Apache-2.0
"""A call of a `GraphOp`: its arguments checked, and the form that decides which graph serves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from atb.errors import InvalidArgumentError
from torch._subclasses.fake_tensor import FakeTensor

from atb_torch.checks import check_tensor, plain
from atb_torch.dtypes import NAMES

Dims = tuple[int | str, ...]
SIGNATURE = "block(x, key=None, value=None, residual=None, *, kv_cache=None, attention_mask=None, positions=None)"


def wrong_call(what: str) -> NoReturn:
    """Raises `atb.InvalidArgumentError` with the signature of blocks."""
    raise InvalidArgumentError(f"[GraphOp] {what}; the call is {SIGNATURE}")


def wrong_inputs(error: InvalidArgumentError, call: BlockCall) -> NoReturn:
    """Raises an error of an item again, with what the call gave and the signature of blocks."""
    given = ", ".join(
        f"{name} {dtype} {list(tensor.shape)}"
        for (name, dtype, _), tensor in zip(call.inputs, call.tensors, strict=True)
    )
    raise InvalidArgumentError(f"{error}; given {given}; the call is {SIGNATURE}") from None


@dataclass
class BlockCall:
    """Tensors of a call with the names and dims of the graph's inputs."""

    inputs: list[tuple[str, str, Dims]] = field(default_factory=list)  # name, dtype, dims over B, T, S
    tensors: list[torch.Tensor] = field(default_factory=list)
    batched: bool = True  # x came with a batch axis

    @property
    def form(self) -> tuple[Any, ...]:
        """What two calls that one graph serves have in common."""
        return tuple(self.inputs)

    @property
    def tokens(self) -> int:
        return self.tensors[0].shape[1]

    def add(self, name: str, tensor: torch.Tensor, dims: Dims) -> None:
        """Another input, after the shapes that its dims name have been checked."""
        self.inputs.append((name, NAMES[tensor.dtype], dims))
        self.tensors.append(plain(tensor))


def take_call(
    x: Any,
    key: Any = None,
    value: Any = None,
    residual: Any = None,
    attention_mask: Any = None,
    positions: Any = None,
    past: int | None = None,
) -> BlockCall:
    """The call that these arguments make. Raises `atb.InvalidArgumentError` for ranks and shapes that do not fit.

    past: tokens that the call's cache holds, which a mask is for too; None: there is no cache.
    """
    given = {"x": x, "key": key, "value": value, "residual": residual}
    given |= {"attention_mask": attention_mask, "positions": positions}
    for name, tensor in given.items():
        if tensor is not None or name == "x":
            _check(name, tensor)
    batch_axis = 3 if x.is_floating_point() else 2
    if x.dim() not in (batch_axis - 1, batch_axis) or x.numel() == 0:
        wrong_call(f"x is {list(x.shape)}; expected [batch, tokens, features], or token ids [batch, tokens]")
    call = BlockCall(batched=x.dim() == batch_axis)
    if not call.batched:
        x, key, value, residual = (
            None if t is None else t[None] for t in (x, _other(key, x), _other(value, x), residual)
        )
    batch, tokens = x.shape[:2]
    call.add("x", x, ("B", "T", *x.shape[2:]))
    key_length = _add_keys(call, x, _other(key, x), _other(value, x))
    if residual is not None:
        if residual.dim() != 3 or residual.shape[:2] != x.shape[:2]:
            wrong_call(f"residual is {list(residual.shape)}; expected [{batch}, {tokens}, features]")
        call.add("residual", residual, ("B", "T", residual.shape[2]))
    if attention_mask is not None:
        _add_mask(call, attention_mask, key_length, past)
    if positions is not None:
        _add_positions(call, positions, batch, tokens)
    return call


def is_traced(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a call is only looked at: by export, or on tensors without data."""
    return torch.compiler.is_exporting() or any(isinstance(tensor, FakeTensor) for tensor in tensors)


def _check(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        wrong_call(f"{name} is a {type(tensor).__name__}, expected a tensor")
    check_tensor(name, tensor, gradients=True, fake=True)


def _other(tensor: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    return None if tensor is x else tensor


def _add_keys(call: BlockCall, x: torch.Tensor, key: Any, value: Any) -> int:
    """Adds key and value; returns the number of keys."""
    streams = {name: tensor for name, tensor in (("key", key), ("value", value)) if tensor is not None}
    length = x.shape[1]
    for name, tensor in streams.items():
        if tensor.dim() != x.dim() or tensor.shape[0] != x.shape[0] or tensor.numel() == 0:
            wrong_call(f"{name} is {list(tensor.shape)}; expected {x.shape[0]} sequences, as x {list(x.shape)}")
        length = tensor.shape[1]
        call.add(name, tensor, ("B", "T" if length == x.shape[1] else "S", *tensor.shape[2:]))
    keys, values = ((x if tensor is None else tensor).shape[1] for tensor in (key, value))
    if keys != values:
        counts = sorted((keys, values))
        wrong_call(f"key and value have {counts} tokens, expected equal numbers (x stands for one not given)")
    return length


def _add_mask(call: BlockCall, mask: torch.Tensor, own: int, past: int | None) -> None:
    """own: keys of the call; with `past` of them in a cache before, S stands for all."""
    batch, tokens = call.tensors[0].shape[:2]
    keys = own + (past or 0)
    if not mask.is_floating_point():
        mask = mask != 0
    wanted = {
        2: (batch, keys),
        3: (batch, tokens, keys),
        4: (batch, mask.shape[1] if mask.dim() == 4 else 0, tokens, keys),
    }
    names: dict[int, tuple[Any, ...]] = {2: ("B", "S"), 3: ("B", "T", "S"), 4: ("B", 0, "T", "S")}
    expected = f"[{batch}, {keys}] (batch, keys), [{batch}, {tokens}, {keys}] or [{batch}, heads, {tokens}, {keys}]"
    if past is not None:
        expected += f": {keys} keys are the {past} in the cache and the call's {own}"
    if mask.dim() not in wanted:
        wrong_call(f"attention_mask is {list(mask.shape)}; expected {expected}")
    unknown = past is not None and is_traced([mask])  # what a cache holds is another number at each call
    dims: list[int | str] = []
    for extent, full, name in zip(mask.shape, wanted[mask.dim()], names[mask.dim()], strict=True):
        if unknown and name == "S":
            dims.append("S")
            continue
        # One number for all keys would let a mask of a step's own tokens pass for one of all that the cache holds.
        if extent != full and (extent != 1 or name == "S"):
            wrong_call(f"attention_mask is {list(mask.shape)}; expected {expected}")
        symbol = "T" if name == "S" and past is None and own == tokens else name
        dims.append(symbol if isinstance(symbol, str) and extent == full else extent)
    call.add("attention_mask", mask, tuple(dims))


def _add_positions(call: BlockCall, positions: torch.Tensor, batch: int, tokens: int) -> None:
    shape = tuple(positions.shape)
    if positions.dtype not in (torch.int32, torch.int64) or shape not in ((tokens,), (batch, tokens), (1, tokens)):
        wrong_call(f"positions is {positions.dtype} {list(shape)}; expected int64 [{tokens}] or [{batch}, {tokens}]")
    if shape == (1, tokens):
        positions = positions[0]
    dims: Sequence[int | str] = ("B", "T") if positions.dim() == 2 else ("T",)
    call.add("positions", positions, tuple(dims))
