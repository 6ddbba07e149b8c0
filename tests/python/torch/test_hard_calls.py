# SPDX-License-Identifier: Apache-2.0
"""Calls whose arguments are not what they seem: lazy, aliased, opaque; and what users do with a compiled module."""

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable
from typing import Any

import atb
import atb_torch
import numpy as np
import pytest
import torch

pytestmark = pytest.mark.real


class Scaled(torch.nn.Module):
    """A linear layer, and a product with whatever `of` makes of the second argument."""

    def __init__(self, of: Callable[[Any], Any] = lambda scale: scale) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.of = of

    def forward(self, x: torch.Tensor, scale: Any = 1.0) -> torch.Tensor:
        return self.linear(x) * self.of(scale)


def check(fast: torch.nn.Module, eager: torch.nn.Module, *args: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(fast(*args), eager(*args))


def test_tensors_that_are_computed_when_read() -> None:
    model = Scaled().eval()
    fast = atb_torch.compile(model, threads=1)
    negated = torch.randn(4, 6, dtype=torch.cfloat).conj().imag
    assert negated.is_neg()
    zero = torch._efficientzerotensor((4, 6))
    for x in (torch.randn(4, 6), negated, zero, negated[::2], negated.t().contiguous().t()):
        check(fast, model, x)


def test_transforms_are_refused() -> None:
    fast = atb_torch.compile(Scaled().eval(), torch.randn(4, 6), threads=1)
    with pytest.raises(atb.UnsupportedError, match="inside of a transform"), torch.no_grad():
        torch.func.vmap(fast)(torch.randn(2, 3, 6))
    nested = torch.nn.Sequential(fast).eval()
    with pytest.raises(atb.UnsupportedError, match="inside of a transform"):
        atb_torch.compile(nested, torch.randn(4, 6))
    ragged = torch.nested.nested_tensor([torch.randn(2, 6), torch.randn(3, 6)])
    with pytest.raises(atb.UnsupportedError, match="nested tensor"):
        fast(ragged)


@dataclasses.dataclass
class Box:
    value: Any


@pytest.mark.parametrize(
    ("argument", "of"),
    [
        (np.ones((2000, 6), np.float32), torch.from_numpy),
        (Box(torch.ones(2000, 6)), lambda box: box.value),
        (Box(2.0), lambda box: box.value),
        ([Box(2.0)], lambda boxes: boxes[0].value),
    ],
)
def test_objects_that_hide_values_are_refused(argument: Any, of: Callable[[Any], Any]) -> None:
    fast = atb_torch.compile(Scaled(of).eval(), threads=1)
    with pytest.raises(atb.UnsupportedError, match=r"an argument holds a (ndarray|Box); arguments may be"):
        fast(torch.randn(2000, 6), argument)


def test_equal_numbers_of_different_types_and_functions() -> None:
    model = Scaled(lambda scale: scale(torch.ones(6)) if callable(scale) else torch.full((6,), scale) / 2).eval()
    fast = atb_torch.compile(model, threads=1)
    for scale in (1, 1.0, True, 0.0, -0.0, np.float32(1.5), torch.exp, torch.tanh):
        eager = copy.deepcopy(model)
        x = torch.randn(3, 6)
        with torch.no_grad():
            got, expected = fast(x, scale), eager(x, scale)
        torch.testing.assert_close(got, expected)


def test_numbers_without_end_keep_few_programs() -> None:
    model = Scaled().eval()
    fast = atb_torch.compile(model, threads=1)
    x = torch.randn(3, 6)
    for step in range(19):
        check(fast, model, x, 0.5 + step)
    assert len(fast.variants) == 16
    check(fast, model, x, 0.5)


def test_no_tensor_arguments() -> None:
    class Weight(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

        def forward(self) -> torch.Tensor:
            return self.weight * 2

    model = Weight().eval()
    check(atb_torch.compile(model, threads=1), model)
    fast = atb_torch.compile(Scaled().eval(), threads=1)
    with pytest.raises(atb.UnsupportedError, match="must be Tensor, not NoneType"):
        fast(None)


def test_copies_and_pickles_compile_again() -> None:
    model = Scaled().eval()
    fast = atb_torch.compile(model, torch.randn(3, 6), threads=1)
    x = torch.randn(3, 6)
    linear = torch.nn.Linear(6, 6).eval()
    check(pickle.loads(pickle.dumps(atb_torch.compile(linear, x, threads=1))), linear, x)
    twin = copy.deepcopy(fast)
    with torch.no_grad():
        twin.module.linear.weight.zero_()
    check(twin, twin.module, x)
    check(fast, model, x)
    check(atb_torch.compile(fast, threads=1), model, x)


def test_threads_that_compile_at_once() -> None:
    wrong: list[str] = []

    def work(seed: int) -> None:
        try:
            model = Scaled().eval()
            fast = atb_torch.compile(model, threads=1)
            for rows in (3, 1, seed + 2):
                check(fast, model, torch.randn(rows, 6))
        except Exception as error:  # the thread's own
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_inside_of_torch_compile() -> None:
    model = Scaled().eval()
    outer = torch.compile(torch.nn.Sequential(atb_torch.compile(model, threads=1)), backend="eager")
    check(outer, model, torch.randn(3, 6))


@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_operands_of_a_fusion_op_are_nodes(where: str) -> None:
    class Any_(atb.Pattern):
        def match(self, graph: atb.Graph) -> Any:
            return graph.find_nodes(op="call_function", target="linear") or None

        def replace(self, matched_nodes: Any) -> atb.FusionOp:
            return atb.FusionOp("mine", **{where: ["x"]})  # type: ignore[arg-type]

    optimizer = atb.GraphOptimizer().register_pattern(Any_())
    with pytest.raises(atb.InvalidArgumentError, match="hold 'x'; expected nodes"):
        optimizer.optimize(Scaled().eval(), torch.randn(3, 6))
