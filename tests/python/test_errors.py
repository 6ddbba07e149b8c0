# SPDX-License-Identifier: Apache-2.0
"""Exceptions: their names are those that users import, and they begin with where."""

from __future__ import annotations

import pickle

import atb
import pytest
from atb import errors
from pattern_cases import PLAIN

pytestmark = pytest.mark.real


@pytest.mark.parametrize("name", errors.__all__)
def test_classes_are_called_as_they_are_imported(name: str) -> None:
    cls = getattr(atb, name)
    assert repr(cls) == f"<class 'atb.{name}'>" and issubclass(cls, atb.Error)
    assert repr(cls("text")) == f"{name}('text')"
    again = pickle.loads(pickle.dumps(cls("text")))
    assert type(again) is cls and str(again) == "text"


def test_what_the_native_module_raises_is_called_so_too() -> None:
    with pytest.raises(atb.InvalidArgumentError) as error:
        atb.Graph.parse("nonsense")
    assert f"{type(error.value).__module__}.{type(error.value).__qualname__}" == "atb.InvalidArgumentError"


def test_numbers_that_are_none_are_told_by_whoever_was_given_them() -> None:
    graph = atb.Graph.parse(PLAIN)
    for call in (lambda: graph.compile(threads="two"), lambda: graph.optimize(tokens=1.5)):
        with pytest.raises(atb.InvalidArgumentError, match=r"^\[graph\] (threads|tokens) is .*; expected an integer"):
            call()
    with pytest.raises(atb.InvalidArgumentError, match=r"^\[generate\] top_k is 1.5"):
        atb.SamplingOptions.from_options({"top_k": 1.5})


def test_options_of_a_model(smollm2: object) -> None:
    with pytest.raises(atb.InvalidArgumentError, match=r"^\[model\] context is 'long'"):
        atb.LLM(str(smollm2), context="long")
    with atb.LLM(str(smollm2)) as llm, pytest.raises(atb.InvalidArgumentError, match=r"^\[logits\] a token id of a"):
        llm.logits([[1, "two"]])
