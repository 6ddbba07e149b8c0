# SPDX-License-Identifier: Apache-2.0
"""Sizes of exported programs (sympy expressions over s0, s1, ...) as ATB dims: ints, or text over named symbols."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import sympy
import torch

from atb_torch.errors import Refused

Dim: TypeAlias = "int | str"

_FUNCTIONS: dict[str, str] = {
    "FloorDiv": "floordiv",
    "CleanDiv": "floordiv",  # a division that export has proven exact
    "Mod": "mod",
    "PythonMod": "mod",
    "Min": "min",
    "Max": "max",
}


class SymbolNames:
    """Names of the symbols of one exported program: B and T for batch and tokens, S0, S1, ... for others."""

    def __init__(self, merged: Mapping[str, int | str] | None = None) -> None:
        """merged: symbols that equal another one, or a number, in every call; all by sympy name."""
        self._names: dict[str, str] = {}
        self._merged = dict(merged or {})

    def define(self, symbol: sympy.Symbol | str, wanted: str | None = None) -> str:
        """Gives `symbol` a name, `wanted` if nobody has it; a symbol keeps the first name it gets."""
        key = str(symbol)
        if key not in self._names and key in self._merged:
            other = self._merged[key]
            self._names[key] = str(other) if isinstance(other, int) else self.define(other, wanted)
        if key not in self._names:
            taken = set(self._names.values())
            if wanted is None or wanted in taken:
                wanted = next(name for i in range(len(taken) + 1) if (name := f"S{i}") not in taken)
            self._names[key] = wanted
        return self._names[key]

    def items(self) -> Iterable[tuple[str, str]]:
        """Pairs of sympy name and ATB name."""
        return self._names.items()

    def in_text(self, dim: str) -> set[str]:
        """The sympy names of the symbols in a dim."""
        words = set(re.findall(r"\w+", dim))
        return {key for key, name in self._names.items() if name in words}

    def of(self, name: str) -> str | None:
        """The sympy name of a symbol; None for a dim that is more than a symbol."""
        return next((key for key, known in self._names.items() if known == name and key not in self._merged), None)

    def __getitem__(self, symbol: sympy.Symbol) -> str:
        if str(symbol) not in self._names:
            raise Refused(f"the size {symbol} depends on the values of a tensor, not on shapes alone")
        return self._names[str(symbol)]

    def dim(self, size: Any) -> Dim:
        """An int or SymInt as a dim."""
        if isinstance(size, torch.SymInt):
            return self.text(size.node.expr)
        return int(size)

    def shape(self, sizes: Sequence[Any]) -> tuple[Dim, ...]:
        return tuple(self.dim(size) for size in sizes)

    def text(self, expr: sympy.Expr) -> Dim:
        """An integer expression as a dim. `Refused` if dims cannot say it."""
        if expr.is_Integer:
            return int(expr)
        text = self._print(expr)
        return int(text) if text.isdecimal() else text

    def _print(self, expr: sympy.Expr) -> str:
        if expr.is_Integer:
            return str(int(expr)) if expr >= 0 else f"(0 - {-int(expr)})"
        if expr.is_Symbol:
            return self[expr]
        if expr.is_Add:
            return "(" + " + ".join(self._print(term) for term in expr.args) + ")"
        if expr.is_Mul:
            return " * ".join(self._print(factor) for factor in expr.args)
        name = type(expr).__name__
        if name in ("Pow", "PowByNatural") and expr.args[1].is_Integer and expr.args[1] > 0:
            return " * ".join([self._print(expr.args[0])] * int(expr.args[1]))
        if name == "Identity":
            return self._print(expr.args[0])
        if name in _FUNCTIONS:
            return self._nested(_FUNCTIONS[name], expr.args)
        raise Refused(f"the size {expr} ({name}) is no sum, product, floor division, mod, min or max")

    def _nested(self, function: str, args: Sequence[sympy.Expr]) -> str:
        text = self._print(args[0])
        for arg in args[1:]:
            text = f"{function}({text}, {self._print(arg)})"
        return text


def product(extents: Sequence[Dim]) -> Dim:
    """The number of elements of these extents."""
    if all(isinstance(extent, int) for extent in extents):
        return math.prod(int(extent) for extent in extents)
    return " * ".join(f"({extent})" for extent in extents)
