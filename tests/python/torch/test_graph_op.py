# SPDX-License-Identifier: Apache-2.0
"""GraphOp against plain PyTorch of the same mathematics: what items and calls mean, and numbers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import atb_torch as atb  # noqa: E402
from block_reference import (  # noqa: E402
    attention,
    error,
    layer_norm,
    linear,
    randomize,
    rms_error,
    rms_norm,
    rotated,
    sliced,
)
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

H, HEADS, BATCH, TOKENS = 32, 4, 2, 11
TOLERANCE = 1e-4


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def x() -> torch.Tensor:
    return normal(BATCH, TOKENS, H)


def attention_block(**options: Any) -> atb.GraphOp:
    return atb.GraphOp(
        [
            atb.LayerNorm("query", eps=1e-5),
            atb.Linear("qkv_proj", out_features=3 * H),
            atb.FlashAttention("attn", num_heads=HEADS, causal=True, **options),
            atb.Linear("out_proj", out_features=H),
            atb.ResidualAdd("output", "input"),
        ]
    )


def expected_attention(state: Any, query: Any, key: Any, value: Any, residual: Any, **options: Any) -> torch.Tensor:
    streams = [layer_norm(state, "0", t) for t in (query, key, value)]
    q, k, v = sliced(state, "qkv_proj", *streams, (H, H, H))
    out = attention(q, k, v, HEADS, **({"causal": True} | options))
    return residual + linear(state, "out_proj", out)


def ready(block: atb.GraphOp, *args: Any, **kwargs: Any) -> Any:
    """Calls the block once, so that its parameters are there, then fills them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        block(*args, **kwargs)
    return randomize(block)


# --- The attention block


def test_names_are_prefixes_unless_they_are_arguments(x: torch.Tensor) -> None:
    block = attention_block()
    names = ["0.weight", "0.bias", "qkv_proj.weight", "qkv_proj.bias", "out_proj.weight", "out_proj.bias"]
    assert list(block.state_dict()) == names
    block(x)
    assert list(block.state_dict()) == names
    assert [tuple(p.shape) for p in block.parameters()] == [(H,), (H,), (3 * H, H), (3 * H,), (H, H), (H,)]


def test_self_attention_with_and_without_a_residual(x: torch.Tensor) -> None:
    block, residual = attention_block(), normal(BATCH, TOKENS, H, seed=2)
    state = ready(block, x)
    assert error(block(x), expected_attention(state, x, x, x, x)) < TOLERANCE
    assert error(block(x, residual=residual), expected_attention(state, x, x, x, residual)) < TOLERANCE
    assert error(block(x, residual=residual), expected_attention(state, x, x, x, x)) > 0.1


def test_streams_go_through_the_norm_and_their_slice(x: torch.Tensor) -> None:
    block = attention_block()
    key, value, residual = (normal(BATCH, TOKENS, H, seed=seed) for seed in (2, 3, 4))
    state = ready(block, x)
    assert error(block(x, key, value, residual), expected_attention(state, x, key, value, residual)) < TOLERANCE
    assert error(block(x, key), expected_attention(state, x, key, x, x)) < TOLERANCE
    assert error(block(x, value=value), expected_attention(state, x, x, value, x)) < TOLERANCE
    assert error(block(x, key, value, residual), expected_attention(state, x, value, key, residual)) > 0.1


def test_a_clone_of_the_query_gives_what_the_query_gives(x: torch.Tensor) -> None:
    block = attention_block(rope=True)
    ready(block, x)
    assert error(block(x, x.clone(), x.clone(), x.clone()), block(x)) < 1e-5
    assert torch.equal(block(x, x, x, x), block(x))


def test_keys_of_another_length() -> None:
    block = atb.GraphOp([atb.Linear("p", out_features=3 * H), atb.FlashAttention("a", num_heads=HEADS)])
    x, memory = normal(BATCH, 5, H), normal(BATCH, 13, H, seed=2)
    state = ready(block, x)
    q, k, v = sliced(state, "p", x, memory, memory, (H, H, H))
    assert error(block(x, memory, memory), attention(q, k, v, HEADS)) < TOLERANCE
    causal = attention_block()
    with pytest.raises(atb_error(), match=r"\[flash_attention\] attn: causal=True with T queries and S keys"):
        causal(x, memory, memory)
    with pytest.raises(atb_error(), match=r"key and value have \[5, 13\] tokens"):
        block(x, memory)


