# SPDX-License-Identifier: Apache-2.0
"""GraphOp with a KVCache: calls that append give what one call gives; the issue's modules as written."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import atb as core  # noqa: E402
import atb_torch as atb  # noqa: E402
from block_reference import error, randomize  # noqa: E402
from declared_decoder import Model  # noqa: E402
from torch.nn import functional as F  # noqa: E402

H, HEADS = 32, 4
pytestmark = pytest.mark.filterwarnings("ignore:.*no projection before it")


def make_block(**options: Any) -> atb.GraphOp:
    return atb.GraphOp(
        [
            atb.RMSNorm("norm"),
            atb.Linear("qkv", out_features=(HEADS + 4) * 8),
            atb.FlashAttention("attn", num_heads=HEADS, num_kv_heads=2, causal=True, kv_cache=True, **options),
            atb.Linear("out", out_features=H),
            atb.ResidualAdd(),
        ]
    )


def make_cache(layers: int = 1) -> atb.KVCache:
    return atb.KVCache(num_layers=layers, num_heads=2, head_dim=8, max_tokens=64)


@pytest.mark.parametrize("rope", [None, True], ids=["plain", "rope"])
@pytest.mark.parametrize("chunks", [[1] * 11, [3, 3, 3, 2], [7, 4], [11]], ids=str)
def test_chunks_give_the_bits_of_one_call(rope: Any, chunks: list[int]) -> None:
    x = torch.randn(3, 11, H, generator=torch.Generator().manual_seed(1))
    block = make_block(rope=rope)
    assert block(x)[1] is None
    randomize(block)
    whole, _ = block(x, kv_cache=make_cache())
    assert ("rotary_kv_append" in str(block.compiled)) == bool(rope)
    assert torch.equal(whole, block(x)[0])
    cache, outputs = make_cache(), []
    for part in x.split(chunks, dim=1):
        output, cache_again = block(part, kv_cache=cache)
        assert cache_again is cache
        outputs.append(output)
    assert cache.length == 11
    assert torch.equal(torch.cat(outputs, dim=1), whole)
    if rope:
        assert error(torch.cat([block(part)[0] for part in x.split(1, dim=1)], dim=1), whole) > 0.01


def test_positions_of_the_caller_win() -> None:
    x = torch.randn(1, 6, H, generator=torch.Generator().manual_seed(2))
    block, cache = make_block(rope=True), make_cache()
    block(x)
    randomize(block)
    shifted = torch.arange(6) * 5
    whole, _ = block(x, positions=shifted)
    first, _ = block(x[:, :4], positions=shifted[:4], kv_cache=cache)
    second, _ = block(x[:, 4:], positions=shifted[4:], kv_cache=cache)
    assert error(torch.cat((first, second), 1), whole) < 1e-4


def test_calls_that_do_not_fit() -> None:
    x, block, cache = torch.randn(2, 3, H), make_block(), make_cache()
    with pytest.raises(core.InvalidArgumentError, match="num_heads=2"):
        block(x, kv_cache=atb.KVCache(num_layers=1, num_heads=3, head_dim=8, max_tokens=9))
    block(x, kv_cache=cache)
    with pytest.raises(core.InvalidArgumentError):
        block(x[:1], kv_cache=cache)
    assert cache.length == 3


def plain_logits(state: Any, ids: torch.Tensor, layers: int) -> torch.Tensor:
    """The same model in plain PyTorch, over the model's own names."""
    x = state["embedding.weight"][ids]
    for layer in range(layers):
        a, m = f"layers.{layer}.attention_graph.", f"layers.{layer}.mlp_graph."
        y = F.layer_norm(x, (H,), state[a + "0.weight"], state[a + "0.bias"])
        heads = y.view(*y.shape[:2], HEADS, -1).transpose(1, 2)
        out = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).reshape(y.shape)
        x = x + F.linear(out, state[a + "2.weight"], state[a + "2.bias"])
        y = F.layer_norm(x, (H,), state[m + "0.weight"], state[m + "0.bias"])
        y = F.silu(F.linear(y, state[m + "1.weight"], state[m + "1.bias"]))
        x = x + F.linear(y, state[m + "3.weight"], state[m + "3.bias"])
    return F.linear(F.layer_norm(x, (H,), state["norm.weight"], state["norm.bias"]), state["lm_head.weight"])


@torch.no_grad()
def test_a_model_of_blocks_runs_step_by_step() -> None:
    model = Model(50, H, 2, HEADS, 48)
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(3))
    model(ids)
    state = randomize(model)
    model.kv_cache.reset()
    expected = plain_logits(state, ids, 2)
    steps = [model(part) for part in ids.split([4, 1, 1, 3], dim=1)]
    assert error(torch.cat(steps, 1), expected) < 1e-4
    assert model.kv_cache.length == 9
    fresh = Model(50, H, 2, HEADS, 48)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(ids), fresh_logits(model, ids))


def fresh_logits(model: Model, ids: torch.Tensor) -> torch.Tensor:
    model.kv_cache.reset()
    return model(ids)
