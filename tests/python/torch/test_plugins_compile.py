# SPDX-License-Identifier: Apache-2.0
"""Plugins of blocks inside models that are compiled: called as in the blocks themselves."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import atb as core  # noqa: E402
import atb_torch as atb  # noqa: E402
from block_reference import error, rotated  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.real

HIDDEN, HEADS, LAYERS = 32, 4, 2


class Rope(atb.Plugin):
    def __init__(self) -> None:
        self.seen: list[tuple[int | None, list[int], list[int]]] = []
        self.fails = False

    def preprocess(self, inputs: Any) -> Any:
        now = self.context
        self.seen.append((now.layer, now.positions.tolist(), now.lengths.tolist()))
        if self.fails and now.layer == 1:
            raise ValueError("on purpose")
        q, k, v = inputs
        return rotated(q, now.positions), rotated(k, now.positions), v


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            atb.GraphOp(
                [
                    atb.LayerNorm(),
                    atb.Linear("qkv", out_features=3 * HIDDEN),
                    atb.FlashAttention("attn", num_heads=HEADS, causal=True, kv_cache=True),
                    atb.ResidualAdd(),
                ]
            )
            for _ in range(LAYERS)
        )
        self.cache = atb.KVCache(num_layers=LAYERS, num_heads=HEADS, head_dim=HIDDEN // HEADS, max_tokens=64)
        self.plugin = Rope()
        for layer in self.layers:
            layer.register_plugin("pre_attention", self.plugin)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x, self.cache = layer(x, kv_cache=self.cache)
        return x


@torch.no_grad()
def test_a_compiled_model_calls_the_plugins_of_its_blocks() -> None:
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(2, 12, HIDDEN)
    whole = model(x)
    eager = list(model.plugin.seen)
    assert [layer for layer, _, _ in eager] == [0, 1]
    model.cache.reset()
    fast = atb.compile(model)
    fast(x)
    model.cache.reset()
    model.plugin.seen.clear()
    assert error(fast(x), whole) < 1e-4
    assert model.plugin.seen == eager
    model.cache.reset()
    parts = [fast(x[:, :5]), fast(x[:, 5:])]
    assert error(torch.cat(parts, 1), whole) < 1e-4
    assert model.plugin.seen[-1] == (1, list(range(5, 12)), [12, 12])
    model.cache.truncate(5)
    model.plugin.fails = True
    with pytest.raises(ValueError, match=r"^\[plugin\] pre_attention: on purpose$"):
        fast(x[:, 5:])
    assert model.cache.length == 5
    model.plugin.fails = False
    assert torch.equal(fast(x[:, 5:]), parts[1])


@torch.no_grad()
def test_generate_refuses_plugins_by_the_name_of_the_point() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, HIDDEN)
            self.block = atb.GraphOp(
                [atb.Linear("qkv", out_features=3 * HIDDEN), atb.FlashAttention("attn", num_heads=HEADS, causal=True)]
            )
            self.head = nn.Linear(HIDDEN, 50)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.block(self.embedding(input_ids)))

    model, ids = Decoder().eval(), torch.arange(5)[None]
    model(ids)
    assert atb.compile(model).generate(ids, max_new_tokens=2).shape == (1, 7)
    model.block.register_plugin("pre_attention", Rope())
    with pytest.raises(core.UnsupportedError, match=r"a plugin \(block: pre_attention\) computes"):
        atb.compile(model).generate(ids, max_new_tokens=2)


class Doubling(atb.Plugin):
    def postprocess(self, outputs: Any) -> Any:
        return outputs * 2


def test_a_compiled_model_sees_plugins_come_and_go() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = atb.GraphOp([atb.LayerNorm(), atb.Linear("up", out_features=HIDDEN), atb.ResidualAdd()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x) + 1

    torch.manual_seed(0)
    model, x = Outer().eval(), torch.randn(2, 5, HIDDEN)
    with torch.no_grad():
        plain = model(x)
        fast = atb.compile(model)
        assert error(fast(x), plain) < 1e-5
        plugin = Doubling()
        handle = model.block.register_plugin("post_linear", plugin)
        doubled = model(x)
        assert error(doubled, plain) > 0.1
        assert error(fast(x), doubled) < 1e-5
        plugin.enabled = False
        assert error(fast(x), plain) < 1e-5
        plugin.enabled = True
        assert error(fast(x), doubled) < 1e-5
        handle.remove()
        assert error(fast(x), plain) < 1e-5
