# SPDX-License-Identifier: Apache-2.0
"""Modules that are changed after they were compiled: programs and engines are made anew, and only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import atb_torch
import families
import numpy
import pytest
import torch
from atb_torch.freshness import Snapshot


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(12, 8)
        self.scale = torch.nn.Parameter(torch.randn(8))
        self.register_buffer("shift", torch.randn(8))
        self.doubled = False
        self.factors = {"default": 1.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x) * self.scale + self.shift
        return (y * 2 if self.doubled else y) * self.factors["default"]


def write(net: Net) -> None:
    net.inner.weight.mul_(2)


def load(net: Net) -> None:
    net.load_state_dict({name: tensor + 1 for name, tensor in net.state_dict().items()})


def exchange_data(net: Net) -> None:
    net.inner.weight.data = torch.randn(8, 12)


def assign_parameter(net: Net) -> None:
    net.scale = torch.nn.Parameter(torch.randn(8))


def assign_buffer(net: Net) -> None:
    net.shift = torch.randn(8)


def assign_part(net: Net) -> None:
    net.inner = torch.nn.Linear(12, 8).eval()


def halve(net: Net) -> None:
    net.half().float()


def hook(net: Net) -> None:
    net.inner.register_forward_hook(lambda _module, _args, out: out * 2)


def hook_before(net: Net) -> None:
    net.register_forward_pre_hook(lambda _module, args: (args[0] + 1,))


def switch(net: Net) -> None:
    net.doubled = True


def write_into_a_dict(net: Net) -> None:
    net.factors["default"] = 3.0


def assign_a_method(net: Net) -> None:
    net.inner.forward = lambda x: x[:, :8] * 3  # type: ignore[method-assign]


CHANGES = [
    write, load, exchange_data, assign_parameter, assign_buffer, assign_part, halve, hook, hook_before, switch,
    write_into_a_dict, assign_a_method,
]  # fmt: skip


def check_that_a_change_is_seen(net: torch.nn.Module, x: torch.Tensor, change: Callable[[Any], None]) -> None:
    """The call behind a change gives the module's new numbers; calls without one make nothing anew."""
    fast = atb_torch.compile(net, threads=1)
    with torch.no_grad():
        before = fast(x)
        first = fast.variants
        assert torch.equal(fast(x), before)
        assert fast.variants == first
        change(net)
        torch.testing.assert_close(fast(x), net(x))
        assert not torch.equal(fast(x), before)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen_by_the_next_call(change: Callable[[Net], None]) -> None:
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(5, 12)
    check_that_a_change_is_seen(net, x, change)


def test_a_hook_that_is_removed_is_gone() -> None:
    net, x = Net().eval(), torch.randn(5, 12)
    fast = atb_torch.compile(net, threads=1)
    with torch.no_grad():
        handle = net.register_forward_hook(lambda _module, args, out: out + args[0].sum())
        torch.testing.assert_close(fast(x), net(x))
        handle.remove()
        torch.testing.assert_close(fast(x), net(x))


def test_generate_sees_a_change() -> None:
    model, ids = families.model("llama", "sdpa"), families.tokens(2, 9)
    fast = atb_torch.compile(model, threads=1)
    options = {"max_new_tokens": 6, "temperature": 0.0, "eos_token_id": []}
    with torch.no_grad():
        before = fast.generate(ids, **options)
        assert torch.equal(fast.generate(ids, **options), before)
        for parameter in model.parameters():
            parameter.copy_(parameter.flip(0))
        after = fast.generate(ids, **options)
        assert torch.equal(after, atb_torch.compile(model, threads=1).generate(ids, **options))
    assert not torch.equal(after, before)


def test_buffers_that_the_module_writes_to_make_nothing_anew() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    fast, x = atb_torch.compile(Counter().eval(), threads=1), torch.ones(4)
    with torch.no_grad():
        assert fast(x).tolist() == [2.0] * 4
        first = fast.variants
        assert fast(x).tolist() == [4.0] * 4
    assert fast.variants == first


# --- Attributes