def atb_error() -> type[Exception]:
    import atb as core

    return core.InvalidArgumentError


@pytest.mark.parametrize("tokens", [1, 2, 17, 64])
def test_one_graph_serves_all_lengths(tokens: int) -> None:
    block = attention_block()
    state = ready(block, normal(1, 3, H))
    block(normal(1, 3, H))
    compiled = block.compiled
    x = normal(3, tokens, H, seed=tokens)
    assert error(block(x), expected_attention(state, x, x, x, x)) < TOLERANCE
    assert block.compiled is compiled


def test_without_a_batch_axis(x: torch.Tensor) -> None:
    block = attention_block()
    ready(block, x)
    assert torch.equal(block(x[0]), block(x[:1])[0])
    key = normal(TOKENS, H, seed=3)
    assert torch.equal(block(x[0], key, key), block(x[:1], key[None], key[None])[0])


# --- Options of attention


@pytest.mark.parametrize(
    "options",
    [
        {"causal": False},
        {"scale": 0.3},
        {"window": 3},
        {"softcap": 2.0},
        {"softcap": 2.0, "scale": 0.7, "window": 4},
    ],
    ids=str,
)
def test_options(options: dict[str, Any], x: torch.Tensor) -> None:
    block = atb.GraphOp(
        [
            atb.Linear("p", out_features=3 * H),
            atb.FlashAttention("a", num_heads=HEADS, **({"causal": True} | options)),
        ]
    )
    state = ready(block, x)
    q, k, v = linear(state, "p", x).split(H, -1)
    assert error(block(x), attention(q, k, v, HEADS, **({"causal": True} | options))) < TOLERANCE
    assert error(block(x), attention(q, k, v, HEADS, causal="causal" in options)) > 0.01
    assert "flash_attention" in str(block.compiled)


@pytest.mark.parametrize(("kv_heads", "head_dim"), [(2, None), (1, 8), (4, 16)])
def test_grouped_queries(kv_heads: int, head_dim: int | None, x: torch.Tensor) -> None:
    dim = head_dim or 8
    width = (HEADS + 2 * kv_heads) * dim
    block = atb.GraphOp(
        [
            atb.Linear("p", out_features=width, bias=False),
            atb.FlashAttention("a", num_heads=HEADS, num_kv_heads=kv_heads, head_dim=head_dim, causal=True),
            atb.Linear("o", out_features=H, bias=False),
        ]
    )
    state = ready(block, x)
    q, k, v = linear(state, "p", x).split([HEADS * dim, kv_heads * dim, kv_heads * dim], -1)
    assert error(block(x), linear(state, "o", attention(q, k, v, HEADS, kv_heads, causal=True))) < TOLERANCE


@pytest.mark.parametrize(
    "rope", [True, 500.0, {"theta": 500.0, "dim": 4}, {"interleaved": True}, atb.RotaryEmbedding(dim=6)], ids=str
)
@pytest.mark.parametrize("as_item", [False, True], ids=["option", "item"])
def test_rope(rope: Any, as_item: bool, x: torch.Tensor) -> None:
    options = {"theta": rope} if isinstance(rope, float) else rope if isinstance(rope, dict) else {}
    options = {"dim": 6} if isinstance(rope, atb.Item) else options
    items = [atb.RotaryEmbedding(**options)] if as_item else []
    block = atb.GraphOp(
        [
            atb.Linear("p", out_features=3 * H),
            *items,
            atb.FlashAttention("a", num_heads=HEADS, causal=True, rope=None if as_item else rope),
        ]
    )
    state = ready(block, x)
    q, k, v = linear(state, "p", x).split(H, -1)
    positions = torch.arange(TOKENS)

    def expected(at: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v, HEADS, causal=True, rotate=lambda t: rotated(t, at, **options))

    assert error(block(x), expected(positions)) < TOLERANCE
    ragged = torch.stack((positions * 3, positions + 7))
    assert error(block(x, positions=ragged), expected(ragged)) < TOLERANCE
    assert error(block(x, positions=positions + 5), expected(positions + 5)) < TOLERANCE
    assert error(block(x, positions=ragged), expected(positions)) > 0.01
    if not as_item:
        assert "MergedMatMul" in str(block.report()) or "merged_matmul" in str(block.compiled)


