# SPDX-License-Identifier: Apache-2.0
"""`Pattern.from_functions`: search and replacement drawn by two Python functions over `atb.ops`."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from atb.errors import InvalidArgumentError
from atb.graph import Graph
from atb.node import Node, value_name
from atb.ops import Expr
from atb.pattern import FusionOp, Pattern, pattern_name

COMMUTATIVE = {"add", "mul", "maximum", "minimum", "equal", "logical_and", "logical_or"}

Bindings = dict[Expr, Node]  # parameters and operators of the drawing, and the nodes that they stand for


class FunctionPattern(Pattern):
    """A search and a replacement, both drawn once."""

    def __init__(
        self,
        search: Callable[..., Any],
        replace: Callable[..., Any],
        check: Callable[..., bool | str] | None,
        name: str | None,
    ) -> None:
        """See `Pattern.from_functions`."""
        self.name = name or getattr(search, "__name__", "").strip("<>") or "search"
        self._parameters = {parameter: Expr("", name=parameter) for parameter in _parameters(search)}
        unknown = [parameter for parameter in _parameters(replace) if parameter not in self._parameters]
        if unknown:
            known = ", ".join(self._parameters) or "nothing"
            raise InvalidArgumentError(f"[pattern] {self.name}: replace takes {unknown[0]}; search takes {known}")
        self._search = _results(self.name, "search", search(**self._parameters))
        if not all(result.op for result in self._search):
            raise InvalidArgumentError(
                f"[pattern] {self.name}: search returns a parameter; expected an operator's result"
            )
        self._replace = replace
        self._check = check
        self._found: Bindings = {}
        self.reason: tuple[int, str, str, str] | None = None
        """Why `check` refused the last place: its layer and node, "check", and the text."""

    def match(self, graph: Graph) -> list[Node] | None:
        """The next place where all results of the search fit."""
        self.reason = None
        for bindings in _fit_all(self._search, graph.nodes, {}):
            nodes = [node for drawn, node in bindings.items() if drawn.op]
            if self._accepts(bindings, nodes):
                self._found = bindings
                return nodes
        return None

    def _accepts(self, bindings: Bindings, nodes: list[Node]) -> bool:
        if self._check is None:
            return True
        named = {name: bindings[parameter] for name, parameter in self._parameters.items() if parameter in bindings}
        verdict = self._check(**named)
        if isinstance(verdict, str) or not verdict:
            why = verdict if isinstance(verdict, str) else "a place that check refuses"
            self.reason = (nodes[0].meta["layer"], nodes[0].name, "check", why)
            return False
        return True

    def replace(self, matched_nodes: Sequence[Node]) -> FusionOp:
        """The operator, where `replace` gives one."""
        op = self._draw_replacement()
        if not isinstance(op, FusionOp):
            raise InvalidArgumentError(f"[pattern] {self.name}: its replacement is drawn, not one operator")
        return op

    def apply(self, graph: Graph, matched_nodes: Sequence[Node]) -> tuple[str, str | None]:
        """Builds what `replace` draws."""
        drawn = self._draw_replacement()
        if isinstance(drawn, FusionOp):
            inputs = None if drawn.inputs is None else [self._node_of(value) for value in drawn.inputs]
            return drawn.name, graph.fuse(matched_nodes, drawn.name, drawn.kernel, inputs, self._outputs())
        results = _results(self.name, "replace", drawn)
        if len(results) != len(self._search):
            raise InvalidArgumentError(
                f"[pattern] {self.name}: replace returns {len(results)} values, search {len(self._search)}"
            )
        steps = _Steps({parameter: self._found.get(parameter) for parameter in self._parameters.values()})
        operands = [steps.operand(result) for result in results]
        names = "+".join(dict.fromkeys(name for name, _, _ in steps.made)) or "its input"
        return names, graph.replace(matched_nodes, self._outputs(), steps.made, operands)

    def _outputs(self) -> list[Node]:
        """The nodes that the results of the search stand for, in their order."""
        return [_result(self._found[result.source], result.index) for result in self._search]

    def _draw_replacement(self) -> Any:
        return self._replace(**{name: self._parameters[name] for name in _parameters(self._replace)})

    def _node_of(self, value: Any) -> Node:
        if isinstance(value, Expr) and value in self._found:
            return self._found[value]
        raise InvalidArgumentError(f"[pattern] {pattern_name(self)}: an input is {value!r}; expected a parameter")


class _Steps:
    """A drawing as the steps that `_core.Graph.replace` builds."""

    def __init__(self, parameters: dict[Expr, Node | None]) -> None:
        self.made: list[tuple[str, list[Any], dict[str, Any]]] = []
        self._parameters = parameters
        self._numbers: dict[Expr, int] = {}

    def operand(self, value: Any) -> Any:
        """What `_core.Graph.replace` takes as operand."""
        if not isinstance(value, Expr):
            return value
        if not value.op:
            node = self._parameters[value]
            return None if node is None else value_name(node)
        if not isinstance(value.op, str):
            raise InvalidArgumentError(
                f"[pattern] a replacement calls {value.op}; it is made of atb.ops, or gives an atb.FusionOp"
            )
        if value.source not in self._numbers:
            operands = [self.operand(arg) for arg in value.args]
            self._numbers[value.source] = len(self.made)
            self.made.append((value.op, operands, value.attrs))
        return (self._numbers[value.source], value.index)


def _result(node: Node, index: int) -> Node:
    """One result of an operator."""
    items = (user for user in node.users if user.target is operator.getitem and user.args[1] == index)
    return next(items, node)


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _results(name: str, which: str, drawn: Any) -> list[Expr]:
    results = list(drawn) if isinstance(drawn, (tuple, list)) else [drawn]
    for result in results:
        if not isinstance(result, Expr):
            raise InvalidArgumentError(
                f"[pattern] {name}: {which} returns a {type(result).__name__}; expected what atb.ops gives"
            )
    return results


def _fit_all(results: list[Expr], nodes: list[Node], bindings: Bindings) -> Iterator[Bindings]:
    """Every way in which all results stand for nodes of the graph."""
    if not results:
        yield bindings
        return
    for node in nodes:
        if node.op == "call_function" and node.target == results[0].op:
            for fitted in _fit(results[0].source, node, bindings):
                yield from _fit_all(results[1:], nodes, fitted)


def _fit(drawn: Any, node: Any, bindings: Bindings) -> Iterator[Bindings]:
    """Every way in which a value of the drawing stands for a node."""
    if not isinstance(drawn, Expr):
        if _same_number(drawn, node):
            yield bindings
    elif node is None:
        if not drawn.op and drawn not in bindings:
            yield bindings  # an optional operand that is absent
    elif drawn.source in bindings:
        if bindings[drawn.source] is _operator_of(drawn, node):
            yield bindings
    elif not drawn.op:
        yield {**bindings, drawn: node}
    else:
        found = _operator_of(drawn, node)
        if found is None or found.op != "call_function" or found.target != drawn.op or found in bindings.values():
            return
        if any(name not in found.kwargs or found.kwargs[name] != value for name, value in drawn.attrs.items()):
            return
        for operands in _orders(drawn, found):
            yield from _fit_operands(drawn.args, operands, {**bindings, drawn.source: found})


def _operator_of(drawn: Expr, node: Node) -> Node | None:
    """The operator behind a result that `drawn` wants; a parameter takes the result itself."""
    if not drawn.op:
        return node
    if node.target is operator.getitem:
        return node.args[0] if node.args[1] == drawn.index else None
    return node if drawn.index == 0 else None


def _orders(drawn: Expr, node: Node) -> Iterator[tuple[Any, ...]]:
    args = node.args
    yield args
    if drawn.op in COMMUTATIVE and len(args) == 2 and args[0] is not args[1]:
        yield (args[1], args[0])


def _fit_operands(drawn: tuple[Any, ...], operands: tuple[Any, ...], bindings: Bindings) -> Iterator[Bindings]:
    if not drawn and not operands:
        yield bindings
        return
    first = drawn[0] if drawn else None
    if not drawn and operands[0] is not None:
        return  # an operand that the search does not have
    operand = operands[0] if operands else None
    for fitted in _fit(first, operand, bindings):
        yield from _fit_operands(drawn[1:], operands[1:], fitted)


def _same_number(drawn: Any, node: Any) -> bool:
    if drawn is None or node is None:
        return drawn is node
    value = node.meta.get("value") if node.op == "get_attr" else None
    return value is not None and math.isclose(value, drawn, rel_tol=1e-6)
