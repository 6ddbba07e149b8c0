# SPDX-License-Identifier: Apache-2.0
"""Modules that are changed after they were compiled: programs and engines are made anew, and only then."""

from __future__ import annotations

from collections.abc import Callable

import atb_torch
import families
import pytest
import torch


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


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen_by_the_next_call(change: Callable[[Net], None]) -> None:
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(5, 12)
    fast = atb_torch.compile(net, threads=1)
    with torch.no_grad():
        before = fast(x)
        first = fast.variants
        assert torch.equal(fast(x), before)
        assert fast.variants == first
        change(net)
        torch.testing.assert_close(fast(x), net(x))
        assert not torch.equal(fast(x), before)


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
