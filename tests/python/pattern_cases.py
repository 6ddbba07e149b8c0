# SPDX-License-Identifier: Apache-2.0
"""Graphs and patterns that the tests of patterns share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import atb
import numpy as np
from atb import FusionOp, GraphOptimizer, Node, Pattern

# Two layers of out = 2 * (x + custom(x)), with an operator that ATB does not know.
CUSTOM = """
graph @custom(%x: f32[B, 4]) {
  symbols B in [1, 64]
  const @two : f32[] = 2.0
  %c0 = external(%x) {layer=0, scope="layers.0.act", target="my::act", types="f32[B, 4]"} : f32[B, 4]
  %s0 = add(%x, %c0) {layer=0} : f32[B, 4]
  %y0 = mul(%s0, @two) {layer=0} : f32[B, 4]
  %c1 = external(%y0) {layer=1, scope="layers.1.act", target="my::act", types="f32[B, 4]"} : f32[B, 4]
  %s1 = add(%y0, %c1) {layer=1} : f32[B, 4]
  %y1 = mul(%s1, @two) {layer=1} : f32[B, 4]
  return %y1
}
"""

PLAIN = """
graph @plain(%x: f32[T, 6], %z: f32[T, 6]) {
  symbols T in [1, 100]
  const @w : f32[6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
  const @half : f32[] = 0.5
  %a = silu(%x) {layer=0} : f32[T, 6]
  %b = mul(%a, @w) {layer=0} : f32[T, 6]
  %c = add(%b, %z) {layer=0} : f32[T, 6]
  %d = mul(%c, @half) {layer=0} : f32[T, 6]
  %e = relu(%b) {layer=0} : f32[T, 6]
  return %d, %e
}
"""


def array(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


class ByTarget(Pattern):
    """Each node of one target, alone."""

    def __init__(self, target: Any, kernel: Any = None, name: str = "my_fused_op") -> None:
        self.target, self.kernel, self.op = target, kernel, name

    def match(self, graph: atb.Graph) -> list[Node] | None:
        for node in graph.nodes:
            if node.op == "call_function" and node.target == self.target:
                return [node]
        return None

    def replace(self, matched_nodes: Sequence[Node]) -> FusionOp:
        return FusionOp(self.op, kernel=self.kernel)


class ByName(Pattern):
    """Nodes of given names, once."""

    def __init__(self, names: list[str], op: FusionOp | None = None) -> None:
        self.names, self.op, self.done = names, op, False

    def match(self, graph: atb.Graph) -> list[Node] | None:
        if self.done:
            return None
        self.done = True
        return [node for node in graph.nodes if node.name in self.names]

    def replace(self, matched_nodes: Sequence[Node]) -> FusionOp:
        return self.op or FusionOp("fused", kernel=lambda *arrays: [])


def optimizer(*patterns: Pattern) -> GraphOptimizer:
    made = GraphOptimizer()
    for pattern in patterns:
        made.register_pattern(pattern)
    return made


def refused(graph: atb.Graph, pattern: Pattern) -> str:
    before = str(graph)
    optimizer(pattern).apply(graph)
    assert str(graph) == before, "a refused rewrite leaves the graph as it was"
    (miss,) = graph.optimize()["not_matched"][:1]
    assert miss["constraint"] == "a valid replacement"
    return str(miss["actual"])
