# SPDX-License-Identifier: Apache-2.0
"""Causal masks as PyTorch code spells them: attention fuses, `generate` caches; what is nearly one keeps its mask."""

from __future__ import annotations

import atb
import atb_torch
import pytest
import torch
from families import distance, tokens
from masked_decoder import ADDED, FILLED, HELD, NEAR_MISSES, Decoder, Spelling, upper

BOUND = 2e-4  # of the standard deviation of the logits
GROUPS = {"filled": FILLED, "added": ADDED, "held": HELD}
CASES = [pytest.param(case, id=f"{group}-{name}") for group, cases in GROUPS.items() for name, case in cases.items()]


def decoder(spelling: Spelling) -> Decoder:
    mask, buffers = spelling
    return Decoder(mask, **buffers).eval()


def expect_numbers_of_eager(model: Decoder, fast: torch.nn.Module) -> None:
    for batch, length in ((2, 9), (1, 1), (1, 24)):
        ids = tokens(batch, length)
        with torch.no_grad():
            assert distance(fast(ids), model(ids)) < BOUND, (batch, length)


@pytest.mark.parametrize("spelling", CASES)
def test_causal_in_any_spelling(spelling: Spelling) -> None:
    model = decoder(spelling)
    fast = atb_torch.compile(model, threads=1)
    expect_numbers_of_eager(model, fast)
    assert [item["layers_matched"] for item in fast.report()["patterns"] if item["name"] == "SDPA"] == [2]
    ids = tokens(2, 7)
    expected = ids
    with torch.no_grad():
        for _ in range(6):
            expected = torch.cat([expected, model(expected)[:, -1].argmax(-1)[:, None]], dim=1)
    assert torch.equal(fast.generate(ids, max_new_tokens=6, eos_token_id=[]), expected)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_keep_their_mask(name: str) -> None:
    spelling, why = NEAR_MISSES[name]
    model = decoder(spelling)
    fast = atb_torch.compile(model, threads=1)
    expect_numbers_of_eager(model, fast)
    with pytest.raises(atb.UnsupportedError, match=rf"\[insert_kv_cache\].*{why}"):
        fast.generate(tokens(1, 5), max_new_tokens=2)


def test_a_fill_that_hides_nothing_is_named_by_the_report() -> None:
    fast = atb_torch.compile(decoder(NEAR_MISSES["fill of -100"][0]), threads=1)
    fast(tokens(1, 5))
    assert "a mask, found a fill of -100, needs -inf or one number of -10000 or less" in str(fast.report())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_lowest_number_of_a_half_hides(dtype: torch.dtype) -> None:
    model = decoder(FILLED["tril == 0, lowest"]).to(dtype)
    fast = atb_torch.compile(model, threads=1)
    ids = tokens(2, 9)
    with torch.no_grad():
        actual = fast(ids).float()
        assert distance(actual, model.float()(ids)) < (0.01 if dtype == torch.float16 else 0.1)
    assert [item["layers_matched"] for item in fast.report()["patterns"] if item["name"] == "SDPA"] == [2]


def test_fills_of_two_numbers_keep_what_outweighs_what() -> None:
    """Every row hides every key, some by less: those are seen."""
    model = decoder((lambda m, s: s.masked_fill(upper(s) == 0, -1e4).masked_fill(upper(s, torch.bool), -1e9), {}))
    expect_numbers_of_eager(model, atb_torch.compile(model, threads=1))
