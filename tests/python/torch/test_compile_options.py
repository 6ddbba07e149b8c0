# SPDX-License-Identifier: Apache-2.0
"""Options of compile: levels of optimization that agree, the mode, and what is not built yet."""

from __future__ import annotations

import subprocess
import sys
import warnings

import atb
import atb_torch
import pytest
import torch
from families import FAMILIES, distance, model, tokens

QUICK = ("llama", "gemma2", "gpt2", "phi")
CASES = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in FAMILIES]


def attention_of(family: str) -> str:
    return "eager" if family in ("gemma2", "gpt2") else "sdpa"


@pytest.mark.parametrize("family", CASES)
def test_levels_agree_and_planning_changes_no_bit(family: str) -> None:
    built = model(family, attention_of(family))
    ids = tokens(2, 23)
    with torch.no_grad():
        expected = built(ids, use_cache=False).logits
    logits, kernels = [], []
    for level in range(4):
        fast = atb_torch.compile(built, ids, opt_level=level)
        with torch.no_grad():
            logits.append(fast(ids).logits)
        kernels.append(fast.report()["kernels_per_layer"])
        assert distance(logits[-1], expected) < 2e-4, f"level {level}"
        assert bool(fast.report()["patterns"]) == (level >= 2)
    assert torch.equal(logits[2], logits[3])
    assert kernels[0]["after"] == kernels[0]["before"] >= kernels[1]["after"] > kernels[2]["after"]
    assert kernels[2] == kernels[3]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_levels_generate_the_same_tokens(family: str) -> None:
    built = model(family, "sdpa")
    ids = tokens(2, 9)
    rows = [
        atb_torch.compile(built, opt_level=level).generate(ids, max_new_tokens=16, eos_token_id=[])
        for level in range(4)
    ]
    for row in rows[:3]:
        assert torch.equal(row, rows[3])


@pytest.mark.parametrize("level", [4, -1])
def test_there_are_no_other_levels(level: int) -> None:
    with pytest.raises(atb.InvalidArgumentError, match=f"opt_level is {level}; allowed are 0"):
        atb_torch.compile(torch.nn.Linear(3, 3).eval(), opt_level=level)


@pytest.mark.parametrize("level", [None, True, 1.5, "3"])
def test_a_level_is_an_integer(level: object) -> None:
    with pytest.raises(atb.InvalidArgumentError, match="opt_level"):
        atb_torch.compile(torch.nn.Linear(3, 3).eval(), opt_level=level)


def test_infer_is_the_only_mode() -> None:
    linear = torch.nn.Linear(3, 3).eval()
    atb_torch.compile(linear, mode="infer")
    training = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout())
    with pytest.raises(atb.UnsupportedError, match="eval"):
        atb_torch.compile(training)
    assert atb_torch.compile(training, mode="infer")(torch.ones(1, 3)).shape == (1, 3)
    assert not training.training and not training[1].training
    with pytest.raises(atb.UnsupportedError, match='mode is "train"'):
        atb_torch.compile(linear, mode="train")
    with pytest.raises(atb.InvalidArgumentError, match="mode is 'fast'"):
        atb_torch.compile(linear, mode="fast")


SAID_ONCE = """
import warnings, torch, atb_torch
linear = torch.nn.Linear(3, 3).eval()
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as said:
    for _ in range(3):
        atb_torch.compile(linear, enable_prefix_caching=True, enable_speculative=True)
for warning in said:
    print(warning.filename, str(warning.message).split(":")[0])
"""


def test_what_is_not_built_is_said_once() -> None:
    lines = subprocess.run([sys.executable, "-c", SAID_ONCE], capture_output=True, text=True, check=True).stdout
    assert lines.splitlines() == [
        "<string> [atb_torch] enable_prefix_caching=True",
        "<string> [atb_torch] enable_speculative=True",
    ]


def test_nothing_is_said_of_what_was_not_asked_for() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        atb_torch.compile(torch.nn.Linear(3, 3).eval())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": 3}, "optimizer is a int; expected an atb.GraphOptimizer"),
        ({"optimizer": atb.GraphOptimizer}, "optimizer is a type"),
        ({"threads": "a"}, "threads is 'a'"),
        ({"threads": 1.5}, "threads is 1.5"),
        ({"threads": None}, "threads is None"),
        ({"threads": -1}, "threads is -1"),
        ({"opt_level": "3"}, "opt_level is '3'"),
    ],
)
def test_options_are_checked_before_anything_is_made(options: dict[str, object], message: str) -> None:
    with pytest.raises(atb.InvalidArgumentError, match=rf"^\[atb_torch\] {message}"):
        atb_torch.compile(torch.nn.Linear(3, 3).eval(), **options)


def test_threads_of_a_block_are_checked_when_it_is_made() -> None:
    with pytest.raises(atb.InvalidArgumentError, match=r"^\[GraphOp\] threads is 'a'"):
        atb_torch.GraphOp([atb_torch.SiLU()], threads="a")
