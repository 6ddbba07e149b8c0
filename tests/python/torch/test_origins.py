# SPDX-License-Identifier: Apache-2.0
"""What lowered nodes were called in PyTorch: `node.target` equals the overload and the packet of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import atb
import atb_torch
import pytest
import torch
from atb import FusionOp, Pattern
from pattern_cases import ByName, ByTarget, optimizer

pytestmark = pytest.mark.real

aten = torch.ops.aten
_LIBRARY = torch.library.Library("atb_origins", "DEF")
_LIBRARY.define("blend(Tensor x, Tensor y) -> Tensor")
_LIBRARY.impl("blend", lambda x, y: torch.sin(y) * 2 - x, "CompositeImplicitAutograd")
blend = torch.ops.atb_origins.blend


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self.linear, *args)


def imported(function: Callable[..., Any], *inputs: torch.Tensor) -> atb.Graph:
    return atb_torch.import_module(Function(function).eval(), inputs or (torch.randn(3, 4),))


def names(graph: atb.Graph, target: Any) -> list[str]:
    return [node.name for node in graph.find_nodes(op="call_function", target=target)]


def test_a_call_that_became_one_node() -> None:
    graph = imported(lambda linear, x: torch.relu(linear(x)) * 3)
    (linear,) = graph.find_nodes(op="call_function", target="linear")
    assert linear.target == aten.linear.default and linear.target == aten.linear
    assert aten.linear.default == linear.target and linear.target != aten.relu and linear.target != aten.linear.out
    assert names(graph, aten.relu) == names(graph, "relu") and len(names(graph, aten.relu)) == 1
    assert names(graph, aten.mul.Tensor) == names(graph, "mul") and names(graph, aten.mul.Scalar) == []
    assert "aten" not in str(graph)


def test_of_several_nodes_the_one_that_gives_the_result_answers() -> None:
    graph = imported(lambda linear, x: torch.var(torch.addmm(x, x, linear.weight)))
    (addmm,) = graph.find_nodes(op="call_function", target=aten.addmm)
    assert str(addmm.target) == "add" and [str(arg.target) for arg in addmm.args if arg.op == "call_function"] == [
        "matmul"
    ]
    (returned,) = graph.nodes[-1].args[0]
    assert names(graph, aten.var) == [returned.name]
    (matmul,) = graph.find_nodes(op="call_function", target="matmul")
    assert matmul.target != aten.addmm and matmul.target != aten.mm
    assert names(graph, aten.mean) == [], "what PyTorch's definition calls is no call of the module"


def test_each_result_of_several_answers() -> None:
    graph = imported(lambda linear, x: torch.cat(linear(x).split(2, -1)[::-1], -1))
    assert len(names(graph, aten.split)) == 2 and names(graph, aten.split) == names(graph, "slice")


def test_a_call_that_makes_nothing_has_no_node() -> None:
    graph = imported(lambda linear, x: torch.nn.functional.dropout(linear(x), 0.5, False).contiguous() + 1)
    assert names(graph, aten.dropout) == [] and names(graph, aten.contiguous) == []
    assert names(graph, aten.linear) == names(graph, "linear")
    assert set(graph.origins) == {*names(graph, "linear"), *names(graph, "add")}


def test_calls_that_write_in_place() -> None:
    def write(linear: Any, x: torch.Tensor) -> torch.Tensor:
        y = linear(x)
        y[:, 1].mul_(2)
        return y + 1

    graph = imported(write)
    assert names(graph, aten.mul_.Tensor) == names(graph, "mul") and len(names(graph, aten.mul_)) == 1
    assert names(graph, aten.add) == names(graph, "add")


def test_a_pattern_finds_a_lowered_call_by_its_overload() -> None:
    model, x = Function(lambda linear, x: torch.relu(linear(x)) + 1).eval(), torch.randn(3, 4)
    pattern = ByTarget(aten.relu.default, lambda y: torch.relu(y) * 2)
    with torch.no_grad():
        torch.testing.assert_close(optimizer(pattern).optimize(model, (x,))(x), torch.relu(model.linear(x)) * 2 + 1)


@pytest.mark.parametrize("form", [blend, blend.default, "atb_origins.blend"])
def test_an_operator_that_its_user_defined_by_others_is_found_whole(form: Any) -> None:
    """With the operands of its call, in their order; without a pattern it runs by its definition."""
    model, x = Function(lambda linear, x: blend(x, linear(x)) * 3).eval(), torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(atb_torch.compile(model, x)(x), model(x), rtol=1e-5, atol=1e-5)
        fast = optimizer(ByTarget(form, lambda x, y: torch.sin(y) * 2 - x + 100)).optimize(model, (x,))
        torch.testing.assert_close(fast(x), model(x) + 300, rtol=1e-5, atol=1e-4)


def test_such_an_operator_after_a_write_to_what_it_reads() -> None:
    def write(linear: Any, x: torch.Tensor) -> torch.Tensor:
        y = linear(x)
        part = y[:, 1:3]
        y.add_(1)
        return blend(part, part) + blend(part, y[:, :2])

    graph = imported(write)
    assert len(graph.find_nodes(op="call_function", target=blend)) == 2
    model, x = Function(write).eval(), torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(atb_torch.compile(model, x)(x), model(x), rtol=1e-5, atol=1e-5)


def test_what_a_rewrite_makes_is_not_what_was_imported() -> None:
    graph = imported(lambda linear, x: torch.relu(torch.tanh(x)))
    name = names(graph, aten.relu)[0]
    optimizer(ByName([name], FusionOp("mine"))).apply(graph)
    assert names(graph, aten.relu) == [] and names(graph, "mine") == [name]
    swapped = Pattern.from_functions(lambda x: atb.ops.tanh(x), lambda x: atb.ops.sin(x), name="Swap")
    optimizer(swapped).apply(graph)
    assert names(graph, aten.tanh) == [] and len(names(graph, "sin")) == 1


def test_what_the_passes_make_is_not_what_was_imported() -> None:
    graph = imported(lambda linear, x: torch.relu(linear(x)))
    graph.optimize()
    assert names(graph, aten.relu) == [] and names(graph, aten.linear) == []


def test_opaque_operators_are_known_after_the_passes() -> None:
    graph = imported(lambda linear, x: torch.lgamma(linear(x)) + 1)
    assert len(names(graph, aten.lgamma)) == 1
    graph.optimize()
    assert len(names(graph, aten.lgamma)) == 1