class Attributes(torch.nn.Module):
    """Decides by an attribute of any kind."""

    def __init__(self, value: Any, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.value = value
        self.read = read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.read(self.value)


def nested_list(net: Attributes) -> None:
    net.value[0][1] = 5


def nested_tuple(net: Attributes) -> None:
    net.value = (1, (2, 5))


def nested_dict(net: Attributes) -> None:
    net.value["a"][0] = 5.0


def longer(net: Attributes) -> None:
    net.value[0].append(7)


def replaced(net: Attributes) -> None:
    net.value = torch.full((4,), 5.0)


def written(net: Attributes) -> None:
    net.value.mul_(3)


def replaced_in_a_list(net: Attributes) -> None:
    net.value[0] = torch.full((4,), 5.0)


def written_in_a_list(net: Attributes) -> None:
    net.value[0].mul_(3)


def assigned(value: Any) -> Callable[[Attributes], None]:
    def change(net: Attributes) -> None:
        net.value = value

    return change


def write_to_a_module_in_a_list(net: Attributes) -> None:
    net.value[0].weight.mul_(3)


ATTRIBUTES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Attributes], None]]] = {
    "nested_list": (lambda: [[1, 2], [3]], lambda v: v[0][1], nested_list),
    "longer_list": (lambda: [[1, 2], [3]], lambda v: sum(v[0]), longer),
    "nested_tuple": (lambda: (1, (2, 3)), lambda v: v[1][1], nested_tuple),
    "nested_dict": (lambda: {"a": [1.0]}, lambda v: v["a"][0], nested_dict),
    "tensor": (lambda: torch.ones(4), lambda v: v, replaced),
    "tensor_written": (lambda: torch.ones(4), lambda v: v, written),
    "tensor_in_a_list": (lambda: [torch.ones(4)], lambda v: v[0], replaced_in_a_list),
    "tensor_in_a_list_written": (lambda: [torch.ones(4)], lambda v: v[0], written_in_a_list),
    "module_in_a_list": (lambda: [torch.nn.Linear(4, 4)], lambda v: v[0].weight[0], write_to_a_module_in_a_list),
    "numpy_number": (lambda: numpy.float64(2.0), float, assigned(numpy.float64(3.0))),
    "size": (lambda: torch.Size([2, 3]), lambda v: v[1], assigned(torch.Size([2, 4]))),
    "range": (lambda: range(3), len, assigned(range(5))),
    "slice": (lambda: slice(0, 3), lambda v: len([1, 2, 3, 4][v]), assigned(slice(1, 3))),
    "type_of_a_number": (lambda: [2], lambda v: 3.0 if isinstance(v[0], float) else 1.0, assigned([2.0])),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_are_looked_into(name: str) -> None:
    make, read, change = ATTRIBUTES[name]
    net, x = Attributes(make(), read).eval(), torch.rand(2, 4) + 1
    check_that_a_change_is_seen(net, x, change)


def test_equal_containers_of_other_objects_make_nothing_anew() -> None:
    net, x = Attributes([[1, 2], {"a": (3, [4])}], lambda v: v[0][1]).eval(), torch.rand(2, 4)
    fast = atb_torch.compile(net, threads=1)
    with torch.no_grad():
        fast(x)
        first = fast.variants
        net.value = [[1, 2], {"a": (3, [4])}]
        fast(x)
    assert fast.variants == first


def test_containers_without_an_end_are_no_trouble() -> None:
    net = Attributes([2.0], lambda v: v[0])
    net.value += [net.value, net.value]
    net.wide = [[i, [i]] for i in range(50_000)]
    snapshot = Snapshot(net)
    assert snapshot.holds()
    net.value[0] = 3.0
    assert not snapshot.holds()


def test_a_tensor_that_the_module_writes_to_makes_nothing_anew_but_its_replacement_does() -> None:
    net = Attributes([torch.ones(4)], lambda v: v[0])
    snapshot = Snapshot(net, net.value)
    net.value[0].mul_(3)
    assert snapshot.holds()
    net.value[0] = torch.ones(4)
    assert not snapshot.holds()


# --- Inference mode


def test_what_is_made_in_inference_mode_is_compared() -> None:
    with torch.inference_mode():
        net, x = Net().eval(), torch.randn(5, 12)
        fast = atb_torch.compile(net, threads=1)
        before = fast(x)
        first = fast.variants
        assert torch.equal(fast(x), before)
        assert fast.variants == first
        net.inner.weight.mul_(2)
        torch.testing.assert_close(fast(x), net(x))
        net.shift.add_(1)
        torch.testing.assert_close(fast(x), net(x))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_first_call_in_inference_mode_makes_ordinary_parameters(compiled: bool) -> None:
    x = torch.randn(2, 3, 8)
    with torch.inference_mode():
        block = atb_torch.GraphOp([atb_torch.LayerNorm(), atb_torch.Linear("up", out_features=8)])
        model = torch.nn.Sequential(block).eval()
        fast = atb_torch.compile(model, threads=1) if compiled else block
        before = fast(x)
    assert not any(parameter.is_inference() for parameter in block.parameters())
    weight = block.get_parameter("up.weight")
    with torch.no_grad():
        weight.mul_(2)
    with torch.inference_mode():
        after = fast(x)
        assert not torch.equal(after, before)
    block.load_state_dict({name: tensor + 1 for name, tensor in block.state_dict().items()})
    with torch.inference_mode():
        assert not torch.equal(fast(x), after)
    (weight.sum() * 2).backward()
    torch.optim.SGD(block.parameters(), lr=0.1).step()
