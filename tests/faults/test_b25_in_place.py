# SPDX-License-Identifier: Apache-2.0
"""B25: what is written in place is seen through every alias, and by nobody who read before."""

from collections.abc import Callable
from typing import Any

import atb
import atb_torch
import pytest
import torch

pytestmark = pytest.mark.real


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self.linear, *args)


def linear_then_add(linear: Any, x: torch.Tensor) -> Any:
    y = linear(x)
    before = y * 1
    alias = y.view(-1)
    y.add_(1)
    return y, before, alias


def cat_then_write(linear: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    z = torch.cat([a, b])
    z[0] = 9
    return a, z


def read_then_write(linear: Any, x: torch.Tensor) -> Any:
    x = x + 0
    y = x.view(-1) * 2
    x[:, 2:5] = 2
    return y, x


def write_through_views(linear: Any, x: torch.Tensor) -> Any:
    base = linear(x)
    base.transpose(0, 1)[1:3].mul_(-1)
    base[:, -1].fill_(7)
    base.unsqueeze(0).reshape(-1)[:2].zero_()
    first, second = base.chunk(2, dim=1)
    second.sub_(first)
    left = base.unbind(1)[0]
    left.copy_(base[:, 3])
    return base, first, second, left


def copy_is_apart(linear: Any, x: torch.Tensor) -> Any:
    y = linear(x)
    copied, same = y.t().contiguous(), y.contiguous()
    y.relu_()
    return copied, same, y


def dropout_is_alias(linear: Any, x: torch.Tensor) -> Any:
    y = linear(x)
    d = torch.nn.functional.dropout(y, 0.5, False)
    y.add_(1)
    return d


def clone_is_apart(linear: Any, x: torch.Tensor) -> Any:
    y = linear(x)
    c = y.clone()
    c.clamp_(-0.1, 0.1)
    return y, c


def masked(linear: Any, x: torch.Tensor) -> Any:
    y = linear(x)
    y.masked_fill_(y > 0, -1.0)
    return y


FUNCTIONS = [
    linear_then_add,
    read_then_write,
    write_through_views,
    copy_is_apart,
    dropout_is_alias,
    clone_is_apart,
    masked,
]


def compare(function: Callable[..., Any], *inputs: torch.Tensor) -> atb_torch.CompiledModule:
    model = Function(function).eval()
    fast = atb_torch.compile(model, [tensor.clone() for tensor in inputs], threads=1)
    mine, theirs = ([tensor.clone() for tensor in inputs] for _ in range(2))
    with torch.no_grad():
        actual, expected = fast(*mine), model(*theirs)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mine, theirs)
    return fast


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_functions(function: Callable[..., Any]) -> None:
    compare(function, torch.randn(4, 6, generator=torch.Generator().manual_seed(0)))


def test_cat_then_write() -> None:
    compare(cat_then_write, torch.randn(2, 6), torch.randn(3, 6))


def test_arguments_are_written() -> None:
    def write(linear: Any, x: torch.Tensor) -> Any:
        y = linear(x)
        x[0].mul_(2)
        return y + x

    compare(write, torch.randn(4, 6))


def bits_then_write(linear: Any, x: torch.Tensor) -> Any:
    y = x.view(torch.int32) * 2
    x[:, 2:5] = 2
    return y


def write_then_bits(linear: Any, x: torch.Tensor) -> Any:
    bits = x.view(torch.int32)
    x[:, 2:5] = 2
    return bits * 2


def write_to_bits(linear: Any, x: torch.Tensor) -> Any:
    y = x + 0
    y.view(torch.int32)[:, 2:5] = 2
    return y


def bits_of_another_width(linear: Any, x: torch.Tensor) -> Any:
    y = x.view(torch.bfloat16)
    x.add_(1)
    return y.float()


BITS = [bits_then_write, write_then_bits, write_to_bits, bits_of_another_width]


@pytest.mark.parametrize("function", BITS, ids=lambda function: function.__name__)
def test_bits_are_refused(function: Callable[..., Any]) -> None:
    """The third form of the report views floats as integers: there is no operator for it, so no number is made up."""
    x = torch.randn(4, 6)
    before = x.clone()
    with pytest.raises(
        atb.UnsupportedError, match=r"aten\.view\.dtype in the module itself: a view of the bits"
    ) as error:
        atb_torch.compile(Function(function).eval(), x)
    assert "\n" not in str(error.value) and torch.equal(x, before)


def test_same_dtype_view() -> None:
    def view_same(linear: Any, x: torch.Tensor) -> Any:
        x = x + 0
        y = x.view(torch.int32) * 2
        x[:, 2:5] = 2
        return y, x

    compare(view_same, torch.arange(24, dtype=torch.int32).reshape(4, 6))


def test_what_cannot_be_followed_is_refused() -> None:
    def overlapping(linear: Any, x: torch.Tensor) -> Any:
        y = linear(x)
        y[:, ::2].add_(1)
        return y

    with pytest.raises(atb.UnsupportedError, match="step"):
        atb_torch.compile(Function(overlapping).eval(), torch.randn(4, 6))


class Adds(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a + b


def test_arguments_that_share_what_is_written() -> None:
    fast = atb_torch.compile(Adds().eval(), threads=1)
    base = torch.randn(6, 4)
    for a, b in ((base[:3], base[:3]), (base[:3], base[1:4]), (base[:4].t(), base[2:].t())):
        before = base.clone()
        with pytest.raises(atb.UnsupportedError, match="shares memory with argument 1"):
            fast(a, b)
        assert torch.equal(base, before)
    expected = base[:3] + 1 + base[3:]
    torch.testing.assert_close(fast(base[:3], base[3:]), expected)
