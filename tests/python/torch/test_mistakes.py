# SPDX-License-Identifier: Apache-2.0
"""Mistakes made in the imported graph of every family must be seen by the bound on its logits; harmless changes not."""

from __future__ import annotations

import functools
from typing import NamedTuple

import atb_torch
import families
import pytest
import torch
from graph_edits import Draft, Edit, run
from mistakes import HARMLESS, MISTAKES

pytestmark = pytest.mark.real

BOUND = 2e-4  # of the standard deviation of the logits, as in test_import_families.py
CLEARLY = 5 * BOUND  # what a mistake must reach, so that no luck of rounding decides; right graphs are at 0.03 BOUND
# The two forms of GELU differ by 5e-4 at most, whatever the weights: 2.8 to 4.2 times the bound.
GELU_FORMS = {"erf for tanh": 2.5 * BOUND, "tanh for erf": 2.5 * BOUND}
WIDTH = 0.2  # of the weights: wider than elsewhere, so that scores and logits reach into their caps
CHANGES: dict[str, dict[str, object]] = {  # of the small configuration: one layer of each kind
    "gemma3": {"layer_types": ["sliding_attention", "full_attention"]}
}
QUICK = ("gemma2", "gpt2")  # the others are slow: each needs an export


class Case(NamedTuple):
    """A family's imported graph as a draft, tokens that cross the window, and eager's logits of them."""

    draft: Draft
    ids: torch.Tensor
    expected: torch.Tensor

    def error(self, edit: Edit | None) -> float:
        """Distance of the logits from eager's after an edit."""
        draft = self.draft.copy()
        if edit is not None:
            edit(draft)
        return families.distance(run(draft, self.ids), self.expected)


@functools.cache  # one export a family; the models are small
def case(family: str) -> Case:
    model = families.model(family, "eager", width=WIDTH, **CHANGES.get(family, {}))
    ids = families.tokens(2, 33)
    with torch.no_grad():
        expected = model(ids, use_cache=False).logits
    return Case(Draft(atb_torch.import_module(model, ids), model), ids, expected)


def marks(family: str) -> list[pytest.MarkDecorator]:
    """Families that are not quick are slow."""
    return [] if family in QUICK else [pytest.mark.slow]


def listed(edits: dict[str, dict[str, Edit]]) -> list[object]:
    """Test parameters (family, name) of a list."""
    return [
        pytest.param(family, name, id=f"{family}: {name}", marks=marks(family))
        for family in families.FAMILIES
        for name in edits[family]
    ]


def test_every_family_has_its_list() -> None:
    assert set(MISTAKES) == set(HARMLESS) == set(families.FAMILIES)
    assert all(len(edits) >= 4 for edits in MISTAKES.values())


@pytest.mark.parametrize(
    "family", [f if f in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in families.FAMILIES]
)
def test_unedited_draft_is_the_graph(family: str) -> None:
    assert case(family).error(None) < BOUND


@pytest.mark.parametrize(("family", "name"), listed(MISTAKES))
def test_mistake_is_seen(family: str, name: str) -> None:
    assert case(family).error(MISTAKES[family][name]) > GELU_FORMS.get(name, CLEARLY)


@pytest.mark.parametrize(("family", "name"), listed(HARMLESS))
def test_harmless_change_is_not(family: str, name: str) -> None:
    assert case(family).error(HARMLESS[family][name]) < BOUND
