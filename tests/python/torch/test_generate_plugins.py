# SPDX-License-Identifier: Apache-2.0
"""generate() of compiled models with plugins: the tokens of recomputation, contexts, exceptions, what is refused."""

from __future__ import annotations

from typing import Any

import atb as core
import atb_torch as atb
import pytest
import torch
from block_reference import rotated
from torch import nn

pytestmark = pytest.mark.real

VOCAB, HIDDEN, HEADS, LAYERS, LONGEST = 53, 32, 4, 2, 48
MARGIN = 1e-4


class Rope(atb.Plugin):
    """Positions, which the model has none of: a wrong one changes the tokens."""

    def __init__(self) -> None:
        self.seen: list[tuple[int | None, list[int], list[int]]] = []
        self.fails_at: int | None = None

    def preprocess(self, inputs: Any) -> Any:
        now = self.context
        self.seen.append((now.layer, now.positions.tolist(), now.lengths.tolist()))
        if self.fails_at is not None and self.fails_at in now.positions.tolist():
            raise ValueError("on purpose")
        q, k, v = inputs
        return rotated(q, now.positions), rotated(k, now.positions), v


class Layer(nn.Module):
    def __init__(self, kv_cache: bool) -> None:
        super().__init__()
        self.block = atb.GraphOp(
            [
                atb.LayerNorm(),
                atb.Linear("qkv", out_features=3 * HIDDEN),
                atb.FlashAttention("attn", num_heads=HEADS, causal=True, kv_cache=kv_cache),
                atb.Linear("out", out_features=HIDDEN),
                atb.ResidualAdd(),
            ]
        )
        self.mlp = atb.GraphOp([atb.LayerNorm(), atb.Linear("up", out_features=HIDDEN), atb.SiLU(), atb.ResidualAdd()])


