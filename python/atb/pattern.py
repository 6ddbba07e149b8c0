# SPDX-License-Identifier: Apache-2.0
"""Patterns that users write: what to look for in a graph, and what to put in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from atb.errors import InvalidArgumentError
from atb.graph import Graph
from atb.node import Node

Kernel = Callable[..., Any] | str


class FusionOp:
    """One operator in the place of the matched nodes; they become its definition.

    Where the kernel cannot be used (another device, a proof about the graph), the definition is what counts.
    """

    def __init__(
        self,
        name: str,
        kernel: Kernel | None = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
    ) -> None:
        """name: what the operator is called in graphs, logs and reports.

        kernel: a callable that gets one array an input and returns one array, or a tuple of them, an output; or the
            name of a kernel that `atb.load_library` has loaded. None runs the definition. A callable splits the launch:
            it runs on the caller's thread between the parts before and after. The arrays it gets are lent for the call,
            and must not be written.
        inputs: nodes whose values the kernel gets, in this order; None takes what enters the matched nodes, in the
            order in which they read it. Numbers (constants without axes) stay in the definition unless listed.
        outputs: nodes of the match whose values the kernel gives; None takes those that are read outside of it.
        """
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"[FusionOp] name is {name!r}; expected a text")
        if kernel is not None and not isinstance(kernel, str) and not callable(kernel):
            raise InvalidArgumentError(
                f"[FusionOp] {name}: kernel is a {type(kernel).__name__}; expected a callable, or the name of a kernel"
            )
        self.name = name
        self.kernel = kernel
        self.inputs = inputs
        self.outputs = outputs

    def __repr__(self) -> str:
        return f"atb.FusionOp({self.name!r})"


class Pattern:
    """What to look for, and what takes its place. Subclasses define `match` and `replace`."""

    name: str = ""
    """What logs and reports call it; the name of the class where it is empty."""

    def match(self, graph: Graph) -> Sequence[Node] | None:
        """The nodes of one place where the pattern fits, or None if there is none. Called again after each rewrite."""
        raise NotImplementedError(f"{type(self).__name__} has no match(graph)")

    def replace(self, matched_nodes: Sequence[Node]) -> FusionOp:
        """What takes the place of the nodes that `match` gave."""
        raise NotImplementedError(f"{type(self).__name__} has no replace(matched_nodes)")

    def apply(self, graph: Graph, matched_nodes: Sequence[Node]) -> tuple[str, str | None]:
        """Rewrites the graph: what was put in, and the reason where it stays as it was. `GraphOptimizer` calls this."""
        op = self.replace(matched_nodes)
        if not isinstance(op, FusionOp):
            raise InvalidArgumentError(
                f"[GraphOptimizer] {pattern_name(self)}.replace gave a {type(op).__name__}; expected an atb.FusionOp"
            )
        for value in (*(op.inputs or ()), *(op.outputs or ())):
            if not isinstance(value, Node):
                raise InvalidArgumentError(
                    f"[FusionOp] {op.name}: inputs and outputs hold {value!r}; expected nodes of the graph"
                )
        return op.name, graph.fuse(matched_nodes, op.name, op.kernel, op.inputs, op.outputs)

    @staticmethod
    def from_functions(
        search: Callable[..., Any],
        replace: Callable[..., Any],
        check: Callable[..., bool | str] | None = None,
        name: str | None = None,
    ) -> Pattern:
        """A pattern of two functions over `atb.ops` with the same parameters, which stand for any values.

        search: what to look for; it returns one result or a tuple of them. Attributes that it does not name may be
            anything, and numbers match constants.
        replace: what to put in; as many results, of the same types, or an `atb.FusionOp`.
        check: called with the nodes that the parameters stand for, by name; False, or a text that says why not, refuses
            the place.
        name: what logs and reports call it; None takes the name of `search`.

        For example:

            from atb import Pattern, ops
            Pattern.from_functions(lambda x: ops.mul(x, ops.sigmoid(x)), lambda x: ops.silu(x), name="SiLU")
        """
        from atb.function_pattern import FunctionPattern

        return FunctionPattern(search, replace, check, name)


def pattern_name(pattern: Pattern) -> str:
    """What logs and reports call a pattern."""
    return pattern.name or type(pattern).__name__
