# SPDX-License-Identifier: Apache-2.0
"""The operators of ATB as functions that draw instead of computing: `ops.silu(x)` in `Pattern.from_functions`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from atb import _core
from atb.errors import InvalidArgumentError


class Expr:
    """A value in a drawing: a parameter (op is ""), or one result of an operator.

    Functions of PyTorch draw too: those that are an operator of ATB by name, and custom operators as themselves.
    """

    def __init__(
        self, op: Any, args: tuple[Any, ...] = (), attrs: dict[str, Any] | None = None, name: str = ""
    ) -> None:
        """Made by the functions of `atb.ops`; op is a name, or a custom operator of PyTorch."""
        self.op = op
        self.args = args
        self.attrs = attrs or {}
        self.name = name  # of a parameter
        self.source: Expr = self  # the operator's first result
        self.index = 0  # which result

    def __getitem__(self, index: int) -> Expr:
        """Result `index` of an operator that has several."""
        if self.source is not self or not self.op:
            raise InvalidArgumentError(f"[pattern] {self} is one value; only what an operator gives has results")
        if index == 0:
            return self
        result = Expr(self.op, self.args, self.attrs)
        result.source, result.index = self, index
        return result

    def __iter__(self) -> Iterator[Expr]:
        raise InvalidArgumentError(f"[pattern] {self} cannot be unpacked; take its results by index, as in {self}[1]")

    def __bool__(self) -> bool:
        raise InvalidArgumentError(f"[pattern] {self} is drawn, not computed, and so neither true nor false")

    def __repr__(self) -> str:
        return self.name or f"ops.{self.op}(...)"

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Expr:
        """What PyTorch calls where one of its functions is given a value of a drawing."""
        name = str(getattr(function, "__name__", "")).split(".")[0]
        qualified = str(getattr(function, "_qualified_op_name", "aten::"))  # of a packet; an overload has a namespace
        if getattr(function, "namespace", qualified.split("::")[0]) != "aten":
            return Expr(function, args)
        if name not in _core.operator_names():
            raise InvalidArgumentError(f"[pattern] torch's {name} is no operator of ATB; use those of atb.ops")
        given = {key: value for key, value in (kwargs or {}).items() if value is not None and not key.startswith("_")}
        if name == "softmax":
            axis = given.pop("dim") if "dim" in given else args[1]
            return Expr(name, args[:1], {"axis": axis, **given})
        return Expr(name, args, given)

    def __add__(self, other: Any) -> Expr:
        return Expr("add", (self, other))

    def __radd__(self, other: Any) -> Expr:
        return Expr("add", (other, self))

    def __sub__(self, other: Any) -> Expr:
        return Expr("sub", (self, other))

    def __rsub__(self, other: Any) -> Expr:
        return Expr("sub", (other, self))

    def __mul__(self, other: Any) -> Expr:
        return Expr("mul", (self, other))

    def __rmul__(self, other: Any) -> Expr:
        return Expr("mul", (other, self))

    def __truediv__(self, other: Any) -> Expr:
        return Expr("div", (self, other))

    def __rtruediv__(self, other: Any) -> Expr:
        return Expr("div", (other, self))

    def __matmul__(self, other: Any) -> Expr:
        return Expr("matmul", (self, other))


def __getattr__(name: str) -> Callable[..., Expr]:
    """The operator of that name, as a function of values and attributes."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in _core.operator_names():
        raise InvalidArgumentError(f"[pattern] ops.{name}: there is no operator {name}; see docs/operators")

    def draw(*args: Any, **attrs: Any) -> Expr:
        for arg in args:
            if arg is not None and not isinstance(arg, (Expr, int, float)):
                raise InvalidArgumentError(
                    f"[pattern] ops.{name}: an operand is a {type(arg).__name__}; expected a value, a number or None"
                )
        return Expr(name, args, attrs)

    draw.__name__ = name
    return draw