def test_rotary_embedding_away_from_attention(x: torch.Tensor) -> None:
    block = atb.GraphOp([atb.RotaryEmbedding(head_dim=8), atb.Linear(out_features=4)])
    state = ready(block, x)
    heads = x.view(BATCH, TOKENS, 4, 8).transpose(1, 2)
    turned = rotated(heads, torch.arange(TOKENS)).transpose(1, 2).reshape(x.shape)
    assert error(block(x), linear(state, "1", turned)) < TOLERANCE


def test_attention_masks(x: torch.Tensor) -> None:
    block = attention_block()
    state = ready(block, x)
    padding = torch.ones(BATCH, TOKENS, dtype=torch.int64)
    padding[1, 8:] = 0
    seen = padding.bool()[:, None, None, :]
    expected = expected_attention(state, x, x, x, x, mask=seen)
    assert error(block(x, attention_mask=padding), expected) < TOLERANCE
    assert error(block(x, attention_mask=padding.bool()), expected) < TOLERANCE
    assert error(block(x), expected) > 0.01
    full = torch.rand(BATCH, TOKENS, TOKENS, generator=torch.Generator().manual_seed(5)) > 0.3
    full |= torch.eye(TOKENS, dtype=torch.bool)
    expected = expected_attention(state, x, x, x, x, mask=full[:, None])
    assert error(block(x, attention_mask=full), expected) < TOLERANCE
    by_head = normal(BATCH, HEADS, TOKENS, TOKENS, seed=6)
    expected = expected_attention(state, x, x, x, x, mask=by_head)
    assert error(block(x, attention_mask=by_head), expected) < TOLERANCE
    one = normal(1, 1, TOKENS, TOKENS, seed=7)
    assert error(block(x, attention_mask=one), expected_attention(state, x, x, x, x, mask=one)) < TOLERANCE


def test_masks_over_keys_of_another_length() -> None:
    block = atb.GraphOp([atb.Linear("p", out_features=3 * H), atb.FlashAttention("a", num_heads=HEADS)])
    x, memory = normal(BATCH, 5, H), normal(BATCH, 7, H, seed=2)
    state = ready(block, x)
    q, k, v = sliced(state, "p", x, memory, memory, (H, H, H))
    seen = normal(BATCH, 5, 7, seed=3) > -0.5
    seen[..., 0] = True
    for mask, wide in ((seen, seen[:, None]), (seen[:, 0], seen[:, None, :1]), (seen[:, :1], seen[:, None, :1])):
        assert error(block(x, memory, memory, attention_mask=mask), attention(q, k, v, HEADS, mask=wide)) < TOLERANCE
    nothing = torch.zeros(BATCH, 7, dtype=torch.bool)
    assert torch.equal(block(x, memory, memory, attention_mask=nothing), torch.zeros(BATCH, 5, H))


def test_without_a_projection_it_warns_once(x: torch.Tensor) -> None:
    block = atb.GraphOp(
        [
            atb.LayerNorm(eps=1e-5),
            atb.FlashAttention(num_heads=HEADS, causal=True),
            atb.Linear(out_features=H),
            atb.ResidualAdd(),
        ]
    )
    with pytest.warns(UserWarning, match=r"no projection before it.*a Linear with out_features=96") as record:
        block(x)
        block(x)
        block(x, x.clone())
    assert len(record) == 1
    state = randomize(block)
    assert list(state) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    y = layer_norm(state, "0", x)
    assert error(block(x), x + linear(state, "2", attention(y, y, y, HEADS, causal=True))) < TOLERANCE


# --- Other items


def test_mlp_block(x: torch.Tensor) -> None:
    items = [
        atb.LayerNorm(eps=1e-5),
        atb.Linear(out_features=48),
        atb.SiLU(),
        atb.Linear(out_features=H),
        atb.ResidualAdd(),
    ]
    block = atb.GraphOp(items)
    state = ready(block, x)
    assert list(state) == ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]
    expected = x + linear(state, "3", F.silu(linear(state, "1", layer_norm(state, "0", x))))
    assert error(block(x), expected) < TOLERANCE
    assert error(block(x), expected - x) > 0.1


