# SPDX-License-Identifier: Apache-2.0
"""Decoders of every family through the front door: logits beside eager's. What they must notice: test_mistakes.py."""

from __future__ import annotations

from typing import Any

import atb_torch
import families
import pytest
import torch

pytestmark = pytest.mark.real

BOUND = 2e-4  # of the standard deviation of the logits


def compare(family: str, attention: str, calls: list[tuple[int, int, str]]) -> atb_torch.CompiledModule:
    """Calls (batch, length, padding side or "") of one compiled model, which is returned."""
    model = families.model(family, attention)
    fast = atb_torch.compile(model, threads=1)
    for batch, length, side in calls:
        ids = families.tokens(batch, length)
        kwargs: dict[str, Any] = {"attention_mask": families.padding(batch, length, side)} if side else {}
        with torch.no_grad():
            expected = model(ids, use_cache=False, **kwargs)
            actual = fast(ids, **kwargs)
        assert type(actual) is type(expected)
        assert list(actual.keys()) == list(expected.keys())
        error = families.distance(actual.logits, expected.logits, kwargs.get("attention_mask"))
        assert error < BOUND, f"batch {batch}, length {length}, padding {side or 'none'}: {error}"
    return fast


@pytest.mark.parametrize("family", families.FAMILIES)
def test_logits_are_those_of_eager_and_the_documented_patterns_fire(family: str) -> None:
    fast = compare(family, "eager" if family == "gemma2" else "sdpa", [(2, 33, "")])
    documented = families.documented(family)
    actual = families.reported(fast.report())
    assert actual == {column: documented[column] for column in actual}


def test_gemma3_with_layers_of_both_kinds() -> None:
    """Windowed and full layers have rotary tables of their own, which all layers of a kind share."""
    kinds = ["sliding_attention", "full_attention"] * 2
    model = families.model("gemma3", "sdpa", num_hidden_layers=4, layer_types=kinds)
    ids = families.tokens(2, 33)
    fast = atb_torch.compile(model, threads=1)
    with torch.no_grad():
        assert families.distance(fast(ids).logits, model(ids, use_cache=False).logits) < BOUND
    assert families.reported(fast.report())["after"] == "11.75"


@pytest.mark.slow
@pytest.mark.parametrize(("family", "attention"), families.CASES)
def test_lengths_and_batches(family: str, attention: str) -> None:
    compare(family, attention, [(batch, length, "") for batch in (1, 3) for length in (1, 2, 33, 300)])


@pytest.mark.slow
@pytest.mark.parametrize(("family", "attention"), families.CASES)
def test_padding(family: str, attention: str) -> None:
    lengths = (1, 2, 33, 300)
    compare(family, attention, [(b, n, side) for b in (1, 3) for n in lengths for side in ("left", "right")])


def test_llama_with_padding() -> None:
    compare("llama", "sdpa", [(1, 1, ""), (3, 1, ""), (1, 33, ""), (3, 33, "left"), (3, 33, "right")])
