# SPDX-License-Identifier: Apache-2.0
"""`GraphOptimizer`: users' patterns first, then ATB's own passes, and a callable at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atb import _core
from atb.errors import InvalidArgumentError, UnsupportedError
from atb.graph import Graph
from atb.node import Node
from atb.pattern import Pattern, pattern_name


class GraphOptimizer:
    """Applies patterns to a model and makes it callable.

    For example:

        optimizer = GraphOptimizer(log_level="debug")
        optimizer.register_pattern(MyPattern())
        fast = optimizer.optimize(model, example_inputs)
        print(fast.report())
    """

    def __init__(self, log_level: str | None = None) -> None:
        """log_level: "debug" prints each match and each miss, "info" each match; None leaves the level as it is."""
        if log_level is not None:
            _core.set_log_level(log_level)
        self._patterns: list[Pattern] = []

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The registered patterns, in the order in which they are applied."""
        return tuple(self._patterns)

    def register_pattern(self, pattern: Pattern) -> GraphOptimizer:
        """Adds a pattern behind those registered before; returns this optimizer."""
        if not isinstance(pattern, Pattern):
            hint = "; register an instance: MyPattern()" if isinstance(pattern, type) else ""
            raise InvalidArgumentError(
                f"[GraphOptimizer] a pattern is a {type(pattern).__name__}; expected an atb.Pattern{hint}"
            )
        if pattern_name(pattern) in map(pattern_name, self._patterns):
            raise InvalidArgumentError(
                f"[GraphOptimizer] there is a pattern {pattern_name(pattern)!r} already; rename one"
            )
        self._patterns.append(pattern)
        return self

    def optimize(self, model: Any, example_inputs: Any = None, **options: Any) -> Any:
        """Makes a model fast: a callable with the model's inputs and outputs, and with `report()`.

        model: an `atb.Graph`; or a `torch.nn.Module`, an exported program, or an fx GraphModule, which `atb_torch`
            imports. It stays as it is.
        example_inputs: what the model is exported with; None where it is a graph, or to import at its first call.
        options: those of `atb.Graph.compile`, or of `atb_torch.compile`.
        Raises `atb.UnsupportedError` for a torch.jit.ScriptModule, and for operators without a kernel, all listed.
        """
        if isinstance(model, Graph):
            graph = model.copy()
            self.apply(graph)
            return graph.compile(**options)
        packages = {cls.__module__ for cls in type(model).__mro__}
        if any(package.split(".")[:2] == ["torch", "jit"] for package in packages):
            raise UnsupportedError(
                f"[GraphOptimizer] a {type(model).__name__} of torch.jit: only FX graphs can be optimized; "
                "pass the original module, as it was before torch.jit.script or torch.jit.trace"
            )
        if not any(package.split(".")[0] == "torch" for package in packages):
            raise InvalidArgumentError(
                f"[GraphOptimizer] a model is a {type(model).__name__}; expected an atb.Graph, a torch.nn.Module, "
                "an exported program or an fx GraphModule"
            )
        import atb_torch

        return atb_torch.compile(model, example_inputs, optimizer=self, **options)

    def apply(self, graph: Graph) -> None:
        """Applies the registered patterns to a graph in place; its report will tell what they did."""
        for pattern in self._patterns:
            _Run(pattern, graph).to_the_end()


class _Shown(Graph):
    """The graph as `match` sees it: nodes of places where the rewrite was refused are not offered again."""

    def __init__(self, graph: Graph, hidden: set[str]) -> None:
        super().__init__(graph._core)
        self.origins = graph.origins
        self._nodes = [node for node in graph.nodes if node.name not in hidden]


class _Run:
    """One pattern on one graph."""

    def __init__(self, pattern: Pattern, graph: Graph) -> None:
        self._pattern = pattern
        self._name = pattern_name(pattern)
        self._graph = graph
        self._size = len(graph.nodes)
        self._refused: set[frozenset[str]] = set()
        self._hidden: set[str] = set()

    def to_the_end(self) -> None:
        """Matches and rewrites until the pattern has nothing more."""
        rewriting = self._graph.start_pattern(self._name)
        rewrites, limit = 0, 4 * self._size + 64
        while (nodes := self._next_match()) is not None:
            place = frozenset(node.name for node in nodes)
            if place in self._refused:
                break
            layer = next((node.meta["layer"] for node in nodes if node.meta["layer"] >= 0), -1)
            replacement, reason = self._pattern.apply(self._graph, nodes)
            if reason is None:
                rewriting.matched(layer, replacement)
                rewrites += 1
            else:
                self._refused.add(place)
                self._hidden |= place
                rewriting.missed(layer, nodes[0].name, "a valid replacement", reason, "the same types and no cycle")
            if rewrites > limit:
                raise InvalidArgumentError(
                    f"[GraphOptimizer] pattern {self._name} does not stop: {rewrites} rewrites of a graph of"
                    f" {self._size} nodes; its match() finds what its replace() makes"
                )
        refusal = getattr(self._pattern, "reason", None)
        if refusal is not None:
            layer, node, constraint, found = refusal
            rewriting.missed(layer, node, constraint, found, "a place that check accepts")
        rewriting.finish()

    def _next_match(self) -> Sequence[Node] | None:
        shown = _Shown(self._graph, self._hidden) if self._hidden else self._graph
        nodes = self._pattern.match(shown)
        if nodes is None:
            return None
        if not isinstance(nodes, Sequence) or not nodes or not all(isinstance(node, Node) for node in nodes):
            raise InvalidArgumentError(
                f"[GraphOptimizer] {self._name}.match gave {nodes!r}; expected a list of nodes of the graph, or None"
            )
        return nodes
