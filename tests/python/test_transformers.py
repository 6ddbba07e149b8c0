# SPDX-License-Identifier: Apache-2.0
"""The product against transformers in f32: logits of tiny llamas, greedy text of the bundled model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atb
import numpy as np
import pytest
import reference
from reference import TINY, changes_mathematics, mistake, reference_logits, relative_error, tokens

pytestmark = pytest.mark.real

LENGTHS = (1, 2, 31, 32, 33, 300)
TOLERANCE = 2e-4  # of the logits' standard deviation
MISTAKES = ("scale", "rope_layout", "tiled_heads", "eps")


@dataclass
class Pair:
    """One tiny model, twice."""

    model: Any
    logits: dict[int, np.ndarray]  # ours, by length


@pytest.fixture(scope="module", params=TINY)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    config = reference.llama_config(**TINY[request.param])
    config._attn_implementation = "eager"
    model = reference.wide_llama(config)
    with atb.LLM(reference.save(model, tmp_path_factory.mktemp(request.param))) as llm:
        assert llm.info()["precision"] == "exact"
        matrices = llm.logits([tokens(length) for length in LENGTHS])
    return Pair(model, {length: np.asarray(matrix) for length, matrix in zip(LENGTHS, matrices, strict=True)})


def error(pair: Pair, length: int) -> float:
    return relative_error(pair.logits[length], reference_logits(pair.model, tokens(length)))


@pytest.mark.parametrize("length", LENGTHS)
def test_logits(pair: Pair, length: int) -> None:
    assert error(pair, length) <= TOLERANCE


def test_attention_is_far_from_uniform(pair: Pair) -> None:
    import torch

    with torch.no_grad():
        weights = pair.model(torch.tensor([tokens(300)]), output_attentions=True).attentions
    for layer in weights:
        assert layer[0, :, 100:].amax(-1).mean() > 0.2  # uniform would be at most 0.01


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_would_be_noticed(pair: Pair, name: str) -> None:
    """At one token attention has one key, so that only the epsilon counts there."""
    lengths = LENGTHS if name == "eps" else LENGTHS[1:]
    with mistake(name, pair.model):
        errors = [error(pair, length) for length in lengths]
    if changes_mathematics(name, pair.model.config):
        assert min(errors) > TOLERANCE
    else:
        assert max(errors) <= TOLERANCE


PROMPTS = (
    "The capital of France is",
    "1, 1, 2, 3, 5, 8,",
    "Once upon a time, in a small village,",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees because",
)
NEW_TOKENS = 48
TIE = 1e-4  # two best logits this close may come out in either order


@dataclass
class Greedy:
    """Tokens of one prompt by transformers, up to the first near-tie, and how far ahead each was."""

    prompt: str
    ids: list[int]
    margins: list[float]


@pytest.fixture(scope="module")
def greedy(smollm2_directory: Path) -> list[Greedy]:
    """Greedy steps of transformers in f32, end tokens included like any other."""
    import torch
    import transformers
    from atb.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_directory(smollm2_directory)
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2_directory, dtype=torch.float32).eval()
    results = []
    for prompt in PROMPTS:
        result = Greedy(prompt, [], [])
        new, cache = torch.tensor([tokenizer.encode(prompt)]), None
        for _ in range(NEW_TOKENS):
            with torch.no_grad():
                step = model(new, cache=cache, use_cache=True)
            best, second = step.logits[0, -1].topk(2).values.tolist()
            new, cache = step.logits[:, -1].argmax(-1, keepdim=True), step.cache
            result.margins.append(best - second)
            if best - second < TIE:
                break
            result.ids.append(int(new))
        results.append(result)
    return results


@pytest.mark.parametrize("kind", ["gguf", "directory"])
def test_greedy_text(
    kind: str, greedy: list[Greedy], smollm2: Path, smollm2_directory: Path, record_property: Any
) -> None:
    record_property("smallest_margin", min(min(result.margins) for result in greedy))
    with atb.LLM({"gguf": smollm2, "directory": smollm2_directory}[kind], precision="exact") as llm:
        outputs = llm.generate(list(PROMPTS), max_new_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
        decode = llm.tokenizer.decode
    for result, output in zip(greedy, outputs, strict=True):
        assert len(result.ids) > NEW_TOKENS // 2, f"near-tie after {len(result.ids)} tokens: {min(result.margins)}"
        assert output.token_ids[: len(result.ids)] == result.ids, result.prompt
        if len(result.ids) == NEW_TOKENS:
            assert output.text == decode(result.ids, continuation=True)
    print(f"smallest top-2 margin: {min(min(result.margins) for result in greedy):.6f}")
