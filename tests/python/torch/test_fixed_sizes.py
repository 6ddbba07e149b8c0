# SPDX-License-Identifier: Apache-2.0
"""Modules whose sizes export cannot leave open: a program for each set of sizes, PyTorch's numbers, a bound."""

from __future__ import annotations

import atb
import atb_torch
import pytest
import torch
from atb_torch import compiler, options
from torch import nn

pytestmark = pytest.mark.real

WIDTH, HEADS = 32, 4


class Patches(nn.Module):
    """Patches of 4 x 4 pixels, whose number export cannot prove to be the pixels'."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(48, WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels, height // 4, 4, width // 4, 4).permute(0, 2, 4, 1, 3, 5)
        return self.head(self.embed(x.reshape(batch, -1, channels * 16)).mean(1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.attend(query, key, value)


def streams(batch: int, queries: int, keys: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(batch, size, WIDTH) for size in (queries, keys, keys))


CASES = {
    "attention": (Attention, [streams(2, 5, 7), streams(3, 4, 4), streams(1, 1, 9)]),
    "decoder layer": (
        lambda: nn.TransformerDecoderLayer(WIDTH, HEADS, 64, batch_first=True),
        [streams(2, 5, 7)[:2], streams(1, 6, 3)[:2]],
    ),
    "tokens first": (
        lambda: nn.TransformerDecoderLayer(WIDTH, HEADS, 64),
        [streams(5, 2, 2)[:2], streams(3, 4, 4)[:2]],
    ),
    "patches": (Patches, [(torch.randn(2, 3, 16, 8),), (torch.randn(1, 3, 8, 8),)]),
}


def expect_equal(fast: nn.Module, module: nn.Module, call: tuple[torch.Tensor, ...]) -> None:
    with torch.no_grad():
        actual, expected = fast(*call), module(*call)
    several = isinstance(expected, tuple)
    for mine, theirs in zip(actual if several else [actual], expected if several else [expected], strict=True):
        assert mine.shape == theirs.shape
        assert (mine - theirs).abs().max() < 1e-4 * max(float(theirs.std()), 0.1)


@pytest.mark.parametrize("name", CASES)
def test_each_set_of_sizes_gives_the_numbers_of_torch(name: str) -> None:
    torch.manual_seed(0)
    make, calls = CASES[name]
    module = make().eval()
    fast = atb_torch.compile(module, threads=1)
    for call in (*calls, calls[0]):
        expect_equal(fast, module, call)
    assert len(fast.variants) == len(calls)  # the first serves its sizes again


def test_programs_are_bounded_and_the_last_used_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_MAX_VARIANTS", 2)
    module = Patches().eval()
    fast = atb_torch.compile(module, threads=1)
    calls = [(torch.randn(1, 3, 4 * size, 8),) for size in (1, 2, 3)]
    for index in (0, 1, 0, 2):
        expect_equal(fast, module, calls[index])
    kept = fast.variants
    assert len(kept) == 2
    expect_equal(fast, module, calls[0])
    assert set(map(id, fast.variants)) == set(map(id, kept)), "the one used last but one was dropped"


def test_it_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    options._said.clear()
    for size in (1, 2):
        atb_torch.compile(Patches().eval(), torch.randn(1, 3, 4 * size, 8), threads=1)
    lines = [line for line in capfd.readouterr().err.splitlines() if "sizes cannot stay open" in line]
    assert len(lines) == 1
    assert lines[0].startswith("[atb_torch] Patches: sizes cannot stay open, so each set of sizes gets a program")
    assert f"the {compiler._MAX_VARIANTS} last used are kept" in lines[0]


def test_open_sizes_stay_open() -> None:
    module = nn.Linear(8, 4).eval()
    fast = atb_torch.compile(module, threads=1)
    for rows in (2, 3, 7):
        expect_equal(fast, module, (torch.randn(rows, 8),))
    assert len(fast.variants) == 1


class ByValues(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


class Unknown(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(x.reshape(x.shape[0] // 2, 2, -1)[0])[0]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (ByValues(), r"aten.index.Tensor in the module itself: an index by booleans gives a size that depends on"),
        (Unknown(), r"^\[atb_torch\] 1 operator cannot be lowered: aten.linalg_qr in the module itself: there is"),
    ],
)
def test_what_fails_at_fixed_sizes_too_says_why(module: nn.Module, message: str) -> None:
    with pytest.raises(atb.UnsupportedError, match=message):
        atb_torch.compile(module.eval(), torch.randn(4, 6))