class Decoder(nn.Module):
    """Declared layers with a cache, and a head on all tokens or on the last one."""

    def __init__(self, kv_cache: bool = True, last: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList([Layer(kv_cache) for _ in range(LAYERS)])
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.last = last
        self.cache = None
        if kv_cache:
            self.cache = atb.KVCache(LAYERS, HEADS, HIDDEN // HEADS, max_tokens=LONGEST)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(input_ids)
        for layer in self.layers:
            if self.cache is None:
                x = layer.block(x)
            else:
                x, self.cache = layer.block(x, kv_cache=self.cache)
            x = layer.mlp(x)
        return self.head(x[:, -1] if self.last else x)


def decoder(**options: Any) -> Decoder:
    torch.manual_seed(1)
    model = Decoder(**options).eval()
    with torch.no_grad():
        model(torch.zeros(1, 2, dtype=torch.int64))
        for parameter in model.parameters():  # attention weighs as much as the token itself, so that positions matter
            if parameter.dim() == 2:
                parameter.copy_(torch.randn(parameter.shape) * (1 if parameter.shape[0] == VOCAB else 0.4))
    if model.cache is not None:
        model.cache.reset()
    return model


def register(model: Decoder, plugin: Any, point: str = "pre_attention") -> list[Any]:
    return [layer.block.register_plugin(point, plugin) for layer in model.layers]


def token_ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(length))


@torch.no_grad()
def greedy(model: Decoder, row: torch.Tensor, count: int) -> list[int]:
    """Tokens by recomputing the whole sequence with the model itself, not compiled."""
    ids = row[None]
    held, model.cache = model.cache, None if model.cache is None else model.cache.empty()
    for _ in range(count):
        if model.cache is not None:
            model.cache.reset()
        best = model(ids).reshape(-1, VOCAB)[-1].topk(2)
        assert best.values[0] - best.values[1] > MARGIN
        ids = torch.cat([ids, best.indices[:1][None]], dim=1)
    model.cache = held
    return ids[0, len(row) :].tolist()


@pytest.mark.parametrize("last", [False, True], ids=["all tokens", "last token"])
def test_tokens_are_those_of_recomputation(last: bool) -> None:
    model, ids = decoder(last=last), token_ids(3, 7)
    fast = atb.compile(model, threads=1)
    without = fast.generate(ids, max_new_tokens=10)
    plugin = Rope()
    handles = register(model, plugin)
    made = fast.generate(ids, max_new_tokens=10)
    assert made[:, 7:].tolist() == [greedy(model, row, 10) for row in ids]
    assert not torch.equal(made, without), "the plugin changes nothing here, and proves nothing"
    # Suspended or removed, the model generates the fast way again, to the token.
    calls = len(plugin.seen)
    plugin.enabled = False
    assert torch.equal(fast.generate(ids, max_new_tokens=10), without)
    plugin.enabled = True
    assert torch.equal(fast.generate(ids, max_new_tokens=10), made)
    assert len(plugin.seen) > calls
    calls = len(plugin.seen)
    for handle in handles:
        handle.remove()
    assert torch.equal(fast.generate(ids, max_new_tokens=10), without)
    assert len(plugin.seen) == calls


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_generate_what_they_do_alone(side: str) -> None:
    model, ids = decoder(), token_ids(4, 8)
    register(model, Rope())
    mask = torch.ones(4, 8, dtype=torch.int64)
    for row, count in enumerate((0, 3, 3, 7)):
        mask[row, slice(0, count) if side == "left" else slice(8 - count, 8)] = 0
    made = atb.compile(model, threads=1).generate(ids, mask, max_new_tokens=6)
    for row in range(4):
        assert made[row, 8:].tolist() == greedy(model, ids[row][mask[row].bool()], 6), f"row {row}"


def test_contexts_go_on_and_the_models_cache_stays() -> None:
    model = decoder()
    plugin = Rope()
    register(model, plugin)
    fast = atb.compile(model, threads=1)
    with torch.no_grad():
        fast(token_ids(1, 5))
    plugin.seen.clear()
    fast.generate(token_ids(2, 6), max_new_tokens=3)
    steps = [(list(range(6)), [6, 6]), ([6], [7, 7]), ([7], [8, 8])]
    assert plugin.seen == [(layer, *step) for step in steps for layer in range(LAYERS)]
    assert (model.cache.length, model.cache.batch_size) == (5, 1)


def test_ends_stops_streams_and_samples_are_those_of_the_fast_way() -> None:
    class Same(atb.Plugin):
        def preprocess(self, inputs: Any) -> Any:
            return inputs

    model, ids = decoder(), token_ids(2, 6)
    fast = atb.compile(model, threads=1)
    free = fast.generate(ids, max_new_tokens=12)[:, 6:].tolist()

    class Streamer:
        def __init__(self) -> None:
            self.put_ids: list[int] = []
            self.ended = False

        def put(self, tokens: torch.Tensor) -> None:
            self.put_ids += tokens.flatten().tolist()

        def end(self) -> None:
            self.ended = True

    calls: list[dict[str, Any]] = [
        {"max_new_tokens": 12, "eos_token_id": free[0][4], "pad_token_id": 0},
        {"max_new_tokens": 12, "stop": [free[1][2:4]]},
        {"max_new_tokens": 12, "temperature": 1.0, "top_k": 10, "top_p": 0.9, "seed": 4},
        {"max_new_tokens": 0},
        {"max_new_tokens": 100},  # to the end of the cache
    ]
    expected = [fast.generate(ids, **options) for options in calls]
    handles = register(model, Same())
    for options, tokens in zip(calls, expected, strict=True):
        assert torch.equal(fast.generate(ids, **options), tokens), options
    streamer = Streamer()
    row = fast.generate(ids[:1], max_new_tokens=5, streamer=streamer)
    assert streamer.put_ids == row[0].tolist()
    assert streamer.ended
    for options in ({"temperature": -1.0}, {"max_new_tokens": -1}):
        with pytest.raises(core.InvalidArgumentError, match=next(iter(options))):
            fast.generate(ids, **{"max_new_tokens": 2, **options})
    with pytest.raises(core.InvalidArgumentError, match=f"has {LONGEST + 1} tokens, the context holds {LONGEST}"):
        fast.generate(token_ids(1, LONGEST + 1), max_new_tokens=1)
    for handle in handles:
        handle.remove()


def test_an_exception_reaches_the_caller_and_the_next_call_is_right() -> None:
    model, ids = decoder(), token_ids(1, 5)
    plugin = Rope()
    register(model, plugin)
    fast = atb.compile(model, threads=1)
    expected = fast.generate(ids, max_new_tokens=6)
    for position in (0, 7):  # in the prompt, and while it generates
        plugin.fails_at = position
        with pytest.raises(ValueError, match=r"^\[plugin\] pre_attention: on purpose$"):
            fast.generate(ids, max_new_tokens=6)
        plugin.fails_at = None
        assert torch.equal(fast.generate(ids, max_new_tokens=6), expected)


# --- What is refused


def test_a_model_without_a_cache_is_told_what_to_do() -> None:
    model = decoder(kv_cache=False)
    register(model, Rope())
    message = (
        r"^\[generate\] a plugin \(layers.0.block: pre_attention, layers.1.block: pre_attention\) computes what cannot "
        r"be proven to work token by token, .* kv_cache=True .* KVCache as an attribute, or .* enabled = False$"
    )
    with pytest.raises(core.UnsupportedError, match=message):
        atb.compile(model, threads=1).generate(token_ids(1, 5), max_new_tokens=2)


class Around(Decoder):
    """Something of its own before the layers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.places = nn.Embedding(LONGEST, HIDDEN)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)

    def around(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "positions":
            return x + self.places(torch.arange(x.shape[1]))
        if self.kind == "mean":
            return x + x.mean(1, keepdim=True)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        return x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.around(self.embedding(input_ids))
        for layer in self.layers:
            x, self.cache = layer.block(x, kv_cache=self.cache)
        return self.head(x)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("positions", r"counts the tokens of a call from 0, outside of the blocks, but with a plugin \(layers.0.block"),
        ("attention", r"attends to the tokens of a call alone, outside of the blocks"),
        ("mean", r"^\[insert_kv_cache\] .*works along the token axis, so it mixes tokens"),
    ],
)
def test_what_a_cache_would_make_wrong_is_refused(kind: str, message: str) -> None:
    torch.manual_seed(0)
    model = Around(kind).eval()
    fast = atb.compile(model, threads=1)
    if kind != "mean":
        fast.generate(token_ids(1, 5), max_new_tokens=2)  # without a plugin it is proven, and re-expressed
    register(model, Rope())  # type: ignore[arg-type]
    with pytest.raises(core.UnsupportedError, match=message):
        fast.generate(token_ids(1, 5), max_new_tokens=2)