@pytest.mark.parametrize(
    ("item", "function"),
    [
        (atb.SiLU(), F.silu),
        (atb.ReLU(), F.relu),
        (atb.GELU(), F.gelu),
        (atb.GELU(approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
        (atb.Softmax(), lambda x: F.softmax(x, -1)),
        (atb.Dropout(p=0.0), lambda x: x),
        (atb.Custom("tanh", "tanh"), torch.tanh),
        (atb.Custom(lambda x: x.flip(-1) * 2), lambda x: x.flip(-1) * 2),
    ],
    ids=lambda value: str(value) if isinstance(value, atb.Item) else "",
)
def test_pointwise_items(item: atb.Item, function: Any, x: torch.Tensor) -> None:
    assert error(atb.GraphOp([item])(x), function(x)) < TOLERANCE


def test_rms_norm_and_gated_mlp(x: torch.Tensor) -> None:
    for activation, function in (("silu", F.silu), ("gelu", F.gelu), ("relu", F.relu)):
        block = atb.GraphOp(
            [
                atb.RMSNorm("norm", eps=1e-6),
                atb.GatedMLP("mlp", hidden_features=40, activation=activation),
                atb.ResidualAdd(),
            ]
        )
        state = ready(block, x)
        assert list(state) == ["norm.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"]
        y = rms_norm(state, "norm", x)
        gated = function(linear(state, "mlp.gate_proj", y)) * linear(state, "mlp.up_proj", y)
        assert error(block(x), x + linear(state, "mlp.down_proj", gated)) < TOLERANCE
        assert "fused_gate_up" in str(block.compiled)


def test_residuals_name_their_source(x: torch.Tensor) -> None:
    block = atb.GraphOp(
        [
            atb.Linear("a", out_features=H),
            atb.ResidualAdd(),
            atb.Linear("b", out_features=H),
            atb.ResidualAdd(),
            atb.ResidualAdd("again", "a"),
        ]
    )
    state = ready(block, x)
    a = linear(state, "a", x)
    first = x + a
    expected = first + linear(state, "b", first) + a
    assert error(block(x), expected) < TOLERANCE
    with pytest.raises(atb_error(), match=r'source "c" is no item before it.*there are input, a, b'):
        atb.GraphOp([atb.Linear("a", out_features=H), atb.Linear("b", out_features=H), atb.ResidualAdd(source="c")])(x)


def test_branches(x: torch.Tensor) -> None:
    block = atb.GraphOp(
        [
            atb.Branch([atb.Linear("gate", out_features=24), atb.SiLU()], [atb.Linear(out_features=24)]),
            atb.Mul(),
            atb.Branch([], [atb.ReLU()], [atb.Linear(out_features=24)]),
            atb.Concat(),
            atb.Split(sections=3),
            atb.Add("sum"),
        ]
    )
    state = ready(block, x)
    assert [name for name in state if name.endswith("weight")] == ["gate.weight", "0.1.0.weight", "2.2.0.weight"]
    y = F.silu(linear(state, "gate", x)) * linear(state, "0.1.0", x)
    assert error(block(x), y + F.relu(y) + linear(state, "2.2.0", y)) < TOLERANCE


def test_branch_gives_queries_keys_and_values(x: torch.Tensor) -> None:
    q, k, v = (atb.Linear(name, out_features=width, bias=False) for name, width in (("q", H), ("k", 16), ("v", 16)))
    block = atb.GraphOp(
        [atb.Branch([q], [k], [v]), atb.FlashAttention("a", num_heads=4, num_kv_heads=2, causal=True, rope=True)]
    )
    state = ready(block, x)
    streams = [linear(state, name, x) for name in "qkv"]
    turn = lambda t: rotated(t, torch.arange(TOKENS))  # noqa: E731
    assert error(block(x), attention(*streams, 4, 2, causal=True, rotate=turn)) < TOLERANCE
    assert "merged_matmul" in str(block.compiled)


def test_embedding() -> None:
    block = atb.GraphOp(
        [atb.Embedding("tokens", num_embeddings=50, embedding_dim=16), atb.Linear("head", out_features=7)]
    )
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(3))
    state = ready(block, ids)
    assert error(block(ids), linear(state, "head", state["tokens.weight"][ids])) < TOLERANCE
    assert torch.equal(block(ids.int()), block(ids))
    assert torch.equal(block(ids[0]), block(ids[:1])[0])


def test_nested_blocks(x: torch.Tensor) -> None:
    mlp = atb.GraphOp(
        [
            atb.LayerNorm(),
            atb.Linear("up", out_features=48),
            atb.GELU(),
            atb.Linear("down", out_features=H),
            atb.ResidualAdd(),
        ]
    )
    block = atb.GraphOp([attention_block(), mlp, atb.LayerNorm("final")])
    state = ready(block, x)
    assert [name for name in state if name.endswith("weight")] == [
        "0.0.weight", "0.qkv_proj.weight", "0.out_proj.weight",
        "1.0.weight", "1.up.weight", "1.down.weight", "final.weight",
    ]  # fmt: skip
    inner = {name.removeprefix("0."): tensor for name, tensor in state.items() if name.startswith("0.")}
    y = expected_attention(inner, x, x, x, x)
    y = y + linear(state, "1.down", F.gelu(linear(state, "1.up", layer_norm(state, "1.0", y))))
    assert error(block(x), layer_norm(state, "final", y)) < TOLERANCE
    assert (
        error(mlp(x), x + linear(state, "1.down", F.gelu(linear(state, "1.up", layer_norm(state, "1.0", x)))))
        < TOLERANCE
    )


def test_custom_takes_several_and_gives_several(x: torch.Tensor) -> None:
    block = atb.GraphOp(
        [
            atb.Split(sizes=[8, 24]),
            atb.Custom("swap", lambda a, b: (torch.tanh(b), a + 1), out_features=[24, 8]),
            atb.Concat(),
            atb.ReLU(),
        ]
    )
    expected = torch.relu(torch.cat((torch.tanh(x[..., 8:]), x[..., :8] + 1), -1))
    assert error(block(x), expected) < TOLERANCE
    with pytest.raises(atb_error(), match=r"\[kernel\] <lambda>.*expected f32\[2, 11, 32\]"):
        atb.GraphOp([atb.Custom(lambda t: t[..., :3])])(x)
    with pytest.raises(ZeroDivisionError):
        atb.GraphOp([atb.Custom(lambda t: t / (1 // 0))])(x)


# --- Halves


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_near_f64(dtype: torch.dtype, x: torch.Tensor) -> None:
    block = attention_block()
    ready(block, x)
    block = block.to(dtype)
    state = {name: tensor.double() for name, tensor in block.state_dict().items()}
    wide = x.to(dtype).double()
    actual = block(x.to(dtype))
    assert actual.dtype == dtype
    bound = 2e-3 if dtype == torch.float16 else 1e-2
    expected = expected_attention(state, wide, wide, wide, wide)
    assert rms_error(actual, expected) < bound
    state["qkv_proj.bias"][:H] += 0.05
    assert rms_error(actual, expected_attention(state, wide, wide, wide, wide)) > 1.5 * rms_error(actual, expected)
    with pytest.raises(atb_error(), match=r"x is f32, the block b?f16"):
        block(x)


# --- Planted mistakes


@pytest.mark.parametrize("mistake", ["eps", "order", "scale", "causal", "bias", "residual"])
def test_planted_mistakes_show(mistake: str, x: torch.Tensor) -> None:
    block = attention_block()
    state = ready(block, x * 0.01 if mistake == "eps" else x)
    small = x * 0.003 if mistake == "eps" else x
    y = layer_norm(state, "0", small, 1e-6 if mistake == "eps" else 1e-5)
    q, k, v = linear(state, "qkv_proj", y).split(H, -1)
    if mistake == "order":
        k, v = v, k
    if mistake == "bias":
        q = q - state["qkv_proj.bias"][:H]
    out = attention(q, k, v, HEADS, causal=mistake != "causal", scale=0.4 if mistake == "scale" else None)
    wrong = linear(state, "out_proj", out) + (y if mistake == "residual" else small)
    assert error(block(small), wrong) > 100 * TOLERANCE


def test_it_is_a_module_among_modules(x: torch.Tensor) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention_block()
            self.scale = nn.Linear(H, H)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale(self.attention(x))

    layer = Layer()
    assert "attention.qkv_proj.weight" in layer.state_dict()
    assert layer(x).shape == x.shape
