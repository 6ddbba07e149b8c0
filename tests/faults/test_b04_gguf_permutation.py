# SPDX-License-Identifier: Apache-2.0
"""B04: the rows of q and k of a GGUF file are brought back to the half-split order, with the right count of heads each.

The first half (both rotary layouts of one vector) is tested beside the operator.
"""

from __future__ import annotations

from pathlib import Path

import atb
import numpy as np
import pytest
import reference
from reference import reference_logits, relative_error, tokens

pytestmark = pytest.mark.real
IDS = tokens(40, seed=1)  # with these ids 8-bit weights move no best token of the reference either


@pytest.fixture(scope="module")
def logits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """One tiny llama (4 query heads, 2 key/value heads) from each kind of file."""
    folder = tmp_path_factory.mktemp("b04")
    model = reference.wide_llama(reference.llama_config())
    paths = {
        "directory": reference.save(model, folder / "directory"),
        "F32": reference.write_gguf(model, folder / "f32.gguf", "F32"),
        "Q8_0": reference.write_gguf(model, folder / "q8_0.gguf", "Q8_0"),
    }
    result = {"reference": reference_logits(model, IDS)}
    for name, path in paths.items():
        with atb.LLM(path, precision="exact") as llm:
            result[name] = np.asarray(llm.logits([IDS])[0])
    return result


def test_directory_and_f32_file_agree(logits: dict[str, np.ndarray]) -> None:
    assert np.abs(logits["directory"] - logits["F32"]).max() <= 1e-5
    assert relative_error(logits["F32"], logits["reference"]) <= 2e-4


def test_8_bit_file_keeps_the_best_token(logits: dict[str, np.ndarray]) -> None:
    assert np.array_equal(logits["Q8_0"].argmax(1), logits["directory"].argmax(1))


def test_skipping_the_permutation_would_be_noticed(logits: dict[str, np.ndarray], tmp_path: Path) -> None:
    model = reference.wide_llama(reference.llama_config())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "_gguf_rows", lambda weight, heads: weight)
        reference.write_gguf(model, tmp_path / "wrong.gguf", "F32")
    with atb.LLM(tmp_path / "wrong.gguf", precision="exact") as llm:
        wrong = np.asarray(llm.logits([IDS])[0])
    assert relative_error(wrong, logits["reference"]) > 0.1
