# SPDX-License-Identifier: Apache-2.0
"""Patterns of users on PyTorch models: every form of a custom operator, kernels on tensors."""

from __future__ import annotations

import atb
import atb_torch
import pytest
import torch
from atb import FusionOp, Pattern, ops
from pattern_cases import ByTarget, optimizer

pytestmark = pytest.mark.real


@torch.library.custom_op("atb_test::scaled", mutates_args=())
def scaled(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * scale


@scaled.register_fake
def _(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Block(torch.nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)
        self.scale = torch.nn.Parameter(torch.full((2 * width,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(scaled(self.up(x), self.scale))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Kernel:
    """The kernel of `scaled`; remembers what it was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        self.seen.append((type(x).__name__, str(x.dtype)))
        return torch.sin(x) * scale


def make() -> Model:
    torch.manual_seed(0)
    return Model().eval()


FORMS = {
    "the operator": scaled,
    "the packet": torch.ops.atb_test.scaled,
    "the overload": torch.ops.atb_test.scaled.default,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_custom_operator_runs_by_the_users_kernel(form: str) -> None:
    model, kernel = make(), Kernel()
    fast = optimizer(ByTarget(FORMS[form], kernel)).optimize(model, (torch.randn(2, 5, 8),))
    for shape in ((2, 5, 8), (1, 1, 8), (3, 33, 8)):
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)
    assert set(kernel.seen) == {("Tensor", "torch.float32")} and len(kernel.seen) == 6
    (row,) = [row for row in fast.report()["patterns"] if row["name"] == "ByTarget"]
    assert row["layers_matched"] == 2


def test_what_a_kernel_returns_may_only_be_marked_as_negated() -> None:
    def kernel(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        y = -torch.sin(x) * scale
        return torch.complex(y, y).conj().imag

    model, x = make(), torch.randn(2, 5, 8)
    with torch.no_grad():
        fast = optimizer(ByTarget(scaled, kernel)).optimize(model, (x,))
        torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)


def test_without_a_pattern_the_operator_is_listed_with_its_modules() -> None:
    with pytest.raises(atb.UnsupportedError) as error:
        atb_torch.compile(make(), (torch.randn(2, 5, 8),))
    assert "atb_test" in str(error.value) and "layers.0" in str(error.value) and "layers.1" in str(error.value)


def test_an_exported_program_and_a_graph_module() -> None:
    model, x = make(), torch.randn(2, 5, 8)
    program = torch.export.export(model, (x,))
    for given in (program, program.module()):
        fast = optimizer(ByTarget(scaled, Kernel())).optimize(given, (x,))
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)


def test_an_exception_in_a_kernel_reaches_the_caller() -> None:
    def kernel(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    fast = optimizer(ByTarget(scaled, kernel)).optimize(make(), (torch.randn(2, 5, 8),))
    with pytest.raises(KeyError, match="mine"):
        fast(torch.randn(2, 5, 8))


def test_two_functions_on_an_imported_graph() -> None:
    class Gated(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.silu(x) * y

    pattern = Pattern.from_functions(
        lambda x, y: ops.silu(x) * y,
        lambda x, y: FusionOp("gated", kernel=lambda x, y: torch.nn.functional.silu(x) * y, inputs=[x, y]),
        name="Gated",
    )
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    fast = optimizer(pattern).optimize(Gated().eval(), (x, y))
    torch.testing.assert_close(fast(x, y), torch.nn.functional.silu(x) * y)
    assert [row["layers_matched"] for row in fast.report()["patterns"] if row["name"] == "Gated"] == [1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_see_the_dtypes_of_the_module(dtype: torch.dtype) -> None:
    model, kernel = make().to(dtype), Kernel()
    fast = optimizer(ByTarget(scaled, kernel)).optimize(model, (torch.randn(2, 5, 8, dtype=dtype),))
    x = torch.randn(2, 5, 8, dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=3e-2, atol=3e-2)
    assert {seen for _, seen in kernel.seen} == {str(dtype)}


def test_functions_of_torch_draw_too() -> None:
    functional = torch.nn.functional
    model, x = make(), torch.randn(2, 5, 8)
    pattern = Pattern.from_functions(
        lambda x, w, b, s: scaled(functional.linear(x, w, b), s),
        lambda x, w, b, s: FusionOp(
            "linear_scaled", lambda x, w, b, s: torch.sin(functional.linear(x, w, b)) * s, inputs=[x, w, b, s]
        ),
        name="LinearScaled",
    )
    fast = optimizer(pattern).optimize(model, (x,))
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)
    assert fast.report()["patterns"][0]["layers_matched"] == 2


def test_functions_that_are_no_operators_are_refused() -> None:
    with pytest.raises(atb.InvalidArgumentError, match="torch's lgamma is no operator of ATB"):
        Pattern.from_functions(lambda x: torch.lgamma(x), lambda x: ops.relu(x))
    pattern = Pattern.from_functions(lambda x: torch.relu(x), lambda x: scaled(x, x), name="Wrong")
    graph = atb.Graph.parse("graph @g(%x: f32[4]) {\n  %y = relu(%x) : f32[4]\n  return %y\n}")
    with pytest.raises(atb.InvalidArgumentError, match=r"a replacement calls atb_test.*atb\.FusionOp"):
        optimizer(pattern).apply(graph)


def test_softmax_and_its_axis() -> None:
    graph = atb.Graph.parse("graph @g(%x: f32[4, 4]) {\n  %y = softmax(%x) : f32[4, 4]\n  return %y\n}")
    pattern = Pattern.from_functions(lambda x: torch.softmax(x, -1), lambda x: torch.relu(x), name="S")
    optimizer(pattern).apply(graph)
    assert "relu" in str(graph)


@torch.fx.wrap
def kept_whole(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


def test_a_function_that_torch_fx_keeps_whole() -> None:
    class Wrapped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return kept_whole(x) + 1

    traced, x = torch.fx.symbolic_trace(Wrapped().eval()), torch.randn(3, 5)
    pattern = ByTarget(kept_whole, lambda x: torch.sin(x) * 2)
    fast = optimizer(pattern).optimize(traced, (x,))
    torch.testing.assert_close(fast(x), torch.sin(x) * 2 + 1)
    assert [row["layers_matched"] for row in fast.report()["patterns"] if row["name"] == "ByTarget"] == [1]
