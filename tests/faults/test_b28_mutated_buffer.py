# SPDX-License-Identifier: Apache-2.0
"""B28, import: a buffer that the module writes to is state, never a folded constant."""

import atb
import atb_torch
import pytest
import torch

pytestmark = pytest.mark.real


class Cache(torch.nn.Module):
    """Writes each call's keys into the next place of a cache and attends over what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 8, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, k: torch.Tensor) -> torch.Tensor:
        here = torch.arange(8).reshape(1, 1, 8, 1) == self.count
        self.keys.copy_(torch.where(here, k, self.keys))
        self.count += 1
        return self.keys.sum(2)


@pytest.mark.parametrize("exported", [False, True])
def test_later_steps_see_earlier_ones(exported: bool) -> None:
    steps = [torch.randn(1, 2, 1, 4, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    eager, other = Cache().eval(), Cache().eval()
    source = torch.export.export(other, (steps[0],), strict=False) if exported else other
    fast = atb_torch.compile(source, threads=1)
    with torch.no_grad():
        for step in steps:
            torch.testing.assert_close(fast(step), eager(step))
    if not exported:
        torch.testing.assert_close(other.keys, eager.keys)
        assert int(other.count) == 3


def test_changed_parameters_are_refused() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.mul_(2)
            return x * self.weight

    with pytest.raises(atb.UnsupportedError, match="parameter weight in place"):
        atb_torch.compile(Counts().eval(), torch.randn(3, 4))


class Assigns(torch.nn.Module):
    """Assigns one buffer, writes to another, and reads both."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.mean = self.mean * 0.5 + x.mean(0)
        return x * self.count + self.mean


def test_assigned_buffers_are_written() -> None:
    eager, other = Assigns().eval(), Assigns().eval()
    fast = atb_torch.compile(other, threads=1)
    for rows in (3, 3, 1, 4, 1):  # finding out what a program does at one row must not count
        x = torch.randn(rows, 4)
        torch.testing.assert_close(fast(x), eager(x))
        torch.testing.assert_close(other.state_dict(), eager.state_dict())


def test_buffers_of_the_user() -> None:
    eager, other = Assigns().eval(), Assigns().eval()
    fast = atb_torch.compile(other, threads=1)
    x = torch.randn(3, 4)
    fast(x)
    other.count.zero_()
    other.mean = torch.zeros(4)
    torch.testing.assert_close(fast(x), eager(x))
    torch.testing.assert_close(other.state_dict(), eager.state_dict())


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("last", torch.zeros(2))

    def forward(self, x: torch.Tensor, grow: bool = False) -> torch.Tensor:
        if grow:
            self.last = x[0, :3]
            return x * self.last.sum()
        self.calls += 1
        return x * self.calls


@pytest.mark.parametrize(("grow", "reason"), [(True, "buffer last"), (False, "assigns 1 to its attribute calls")])
def test_what_a_graph_cannot_keep_is_refused(grow: bool, reason: str) -> None:
    model = Counts().eval()
    with pytest.raises(atb.UnsupportedError, match=reason):
        atb_torch.compile(model, threads=1)(torch.randn(3, 4), grow)
    assert model.calls == 0
    assert model.last.shape == (2,)
