# SPDX-License-Identifier: Apache-2.0
"""What lowering functions write with: nodes, constants, casts and view helpers on values of the graph being built."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from atb._core import BuilderValue, GraphBuilder

from atb_torch.checks import plain
from atb_torch.dtypes import FLOATS, TORCH, dtype_name
from atb_torch.errors import Refused, Unequal
from atb_torch.symbols import Dim, SymbolNames

_LAYER = re.compile(r"[A-Za-z_]\w*\.(\d+)(?:\.|$)")


@dataclass
class Place:
    """Where a node comes from: its name in the exported graph, its module, its transformer layer (-1: none)."""

    name: str = ""
    scope: str = ""
    layer: int = -1


def layer_of(scope: str) -> int:
    """Number of the first numbered member of a module list: "model.layers.3.mlp" -> 3; -1 if there is none."""
    found = _LAYER.search(scope)
    return int(found.group(1)) if found else -1


@dataclass(frozen=True)
class Cached:
    """An attention that appends to a cache: its scope, its block, heads of its keys, and the tokens of a call."""

    scope: str
    block: Any
    heads: int
    features: int
    tokens: Dim


@dataclass
class Context:
    """The graph under construction and the operator being lowered.

    `out` is what export says of the operator's result: a FakeTensor, or a list of them.
    """

    builder: GraphBuilder
    symbols: SymbolNames
    place: Place = field(default_factory=Place)
    out: Any = None
    example: dict[str, int] = field(default_factory=dict)  # sizes in the example, by sympy name
    not_one: set[str] = field(default_factory=set)  # sizes, by sympy name, for which the program is wrong at 1
    made: list[str] = field(default_factory=list)  # nodes of the operator being lowered, by name
    kernels: dict[str, Any] = field(default_factory=dict)  # of declared blocks, in Python
    cached: list[Cached] = field(default_factory=list)  # in the order of their calls
    positions: BuilderValue | None = None  # the input that says where a cached call's tokens stand
    _scalars: dict[tuple[str, str], BuilderValue] = field(default_factory=dict)

    # --- results as export describes them

    @property
    def out_dtype(self) -> str:
        return dtype_name(self.out.dtype)

    @property
    def out_shape(self) -> tuple[Dim, ...]:
        return self.symbols.shape(self.out.shape)

    # --- nodes

    def __call__(self, op: str, *inputs: BuilderValue | None, **attrs: Any) -> BuilderValue:
        """Appends a node; its first result."""
        return self.node(op, *inputs, **attrs)[0]

    def node(self, op: str, *inputs: BuilderValue | None, **attrs: Any) -> list[BuilderValue]:
        place = self.place
        values = self.builder.node(op, list(inputs), attrs, place.name, place.layer, place.scope)
        self.made.append(values[0].name)
        return values

    # --- constants

    def constant(self, name: str, tensor: torch.Tensor) -> BuilderValue:
        """The tensor's own memory where it is dense, else a copy. Its dtype stays."""
        dtype_name(tensor.dtype)
        return self.builder.add_constant(name, plain(tensor).contiguous())

    def scalar(self, number: Any, dtype: str) -> BuilderValue:
        """A constant of shape []; the same number and dtype give the same constant. A symbolic size is computed."""
        if isinstance(number, str):
            return self.cast(self._size(number), dtype)
        key = (repr(number), dtype)
        if key not in self._scalars:
            self._scalars[key] = self.constant(f"c{len(self._scalars)}", torch.tensor(number, dtype=TORCH[dtype]))
        return self._scalars[key]

    def _size(self, dim: str) -> BuilderValue:
        """A symbolic size as an i32 number: the last one counted up to it."""
        counted = self("iota", shape=[f"{dim} + 1"])
        return self.reshape(self("slice", counted, axis=0, bounds=[dim, f"{dim} + 1"]), ())

    # --- conversions and views; each is the value itself where nothing changes

    def cast(self, x: BuilderValue, dtype: str) -> BuilderValue:
        return x if x.dtype == dtype else self("cast", x, dtype=dtype)

    def reshape(self, x: BuilderValue, shape: Sequence[Dim]) -> BuilderValue:
        return x if tuple(shape) == x.shape else self("reshape", x, shape=list(shape))

    def transpose(self, x: BuilderValue, perm: Sequence[int]) -> BuilderValue:
        return x if list(perm) == list(range(len(x.shape))) else self("transpose", x, perm=list(perm))

    def broadcast(self, x: BuilderValue, shape: Sequence[Dim]) -> BuilderValue:
        return x if tuple(shape) == x.shape else self("broadcast", x, shape=list(shape))

    def slice(self, x: BuilderValue, axis: int, begin: Dim, end: Dim, step: int = 1) -> BuilderValue:
        """Elements begin, begin + step, ... before `end`, all within the axis."""
        if begin == 0 and end == x.shape[axis] and step == 1:
            return x
        return self("slice", x, axis=axis, bounds=[begin, end], step=step)

    # --- sizes that an operator needs to be equal

    def require_equal(self, a: Dim, b: Dim) -> None:
        """Makes two sizes equal for the whole program, where both are sizes of inputs."""
        if a != b:
            size, other = (a, b) if isinstance(a, str) else (b, a)
            if not isinstance(size, str) or self.symbols.of(size) is None:
                raise Refused(f"the sizes {a} and {b} must be equal")
            raise Unequal(size, other)

    def static(self, dim: Dim, what: str) -> int:
        """A size that must be a number: that of the example, for the whole program."""
        if isinstance(dim, int):
            return dim
        if self.symbols.of(dim) is None:
            raise Refused(f"{what}, {dim}, must be a number")
        raise Unequal(dim, self.example[str(self.symbols.of(dim))])

    # --- operands

    def operand(self, x: Any, dtype: str) -> BuilderValue:
        """A tensor or a number as a value of `dtype`."""
        return self.cast(x, dtype) if isinstance(x, BuilderValue) else self.scalar(x, dtype)

    def promoted(self, a: Any, b: Any) -> str:
        """The dtype in which PyTorch computes an elementwise operator of tensors and numbers."""
        samples = [
            torch.empty((1,) if x.shape else (), dtype=TORCH[x.dtype])
            if isinstance(x, BuilderValue)
            else (0 if isinstance(x, str) else x)
            for x in (a, b)
        ]
        return dtype_name(torch.result_type(samples[0], samples[-1]))


def axis_of(x: BuilderValue, axis: int) -> int:
    """A non-negative axis; torch has checked the range. An operand of rank 0 has one axis, as torch sees it."""
    return axis + max(len(x.shape), 1) if axis < 0 else axis


def is_float(x: BuilderValue) -> bool:
    return x.dtype in FLOATS
