# SPDX-License-Identifier: Apache-2.0
"""What an exported program takes for granted of its inputs, checked at each call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

Shapes = Sequence[Sequence[int]]
Condition = Callable[[Shapes], bool]


@dataclass
class Guards:
    """The calls that a program is right for: dtypes, ranks, sizes, and what export found while it traced.

    `ones` are the symbols that are 1 in a call though export took every dynamic size to be 2 or more.
    """

    tensors: list[torch.Tensor] = field(default_factory=list)  # as export saw them
    conditions: list[Condition] = field(default_factory=list)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)  # of symbols, by sympy name
    not_one: set[str] = field(default_factory=set)  # symbols on which the program depends at 1
    merged: dict[str, int | str] = field(default_factory=dict)  # symbols that equal another one, or a number

    def bind(self, tensors: Sequence[torch.Tensor]) -> dict[str, int] | None:
        """The sizes of symbols in a call; None if the program is not right for it."""
        if len(tensors) != len(self.tensors):
            return None
        sizes: dict[str, int] = {}
        derived: list[tuple[sympy.Expr, int]] = []
        for known, given in zip(self.tensors, tensors, strict=True):
            if known.dtype != given.dtype or known.dim() != given.dim():
                return None
            for size, actual in zip(known.shape, given.shape, strict=True):
                expr = size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
                if expr.is_Symbol:
                    if sizes.setdefault(str(expr), actual) != actual:
                        return None
                else:
                    derived.append((expr, actual))
        for name, other in self.merged.items():
            if sizes.get(name) != (other if isinstance(other, int) else sizes.get(other)):
                return None
        if not self._in_ranges(sizes) or any(evaluate(expr, sizes) != actual for expr, actual in derived):
            return None
        shapes = [tuple(tensor.shape) for tensor in tensors]
        return sizes if all(condition(shapes) for condition in self.conditions) else None

    def like(self, sizes: dict[str, int]) -> list[torch.Tensor]:
        """Tensors without data whose symbols have these sizes."""

        def value(size: Any) -> int:
            return int(evaluate(size.node.expr, sizes) if isinstance(size, torch.SymInt) else size)

        return [
            torch.empty([value(size) for size in known.shape], dtype=known.dtype, device="meta")
            for known in self.tensors
        ]

    def _in_ranges(self, sizes: dict[str, int]) -> bool:
        for name, size in sizes.items():
            low, high = self.ranges.get(name, (1, size))
            if not low <= size <= high or (size == 1 and name in self.not_one):
                return False
        return True


def evaluate(expr: sympy.Basic, sizes: dict[str, int]) -> Any:
    """An expression over symbols at their sizes; None if one is not known."""
    symbols = {symbol: sizes.get(str(symbol)) for symbol in expr.free_symbols}
    if any(size is None for size in symbols.values()):
        return None
    return expr.xreplace({symbol: sympy.Integer(size) for symbol, size in symbols.items()})


def guards_of(program: torch.export.ExportedProgram) -> Guards:
    """What export found. Ranges of symbols are added by who defines them."""
    user = set(program.graph_signature.user_inputs)
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in user]
    guards = Guards([node.meta["val"] for node in placeholders])
    for code in getattr(program, "_guards_code", None) or []:
        condition = _shape_condition(code)
        if condition is not None:
            guards.conditions.append(condition)
    for node in program.graph.nodes:
        if str(node.target) == "aten._assert_scalar.default" and isinstance(node.args[0], torch.fx.Node):
            value = node.args[0].meta.get("val")
            if isinstance(value, torch.SymBool):
                guards.conditions.append(_symbol_condition(value.node.expr, guards))
    return guards


def _shape_condition(code: str) -> Condition | None:
    """Code such as "L['tensors'][0].size()[1] >= 3", whose names are the call's tensors in their order."""
    body = re.sub(r"L\['\w+'\]\[(\d+)\]\.size\(\)\[(\d+)\]", r"shapes[\1][\2]", code)
    if "L[" in body:
        return None  # about values that are no sizes, which a program is kept for
    names = {"bool": bool, "min": min, "max": max, "Min": min, "Max": max, "__builtins__": {}}
    return eval(f"lambda shapes: bool({body})", names)


def _symbol_condition(expr: sympy.Basic, guards: Guards) -> Condition:
    """An assertion of the program over its symbols."""
    places: dict[str, tuple[int, int]] = {}
    for number, tensor in enumerate(guards.tensors):
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                places.setdefault(str(size.node.expr), (number, axis))

    def holds(shapes: Shapes) -> bool:
        sizes = {name: shapes[number][axis] for name, (number, axis) in places.items()}
        return bool(evaluate(expr, sizes))

    return holds
