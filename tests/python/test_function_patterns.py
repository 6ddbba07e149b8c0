# SPDX-License-Identifier: Apache-2.0
"""Patterns of two functions: what fits a drawing and what does not, what is built, and what is refused."""

from __future__ import annotations

from typing import Any

import atb
import numpy as np
import pytest
from atb import FusionOp, Node, Pattern, ops
from pattern_cases import PLAIN, array, optimizer, refused

pytestmark = pytest.mark.real


def gate_pattern(check: Any = None, search: Any = None) -> Pattern:
    """silu(x) * y to y - relu(x): other mathematics, so that the numbers show which one runs."""
    return Pattern.from_functions(
        search or (lambda x, y: ops.mul(ops.silu(x), y)), lambda x, y: ops.sub(y, ops.relu(x)), check, name="Gate"
    )


GATE = """
graph @gate(%x: f32[T, 6], %z: f32[T, 6]) {
  symbols T in [1, 100]
  %a = silu(%x) {layer=2} : f32[T, 6]
  %b = mul(ORDER) {layer=2} : f32[T, 6]
  %c = relu(%b) {layer=2} : f32[T, 6]
  return %c
}
"""


@pytest.mark.parametrize("order", ["%a, %z", "%z, %a"])
def test_drawn_operands_match_in_either_order(order: str) -> None:
    graph = atb.Graph.parse(GATE.replace("ORDER", order))
    fast = optimizer(gate_pattern()).optimize(graph)
    x, z = array(5, 6), array(5, 6, 1)
    expected = np.maximum(z - np.maximum(x, 0), 0)
    np.testing.assert_allclose(np.asarray(fast(x, z)[0]), expected, rtol=1e-6, atol=1e-6)
    (row,) = [row for row in fast.report()["patterns"] if row["name"] == "Gate"]
    assert row["layers_matched"] == 1


def test_the_replacement_takes_the_place_and_the_name() -> None:
    graph = atb.Graph.parse(GATE.replace("ORDER", "%a, %z"))
    optimizer(gate_pattern()).apply(graph)
    lines = [line.strip() for line in str(graph).splitlines() if " = " in line]
    assert lines == [
        "%relu = relu(%x) {layer=2} : f32[T, 6]",
        "%b = sub(%z, %relu) {layer=2} : f32[T, 6]",
        "%c = relu(%b) {layer=2} : f32[T, 6]",
    ]


@pytest.mark.parametrize(
    ("search", "text"),
    [
        (lambda x, y: ops.mul(ops.relu(x), y), "%a, %z"),  # another operator
        (lambda x, y: ops.mul(ops.silu(x), ops.silu(y)), "%a, %z"),  # an operator where the graph has an input
        (lambda x, y: ops.mul(ops.silu(x), ops.silu(y)), "%a, %a"),  # one node may not stand for two
        (lambda x, y: ops.mul(ops.silu(x), x) + y, "%a, %z"),  # an operator more
        (lambda x, y: ops.mul(ops.silu(x), 3), "%a, %z"),  # a number where the graph has an input
    ],
)
def test_drawings_that_do_not_fit_change_nothing(search: Any, text: str) -> None:
    graph = atb.Graph.parse(GATE.replace("ORDER", text))
    before = str(graph)
    optimizer(gate_pattern(search=search)).apply(graph)
    assert str(graph) == before


def test_one_parameter_stands_for_one_value() -> None:
    for order, fits in (("%a, %x", True), ("%a, %z", False)):
        graph = atb.Graph.parse(GATE.replace("ORDER", order))
        pattern = Pattern.from_functions(lambda x: ops.silu(x) * x, lambda x: ops.relu(x), name="Square")
        optimizer(pattern).apply(graph)
        assert ("silu" not in str(graph)) is fits


