# SPDX-License-Identifier: Apache-2.0
"""One model through both front doors: the same fused graph, and the same bits where the constants are the same."""

from __future__ import annotations

import re
from pathlib import Path

import atb
import numpy as np
import pytest
from families import model, tokens


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # theta 1: every frequency is exactly 1, however it is computed.
    folder = tmp_path_factory.mktemp("llama")
    model("llama", "sdpa", rope_parameters={"rope_type": "default", "rope_theta": 1.0}).save_pretrained(folder)
    return folder


def nodes_of(llm: atb.LLM) -> list[str]:
    """The nodes of the graph that runs, in any order that runs: operators, attributes and types, without names.

    Epsilons are compared as f32: a file may hold one with more digits.
    """
    lines = [line.strip() for line in str(llm.engine).splitlines() if re.search(r" = \w+\(", line)]
    lines = [re.sub(r"eps=([\d.e-]+)", lambda eps: f"eps={np.float32(eps[1])}", line) for line in lines]
    return sorted(re.sub(r'[%@]"?[\w./-]+"?|(layer=\d+|scope="[^"]*")(, )?', "", line) for line in lines)


def expect_one_model(directory: Path, ids: list[int]) -> None:
    native, exported = atb.LLM(directory), atb.LLM(directory, frontend="torch")
    assert nodes_of(exported) == nodes_of(native)
    assert np.array_equal(np.asarray(exported.logits([ids])[0]), np.asarray(native.logits([ids])[0]))


def test_both_doors_lead_to_one_graph_and_one_result(directory: Path) -> None:
    expect_one_model(directory, tokens(1, 33)[0].tolist())


@pytest.mark.slow
def test_both_doors_lead_to_one_smollm2(smollm2_directory: Path) -> None:
    expect_one_model(smollm2_directory, list(range(100, 140)))


def test_an_unknown_front_door_is_refused(directory: Path) -> None:
    with pytest.raises(atb.InvalidArgumentError, match="native and torch"):
        atb.LLM(directory, frontend="onnx")
