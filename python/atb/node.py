# SPDX-License-Identifier: Apache-2.0
"""Nodes of a graph in the shape that users of torch.fx know: op, name, target, args, kwargs, users, meta."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class ValueType(NamedTuple):
    """What is known of a value: dtype as "f32", and shape as text over symbols, "[B, T, 576]"."""

    dtype: str
    shape: str


class Target:
    """What a node calls. Equal to its operator's name, and to every object that it was imported as.

    For a call of PyTorch those are its overload (`OpOverload`), the overload's packet, and the custom operator where it
    is one; for a function that was kept whole, that function.
    """

    def __init__(self, name: str, origin: Any = None) -> None:
        """name: the operator of ATB, or the name of an operator that ATB does not know.

        origin: the object, or a tuple of objects, that the node was imported as.
        """
        self.name = name
        self.origins: tuple[Any, ...] = origin if isinstance(origin, tuple) else () if origin is None else (origin,)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Target):
            return self.name == other.name
        if isinstance(other, str):
            return self.name == other or other in self.origins
        return any(_same(origin, other) for origin in self.origins)

    def __hash__(self) -> int:
        """That of the name, so that sets of names work; compare with `==` to objects."""
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{self.name}>"


def _same(origin: Any, other: Any) -> bool:
    """True for one operator in two forms; PyTorch's own classes are known by their attributes, not imported."""
    forms = (origin, getattr(origin, "overloadpacket", None))  # an OpOverload knows its packet
    other = getattr(other, "_opoverload", other)  # what torch.library.custom_op gives knows its overload
    return any(form is not None and (form is other or bool(form == other)) for form in forms)


class Node:
    """One node. Nodes are compared by identity, and show the graph as it was when `graph.nodes` was read."""

    def __init__(self, op: str, name: str, target: Any, kwargs: dict[str, Any], meta: dict[str, Any]) -> None:
        """Made by `Graph.nodes`."""
        self.op = op
        """ "placeholder", "get_attr" (a constant), "call_function" or "output"."""
        self.name = name
        self.target = target
        self.args: tuple[Any, ...] = ()
        """Nodes that it reads, None for an operand that is absent. Those of "output" are in one tuple."""
        self.kwargs = kwargs
        """The operator's attributes."""
        self.users: dict[Node, None] = {}
        self.meta = meta
        """Has "val" (`ValueType`, or a tuple of them), "layer" (-1: none), "scope" (module path), "value" (numbers)."""

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes that it reads, each once."""
        operands = self.args[0] if self.op == "output" else self.args
        return list(dict.fromkeys(arg for arg in operands if isinstance(arg, Node)))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


def make_nodes(described: Sequence[tuple[Any, ...]], origins: Mapping[str, Any]) -> list[Node]:
    """Nodes of what `_core.Graph.nodes` tells.

    An operator with several results is followed, as in torch.fx, by one `operator.getitem` a result.
    """
    nodes: list[Node] = []
    made: dict[str, Node] = {}  # by the name of the value
    for op, name, target, inputs, kwargs, outputs, layer, scope in described:
        if op == "call_function":
            target = Target(target, origins.get(name))
        value = kwargs.pop("value", None) if op == "get_attr" else None
        vals = tuple(ValueType(dtype, shape) for _, dtype, shape in outputs)
        meta: dict[str, Any] = {"val": vals[0] if len(vals) == 1 else vals, "layer": layer, "scope": scope}
        if value is not None:
            meta["value"] = value
        node = Node(op, name, target, kwargs, meta)
        operands = tuple(None if operand is None else made[operand] for operand in inputs)
        _set_args(node, (operands,) if op == "output" else operands)
        nodes.append(node)
        if len(vals) == 1:
            made[name] = node
            continue
        for index, (result, dtype, shape) in enumerate(outputs):
            item_meta = {"val": ValueType(dtype, shape), "layer": layer, "scope": scope, "value_name": result}
            item = Node("call_function", f"{result}[{index}]", operator.getitem, {}, item_meta)
            _set_args(item, (node, index))
            nodes.append(item)
            made[result] = item
    return nodes


def value_name(node: Node) -> str:
    """The name of a node's value in the graph's text."""
    return str(node.meta["value_name"]) if node.target is operator.getitem else node.name


def _set_args(node: Node, args: tuple[Any, ...]) -> None:
    node.args = args
    for operand in node.all_input_nodes:
        operand.users[node] = None