def test_numbers_and_attributes() -> None:
    text = PLAIN.replace("%e = relu(%b)", "%e = softmax(%b)")
    graph = atb.Graph.parse(text)
    optimizer(Pattern.from_functions(lambda x: x * 0.5, lambda x: x / 2, name="Halve")).apply(graph)
    assert "%d = div(%c, @scalar)" in str(graph) and "@scalar : f32[] = 2.0" in str(graph)
    optimizer(Pattern.from_functions(lambda x: x * 0.25, lambda x: x / 4, name="Quarter")).apply(graph)
    assert "4.0" not in str(graph).replace("3.0, 4.0", "")
    last = Pattern.from_functions(lambda x: ops.softmax(x, axis=-1), lambda x: ops.relu(x), name="Last")
    first = Pattern.from_functions(lambda x: ops.softmax(x, axis=0), lambda x: ops.relu(x), name="First")
    for pattern, fits in ((last, True), (first, False)):
        graph = atb.Graph.parse(text)
        optimizer(pattern).apply(graph)
        assert ("softmax" not in str(graph)) is fits


def test_several_results_and_a_kernel() -> None:
    graph = atb.Graph.parse(PLAIN)

    def search(x: Any, w: Any, z: Any) -> Any:
        product = ops.silu(x) * w
        return product + z, ops.relu(product)

    def kernel(z: Any, x: Any, w: Any) -> Any:
        x, w, z = (np.asarray(value) for value in (x, w, z))
        product = x / (1 + np.exp(-x)) * w
        return product + z, np.maximum(product, 0)

    def replace(z: Any, x: Any, w: Any) -> FusionOp:
        return FusionOp("block", kernel=kernel, inputs=[z, x, w])

    fast = optimizer(Pattern.from_functions(search, replace)).optimize(graph)
    x, z = array(5, 6), array(5, 6, 1)
    for got, want in zip(fast(x, z), atb.Graph.parse(PLAIN).compile()(x, z), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)
    assert 'target="block"' in str(fast)


def test_another_type_is_refused() -> None:
    pattern = Pattern.from_functions(
        lambda x, y: ops.silu(x) * y, lambda x, y: ops.reshape(ops.relu(x), shape=[6, "T"]), name="Turned"
    )
    graph = atb.Graph.parse(GATE.replace("ORDER", "%a, %z"))
    assert refused(graph, pattern) == "replacing %b : f32[T, 6] by f32[6, T]"


def test_a_shape_rule_that_refuses_is_a_refusal() -> None:
    pattern = Pattern.from_functions(
        lambda x, y: ops.silu(x) * y, lambda x, y: ops.reshape(x, shape=[6, 7]), name="Wrong"
    )
    assert "[reshape]" in refused(atb.Graph.parse(GATE.replace("ORDER", "%a, %z")), pattern)


def test_check_says_where_and_why_not() -> None:
    seen: list[dict[str, Node]] = []

    def check(**nodes: Node) -> str | bool:
        seen.append(nodes)
        return "y comes from outside" if nodes["y"].op == "placeholder" else True

    graph = atb.Graph.parse(GATE.replace("ORDER", "%a, %z"))
    before = str(graph)
    optimizer(gate_pattern(check)).apply(graph)
    assert str(graph) == before and {name: node.name for name, node in seen[0].items()} == {"x": "x", "y": "z"}
    (miss,) = graph.optimize()["not_matched"][:1]
    assert (miss["pattern"], miss["layer"], miss["constraint"], miss["actual"]) == (
        "Gate", 2, "check", "y comes from outside",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("search", "replace", "message"),
    [
        (lambda x: ops.no_such(x), lambda x: x, "there is no operator no_such"),
        (lambda x: 3, lambda x: x, "search returns a int"),
        (lambda x: x, lambda x: x, "search returns a parameter"),
        (lambda x: ops.relu(x), lambda x, y: y, "replace takes y; search takes x"),
        (lambda x: ops.relu("x"), lambda x: x, "an operand is a str"),
        (lambda x: ops.relu(x) if x else x, lambda x: x, "neither true nor false"),
        (lambda x: [*ops.relu(x)], lambda x: x, "cannot be unpacked"),
    ],
)
def test_wrong_drawings_are_refused_at_once(search: Any, replace: Any, message: str) -> None:
    with pytest.raises(atb.InvalidArgumentError, match=message):
        Pattern.from_functions(search, replace)


def test_a_replacement_that_makes_what_it_looks_for_is_stopped() -> None:
    pattern = Pattern.from_functions(lambda x, y: ops.silu(x) * y, lambda x, y: ops.silu(x) * y, name="Same")
    with pytest.raises(atb.InvalidArgumentError, match="pattern Same does not stop"):
        optimizer(pattern).apply(atb.Graph.parse(GATE.replace("ORDER", "%a, %z")))
