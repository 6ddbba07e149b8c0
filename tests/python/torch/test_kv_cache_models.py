# SPDX-License-Identifier: Apache-2.0
"""GraphOps with a KVCache: pieces, rotary positions, layers, forks, copies, and what an exception leaves behind."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import atb as core
import atb_torch as atb
import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore:.*no projection before it")]

HIDDEN, HEADS, MLP, VOCAB = 32, 4, 48, 37


def attention(**options: Any) -> atb.GraphOp:
    heads = options.pop("num_kv_heads", HEADS)
    dim = HIDDEN // HEADS
    return atb.GraphOp(
        [
            atb.LayerNorm(),
            atb.Linear("qkv", out_features=HIDDEN + 2 * heads * dim),
            atb.FlashAttention("attn", num_heads=HEADS, num_kv_heads=heads, causal=True, kv_cache=True, **options),
            atb.Linear("out", out_features=HIDDEN),
            atb.ResidualAdd(),
        ]
    )


def cache_of(layers: int = 1, heads: int = HEADS, **options: Any) -> atb.KVCache:
    sizes = {"num_layers": layers, "num_heads": heads, "head_dim": HIDDEN // HEADS, "max_tokens": 256}
    return atb.KVCache(**{**sizes, **options})


def hidden(batch: int, tokens: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(batch, tokens, HIDDEN, generator=torch.Generator().manual_seed(seed))


def randomized(block: nn.Module, x: torch.Tensor, seed: int = 0) -> Any:
    block(x)  # gives parameters their shapes
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / HIDDEN**0.5)
    return block


def in_pieces(block: atb.GraphOp, x: torch.Tensor, cache: atb.KVCache, size: int) -> torch.Tensor:
    outputs = []
    for piece in x.split(size, dim=1):
        output, returned = block(piece, kv_cache=cache)
        assert returned is cache
        outputs.append(output)
    return torch.cat(outputs, dim=1)


# --- One block


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_kv_heads": 2},
        {"window": 5, "softcap": 4.0},
        {"rope": True},
        {"rope": {"interleaved": True}, "num_kv_heads": 1},
    ],
    ids=["plain", "gqa", "window", "rope", "interleaved"],
)
def test_pieces_have_the_bits_of_the_whole(options: dict[str, Any]) -> None:
    x = hidden(3, 40)
    block = randomized(attention(**options), x)
    heads = options.get("num_kv_heads", HEADS)
    without, nothing = block(x)
    assert nothing is None
    for size in (1, 3, 7, 40):
        cache = cache_of(heads=heads)
        assert torch.equal(in_pieces(block, x, cache, size), without)
        assert (cache.length, cache.batch_size) == (40, 3)


def test_positions_may_be_given() -> None:
    x = hidden(2, 10)
    block = randomized(attention(rope=True), x)
    whole = block(x, positions=torch.arange(10) + 5)[0]
    cache = cache_of()
    first = block(x[:, :6], kv_cache=cache, positions=torch.arange(6) + 5)[0]
    second = block(x[:, 6:], kv_cache=cache, positions=torch.arange(4) + 11)[0]
    assert torch.equal(torch.cat([first, second], dim=1), whole)


def test_other_streams_of_as_many_tokens() -> None:
    x = hidden(2, 9)
    block = randomized(attention(), x)
    cache, other = cache_of(), cache_of()
    for piece in x.split(3, dim=1):
        same = block(piece, piece.clone(), piece.clone(), kv_cache=cache)[0]
        assert torch.equal(same, block(piece, kv_cache=other)[0])
    with pytest.raises(core.Error, match="keys"):
        block(x, hidden(2, 4), hidden(2, 4), kv_cache=cache)
    assert cache.length == 9


def test_half_precision() -> None:
    x = hidden(2, 20)
    block = randomized(attention(), x)
    exact = block(x)[0]
    half = copy.deepcopy(block).half()
    whole = in_pieces(half, x.half(), cache_of(), 20)
    assert torch.equal(in_pieces(half, x.half(), cache_of(), 3), whole)
    assert (whole - exact).square().mean().sqrt() / exact.std() < 2e-3


def test_wrong_caches_are_refused() -> None:
    x = hidden(1, 4)
    block = randomized(attention(), x)
    with pytest.raises(core.InvalidArgumentError, match="kv_cache is a dict, expected an atb_torch"):
        block(x, kv_cache={})
    with pytest.raises(core.InvalidArgumentError, match=r"head_dim=8, the cache num_heads=2, head_dim=16"):
        block(x, kv_cache=cache_of(heads=2, head_dim=16))
    with pytest.raises(core.InvalidArgumentError, match=r"attention_mask is \[1, 3\]; expected \[1, 4\]"):
        block(x, kv_cache=cache_of(), attention_mask=torch.ones(1, 3))


# --- A model of the blocks, as in the documentation


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_graph = attention()
        self.mlp_graph = atb.GraphOp(
            [
                atb.LayerNorm(eps=1e-5),
                atb.Linear(out_features=MLP),
                atb.SiLU(),
                atb.Linear(out_features=HIDDEN),
                atb.ResidualAdd(),
            ]
        )

    def forward(self, x: torch.Tensor, kv_cache: Any = None) -> Any:
        x, kv_cache = self.attention_graph(x, kv_cache=kv_cache)
        return self.mlp_graph(x), kv_cache


class Model(nn.Module):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList([Block() for _ in range(layers)])
        self.norm = nn.LayerNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.kv_cache = cache_of(layers)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(input_ids)
        for layer in self.layers:
            x, self.kv_cache = layer(x, kv_cache=self.kv_cache)
        return self.lm_head(self.norm(x))


def eager(model: Model, input_ids: torch.Tensor) -> torch.Tensor:
    """The model's mathematics in plain PyTorch."""
    x = model.embedding(input_ids)
    for layer in model.layers:
        state = layer.attention_graph.state_dict()
        y = F.layer_norm(x, (HIDDEN,), state["0.weight"], state["0.bias"])
        q, k, v = F.linear(y, state["qkv.weight"], state["qkv.bias"]).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + F.linear(y, state["out.weight"], state["out.bias"])
        state = layer.mlp_graph.state_dict()
        y = F.layer_norm(x, (HIDDEN,), state["0.weight"], state["0.bias"])
        y = F.silu(F.linear(y, state["1.weight"], state["1.bias"]))
        x = x + F.linear(y, state["3.weight"], state["3.bias"])
    return model.lm_head(model.norm(x))


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    made = Model().eval()
    ids = torch.zeros(1, 1, dtype=torch.int64)
    with torch.no_grad():
        randomized(made, ids)
    made.kv_cache.reset()
    return made


