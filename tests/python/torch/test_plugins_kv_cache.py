# SPDX-License-Identifier: Apache-2.0
"""Plugins of blocks with a cache: what they return is what is kept, and an exception leaves the cache as it was."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import atb_torch as atb  # noqa: E402
from block_reference import attention, error, linear, randomize, rotated  # noqa: E402

pytestmark = pytest.mark.real

HIDDEN, HEADS, BATCH, TOKENS = 32, 4, 2, 12


class Rope(atb.Plugin):
    """Rotary embedding of one's own, and halved outputs."""

    def __init__(self) -> None:
        self.contexts: list[atb.PluginContext] = []
        self.fails = False

    def preprocess(self, inputs: Any) -> Any:
        self.contexts.append(self.context)
        q, k, v = inputs
        return rotated(q, self.context.positions), rotated(k, self.context.positions), v * 2

    def postprocess(self, outputs: Any) -> Any:
        if self.fails:
            raise ValueError("on purpose")
        return outputs * 0.5


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(BATCH, TOKENS, HIDDEN, generator=torch.Generator().manual_seed(3))


def make(x: torch.Tensor) -> tuple[atb.GraphOp, dict[str, torch.Tensor], Rope]:
    block = atb.GraphOp(
        [
            atb.Linear("p", out_features=3 * HIDDEN),
            atb.FlashAttention("attn", num_heads=HEADS, causal=True, kv_cache=True),
        ]
    )
    block(x)
    plugin = Rope()
    state = randomize(block)
    block.register_plugin("pre_attention", plugin)
    return block, state, plugin


def cache(layers: int = 1) -> Any:
    return atb.KVCache(num_layers=layers, num_heads=HEADS, head_dim=HIDDEN // HEADS, max_tokens=64)


def expected(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    q, k, v = linear(state, "p", x).chunk(3, -1)
    return attention(q, k, v * 2, HEADS, causal=True, rotate=lambda t: rotated(t, torch.arange(x.shape[1]))) * 0.5


@pytest.mark.parametrize("chunk", [1, 5, TOKENS])
def test_the_cache_keeps_what_the_plugin_returns(chunk: int, x: torch.Tensor) -> None:
    block, state, plugin = make(x)
    kept, parts = cache(), []
    for start in range(0, TOKENS, chunk):
        output, kept = block(x[:, start : start + chunk], kv_cache=kept)
        parts.append(output)
        end = min(start + chunk, TOKENS)
        assert plugin.contexts[-1].positions.tolist() == list(range(start, end))
        assert plugin.contexts[-1].lengths.tolist() == [end] * BATCH
        assert plugin.contexts[-1].layer == 0
    assert error(torch.cat(parts, 1), expected(state, x)) < 1e-4
    whole, _ = block(x, kv_cache=cache())
    assert torch.equal(torch.cat(parts, 1), whole)


def test_an_exception_leaves_the_cache_as_it_was(x: torch.Tensor) -> None:
    block, state, plugin = make(x)
    kept = cache()
    first, _ = block(x[:, :5], kv_cache=kept)
    blocks = kept.blocks_in_use
    plugin.fails = True
    for _ in range(3):
        with pytest.raises(ValueError, match=r"^\[plugin\] pre_attention: on purpose$"):
            block(x[:, 5:], kv_cache=kept)
    assert (kept.length, kept.blocks_in_use) == (5, blocks)
    plugin.fails = False
    rest, _ = block(x[:, 5:], kv_cache=kept)
    assert kept.length == TOKENS
    assert error(torch.cat((first, rest), 1), expected(state, x)) < 1e-4


def test_the_layer_is_the_slot(x: torch.Tensor) -> None:
    blocks = [make(x) for _ in range(3)]
    kept = cache(3)
    for block, _, _ in blocks:
        block(x, kv_cache=kept)
    assert [plugin.contexts[-1].layer for _, _, plugin in blocks] == [0, 1, 2]
