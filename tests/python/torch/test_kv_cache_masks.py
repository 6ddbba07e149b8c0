# SPDX-License-Identifier: Apache-2.0
"""Masks beside a KVCache: over the cached keys and the call's, in every form; pieces, numbers, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import atb as core  # noqa: E402
import atb_torch as atb  # noqa: E402
from block_reference import attention, error, linear, randomize, rms_norm, rotated  # noqa: E402

H, HEADS, KV = 32, 4, 2
DIM = H // HEADS
TOKENS = 11


def make_block(**options: Any) -> atb.GraphOp:
    return atb.GraphOp(
        [
            atb.RMSNorm("norm"),
            atb.Linear("qkv", out_features=H + 2 * KV * DIM),
            atb.FlashAttention("attn", num_heads=HEADS, num_kv_heads=KV, causal=True, kv_cache=True, **options),
            atb.Linear("out", out_features=H),
            atb.ResidualAdd(),
        ]
    )


def make_cache(max_tokens: int = 64, **options: Any) -> atb.KVCache:
    return atb.KVCache(num_layers=1, num_heads=KV, head_dim=DIM, max_tokens=max_tokens, **options)


def eager(state: Any, x: torch.Tensor, mask: torch.Tensor, **options: Any) -> torch.Tensor:
    """The block in plain PyTorch; a row that sees nothing gets 0 from its attention."""
    q, k, v = linear(state, "qkv", rms_norm(state, "norm", x)).split([H, KV * DIM, KV * DIM], -1)
    if mask.dim() == 2:
        mask = mask[:, None, None, :]
    elif mask.dim() == 3:
        mask = mask[:, None]
    out = attention(q, k, v, HEADS, KV, causal=True, mask=mask, **options).nan_to_num(0.0)
    return x + linear(state, "out", out)


def hidden(batch: int = 3, tokens: int = TOKENS, seed: int = 1) -> torch.Tensor:
    return torch.randn(batch, tokens, H, generator=torch.Generator().manual_seed(seed))


def padding(pads: list[int], tokens: int = TOKENS) -> torch.Tensor:
    """As tokenizers pad on the left: the first `pads` tokens of each row are none."""
    return torch.arange(tokens) >= torch.tensor(pads)[:, None]


def masks() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    drawn = torch.rand(3, HEADS, TOKENS, TOKENS, generator=generator)
    seen = (drawn > 0.4) | torch.eye(TOKENS, dtype=torch.bool)
    blind = seen & (torch.arange(TOKENS) != 6)[:, None]  # token 6 sees nothing
    return {
        "left padding": padding([0, 5, 2]),
        "right padding": padding([9, 3, 0]).flip(1),
        "numbers": padding([1, 0, 7]).long(),
        "[1, S]": padding([3]),
        "additive [B, S]": drawn[:, 0, 0] * 4 - 2,
        "[B, T, S]": seen[:, 1],
        "[1, T, S]": seen[:1, 0],
        "[B, 1, T, S]": blind[:, :1],
        "[B, H, T, S]": seen,
        "additive [B, H, T, S]": (drawn * 4 - 2).masked_fill(~seen, float("-inf")),
        "additive [1, 1, T, S]": (drawn * 4 - 2)[:1, :1],
        "finite [B, 1, T, S]": (drawn * 4 - 2).masked_fill(~seen, torch.finfo(torch.float32).min)[:, :1],
    }


def piece_of(mask: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    """The mask of a call with the tokens [begin, end), over all keys so far."""
    mask = mask[..., :end]
    return mask if mask.dim() == 2 else mask[..., begin:end, :]


def in_pieces(block: Any, x: torch.Tensor, mask: torch.Tensor, sizes: list[int], cache: Any, **call: Any) -> Any:
    outputs, begin = [], 0
    for part in x.split(sizes, dim=1):
        end = begin + part.shape[1]
        own = {name: given[..., begin:end] for name, given in call.items()}
        outputs.append(block(part, kv_cache=cache, attention_mask=piece_of(mask, begin, end), **own)[0])
        begin = end
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("options", [{}, {"window": 4, "softcap": 3.0}], ids=["plain", "window and softcap"])
@pytest.mark.parametrize("name", masks())
def test_a_mask_over_cached_keys_gives_torchs_numbers_and_equal_bits(name: str, options: dict[str, Any]) -> None:
    x, mask, block = hidden(), masks()[name], make_block(**options)
    block(x)
    state = randomize(block)
    whole, _ = block(x, attention_mask=mask, kv_cache=make_cache())
    with torch.no_grad():
        expected = eager(state, x, mask if mask.is_floating_point() else mask != 0, **options)
    assert error(whole, expected) < 1e-4
    assert torch.equal(block(x, attention_mask=mask)[0], whole)
    for sizes in ([1] * TOKENS, [4, 1, 6], [9, 2]):
        cache = make_cache()
        assert torch.equal(in_pieces(block, x, mask, sizes, cache), whole)
        assert cache.length == TOKENS
    assert error(block(x)[0], whole) > 0.05  # the mask matters


def test_padding_beyond_partitions_of_keys() -> None:
    x, mask = hidden(2, 300), padding([0, 160], 300)
    block = make_block()
    block(x)
    state = randomize(block)
    whole, _ = block(x, attention_mask=mask, kv_cache=make_cache(300))
    assert error(whole, eager(state, x, mask)) < 1e-4
    assert torch.equal(in_pieces(block, x, mask, [290, 1, 9], make_cache(300)), whole)
    one, _ = block(x[1:, 160:], kv_cache=make_cache(300))  # the padded row is what it is alone
    assert error(whole[1:, 160:], one) < 1e-4


def test_rows_of_a_padded_batch_with_rope_and_positions_of_their_own() -> None:
    x, mask = hidden(), padding([0, 5, 2])
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)  # as transformers numbers them
    block = make_block(rope=True)
    block(x)
    state = randomize(block)
    whole = in_pieces(block, x, mask, [TOKENS], make_cache(), positions=positions)
    expected = eager(state, x, mask, rotate=lambda heads: rotated(heads, positions))
    assert error(whole, expected) < 1e-4
    assert torch.equal(in_pieces(block, x, mask, [6, 1, 1, 3], make_cache(), positions=positions), whole)
    for row, pad in enumerate([0, 5, 2]):
        alone, _ = block(x[row : row + 1, pad:], kv_cache=make_cache())
        assert error(whole[row : row + 1, pad:], alone) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_and_a_cache_of_halves(dtype: torch.dtype) -> None:
    x, mask, block = hidden(), padding([0, 5, 2]), make_block()
    block(x)
    state = randomize(block)
    block = block.to(dtype)
    kept = "bf16" if dtype is torch.bfloat16 else "f32"
    additive = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, float("-inf"))
    whole = in_pieces(block, x.to(dtype), additive, [TOKENS], make_cache(dtype=kept))
    assert torch.equal(in_pieces(block, x.to(dtype), additive, [4, 1, 6], make_cache(dtype=kept)), whole)
    assert torch.equal(in_pieces(block, x.to(dtype), mask, [8, 3], make_cache(dtype=kept)), whole)
    assert error(whole.float(), eager(state, x, mask)) < 0.1


def test_one_program_serves_masks_of_every_length() -> None:
    x, block, cache = hidden(1, 20), make_block(), make_cache()
    for end in range(1, 20):
        block(x[:, end - 1 : end], attention_mask=torch.ones(1, end), kv_cache=cache)
    assert len(block._programs) == 1
    text = str(block.compiled)
    assert "flash_attention_kv" in text
    assert "slice" not in text  # the mask is read as it is given
    assert "SDPA" in str(block.report())


def test_masks_that_do_not_fit_say_what_would() -> None:
    x, block, cache = hidden(2, 3), make_block(), make_cache()
    block(x, kv_cache=cache)
    expected = (
        r"attention_mask is \[2, 3\]; expected \[2, 6\] \(batch, keys\), \[2, 3, 6\] or \[2, heads, 3, 6\]: "
        r"6 keys are the 3 in the cache and the call's 3; the call is block"
    )
    with pytest.raises(core.InvalidArgumentError, match=expected):
        block(x, attention_mask=torch.ones(2, 3), kv_cache=cache)
    for shape in ((2, 7), (2, 1), (2, 3, 1), (3, 6), (2, 3, 3), (2, 6, 6), (2, 4, 3, 7), (6,), (2, 3, 4, 3, 6)):
        with pytest.raises(core.InvalidArgumentError, match=r"attention_mask is .*; expected \[2, 6\]"):
            block(x, attention_mask=torch.ones(shape), kv_cache=cache)
    with pytest.raises(core.InvalidArgumentError, match="attention_mask"):
        block(x, attention_mask=torch.zeros(2, 3, 3, 6), kv_cache=cache)  # 3 of 4 heads
    assert cache.length == 3
    block(x, attention_mask=torch.ones(2, 6), kv_cache=cache)
    assert cache.length == 6


def test_a_first_call_with_a_wrong_mask_takes_no_slot() -> None:
    block, other, cache = make_block(), make_block(), make_cache()
    with pytest.raises(core.InvalidArgumentError, match=r"expected \[1, 3\]"):
        block(hidden(1, 3), attention_mask=torch.ones(1, 4), kv_cache=cache)
    other(hidden(1, 3), attention_mask=torch.ones(1, 3), kv_cache=cache)
    assert cache.length == 3


def test_a_mask_of_a_cache_needs_attentions_that_keep_one() -> None:
    mixed = atb.GraphOp(
        [
            atb.FlashAttention("first", num_heads=HEADS, causal=True, kv_cache=True),
            atb.FlashAttention("second", num_heads=HEADS, causal=True),
        ]
    )
    cache = atb.KVCache(num_layers=1, num_heads=HEADS, head_dim=DIM, max_tokens=9)
    with pytest.raises(core.InvalidArgumentError, match=r"second: attention_mask is .* needs kv_cache=True"):
        mixed(hidden(1, 3), attention_mask=torch.ones(1, 3), kv_cache=cache)


class Layers(torch.nn.Module):
    """Two attentions over one cache, called with a mask."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([make_block(**options) for _ in range(2)])
        self.kv_cache = atb.KVCache(num_layers=2, num_heads=KV, head_dim=DIM, max_tokens=64)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x, self.kv_cache = layer(x, kv_cache=self.kv_cache, attention_mask=attention_mask)
        return x


@pytest.mark.parametrize("form", ["left padding", "additive [B, H, T, S]"])
@torch.no_grad()
def test_compiled_models_take_masks_too(form: str) -> None:
    x, mask, model = hidden(), masks()[form], Layers(rope=True).eval()
    model(x, mask)
    randomize(model)
    model.kv_cache.reset()
    whole = model(x, mask)
    model.kv_cache.reset()
    compiled, begin = atb.compile(model), 0
    for tokens in (5, 1, 1, 2, 2):
        end = begin + tokens
        output = compiled(x[:, begin:end], piece_of(mask, begin, end))
        assert error(output, whole[:, begin:end]) < 1e-4
        begin = end
    assert model.kv_cache.length == TOKENS
    with pytest.raises(core.InvalidArgumentError, match=r"the mask is for 3 keys, expected 13: the 11 in the cache"):
        compiled(x[:, :2], piece_of(mask, 1, 3))
    assert model.kv_cache.length == TOKENS
