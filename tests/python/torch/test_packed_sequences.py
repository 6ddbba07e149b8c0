# SPDX-License-Identifier: Apache-2.0
"""Several sequences packed into each row, told apart by `position_ids` alone: logits beside eager's."""

from __future__ import annotations

import re

import atb_torch
import families
import pytest
import torch

pytestmark = pytest.mark.real

BOUND = 2e-4  # of the standard deviation of the logits


def positions(rows: list[list[int]]) -> torch.Tensor:
    """Rows of sequences of the given lengths, each counted from 0."""
    return torch.stack([torch.cat([torch.arange(length) for length in row]) for row in rows])


class Packed(torch.nn.Module):
    """A decoder as a function of tokens and positions."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """The logits."""
        return self.model(ids, position_ids=position_ids, use_cache=False).logits


@pytest.mark.parametrize(("family", "attention"), [("llama", "sdpa"), ("llama", "eager"), ("mistral", "sdpa")])
def test_logits_are_those_of_eager(family: str, attention: str) -> None:
    model = Packed(families.model(family, attention)).eval()
    fast = atb_torch.compile(model, threads=1)
    for rows in ([[1]], [[9]], [[3, 5, 1], [5, 4]], [[150, 2, 60, 88], [299, 1]]):
        places = positions(rows)
        ids = families.tokens(*places.shape)
        with torch.no_grad():
            actual, expected = fast(ids, places), model(ids, places)
            assert families.distance(actual, expected) < BOUND, rows
            first = rows[0][0]  # which the rest of its row must not change
            assert families.distance(actual[:1, :first], model(ids[:1, :first], places[:1, :first])) < BOUND, rows
            if len(rows[0]) > 1:
                last = rows[0][-1]
                alone = model(ids[:1, -last:], places[:1, -last:])
                assert families.distance(actual[:1, -last:], alone) < BOUND, rows


@pytest.mark.parametrize(("family", "attention"), [("llama", "sdpa"), ("llama", "eager"), ("mistral", "sdpa")])
def test_attention_is_causal_and_the_mask_keeps_sequences_apart(family: str, attention: str) -> None:
    model = Packed(families.model(family, attention)).eval()
    graph = atb_torch.import_module(model, (families.tokens(2, 9), positions([[3, 5, 1], [5, 4]])))
    graph.optimize()
    calls = re.findall(r"= flash_attention\((.*)\) \{(.*)\}", str(graph))
    assert len(calls) == 2
    for inputs, attributes in calls:
        assert len(inputs.split(",")) == 4
        assert "causal=true" in attributes
        assert ("window=16" in attributes) == (family == "mistral")
    assert "less" not in str(graph)  # all that positions say of order is in the operator