def token_ids(batch: int, tokens: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (batch, tokens), generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def test_a_model_in_pieces_equals_torch(model: Model) -> None:
    ids = token_ids(2, 30)
    expected = eager(model, ids)
    for size in (30, 7, 1):
        model.kv_cache.reset()
        logits = torch.cat([model(piece) for piece in ids.split(size, dim=1)], dim=1)
        assert (logits - expected).abs().max() / expected.std() < 1e-4
        assert model.kv_cache.length == 30
    with pytest.raises(core.InvalidArgumentError, match="holds 2 sequences, the call has 3"):
        model(token_ids(3, 1))


@torch.no_grad()
def test_an_exception_between_layers_is_repaired_by_truncate(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = token_ids(1, 12)
    model.kv_cache.reset()
    model(ids[:, :8])
    with monkeypatch.context() as patch:
        patch.setattr(model.layers[1].mlp_graph, "forward", lambda x: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(ids[:, 8:])
    assert model.kv_cache.length == 8
    model.kv_cache.truncate(8)
    tail = model(ids[:, 8:])
    model.kv_cache.reset()
    model(ids[:, :8])
    assert torch.equal(model(ids[:, 8:]), tail)


@torch.no_grad()
def test_a_copy_of_a_model_goes_on_by_itself(model: Model) -> None:
    ids = token_ids(1, 12)
    model.kv_cache.reset()
    model(ids[:, :8])
    twin = copy.deepcopy(model)
    tail = model(ids[:, 8:])
    assert (model.kv_cache.length, twin.kv_cache.length) == (12, 8)
    assert torch.equal(twin(ids[:, 8:]), tail)


@torch.no_grad()
def test_a_fork_serves_two_continuations(model: Model) -> None:
    ids = token_ids(2, 16)
    model.kv_cache.reset()
    model(ids[:, :10])
    held = model.kv_cache
    tails = []
    for tail in (ids[:, 10:], ids[:, 10:].flip(1)):
        model.kv_cache = held.fork()
        tails.append(model(tail))
    model.kv_cache = held
    assert held.length == 10
    for tail, actual in zip((ids[:, 10:], ids[:, 10:].flip(1)), tails, strict=True):
        expected = eager(model, torch.cat([ids[:, :10], tail], dim=1))[:, 10:]
        assert (actual - expected).abs().max() / expected.std() < 1e-4


# --- Exceptions inside a block


def test_an_exception_in_a_block_leaves_its_slot() -> None:
    fails = [False]

    def adapter(x: torch.Tensor) -> torch.Tensor:
        if fails[0]:
            raise ValueError("no adapter")
        return x * 1.0

    block = atb.GraphOp(
        [
            atb.Linear("qkv", out_features=3 * HIDDEN),
            atb.FlashAttention(num_heads=HEADS, causal=True, kv_cache=True),
            atb.Custom(adapter),
        ]
    )
    x = hidden(2, 12)
    randomized(block, x)
    cache, other = cache_of(), cache_of()
    fails[0] = True
    with pytest.raises(ValueError, match="no adapter"):
        block(hidden(5, 3), kv_cache=cache)
    fails[0] = False
    assert (cache.length, cache.batch_size, cache.blocks_in_use) == (0, None, 0)
    block(x[:, :8], kv_cache=cache)
    block(x[:, :8], kv_cache=other)
    fails[0] = True
    with pytest.raises(ValueError, match="no adapter"):
        block(hidden(2, 3, seed=9), kv_cache=cache)
    fails[0] = False
    assert cache.length == 8
    assert torch.equal(block(x[:, 8:], kv_cache=cache)[0], block(x[:, 8:], kv_cache=other)[0])


def test_a_cache_keeps_its_blocks_until_reset() -> None:
    x = hidden(1, 4)
    block = randomized(attention(), x)
    cache = cache_of()
    block(x, kv_cache=cache)
    gone = weakref.ref(block)
    del block
    gc.collect()
    assert gone() is not None  # its slot must not go to a block that has its address by chance
    cache.reset()
    gc.collect()
    assert gone() is None
