# SPDX-License-Identifier: Apache-2.0
"""Equal bits whatever the chunks of the prompt, the threads and the neighbours, in exact and in fast precision."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import atb
import numpy as np
import pytest
import reference
from reference import tokens

pytestmark = pytest.mark.real

CHUNKS = (1, 7, 64, 500, 4096)  # the last one takes a prompt whole
THREADS = (1, 2, 3)
LONG = 2100
RAGGED = (LONG, 1, 33, 700, 128)  # lengths of a batch; all are prefixes of one another
VOCAB = 1000


@pytest.fixture(scope="module")
def two_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of SmolLM2's widths with random weights: a directory in f32, and a file in Q4_1."""
    folder = tmp_path_factory.mktemp("two_layers")
    model = reference.wide_llama(
        reference.llama_config(
            vocab_size=VOCAB,
            hidden_size=576,
            intermediate_size=1536,
            num_attention_heads=9,
            num_key_value_heads=3,
            head_dim=64,
            max_position_embeddings=4096,
        )
    )
    reference.save(model, folder / "directory")
    reference.write_gguf(model, folder / "q4_1.gguf", "Q4_1")
    return folder


def run(path: Path, lengths: Iterable[int], vocab: int = VOCAB, **options: Any) -> list[np.ndarray]:
    with atb.LLM(path, **options) as llm:
        return [np.asarray(m) for m in llm.logits([tokens(n, vocab=vocab) for n in lengths])]


# (file, precision): the plain weights in f32, and 4-bit weights both ways.
KINDS = [("directory", "exact"), ("q4_1.gguf", "exact"), ("q4_1.gguf", "fast")]


@pytest.fixture(scope="module")
def whole(two_layers: Path) -> dict[tuple[str, str], np.ndarray]:
    """Logits of the long prompt alone, whole, on one thread."""
    return {
        (file, precision): run(
            two_layers / file, [LONG], precision=precision, threads=1, prefill_chunk=CHUNKS[-1], context=LONG
        )[0]
        for file, precision in KINDS
    }


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize(("file", "precision"), KINDS)
def test_chunks_and_threads(
    file: str, precision: str, chunk: int, threads: int, two_layers: Path, whole: dict[tuple[str, str], np.ndarray]
) -> None:
    (logits,) = run(two_layers / file, [LONG], precision=precision, threads=threads, prefill_chunk=chunk, context=LONG)
    assert np.array_equal(logits, whole[file, precision])


@pytest.mark.parametrize(("chunk", "threads"), [(7, 2), (64, 3), (4096, 1)])
@pytest.mark.parametrize(("file", "precision"), KINDS)
def test_neighbours(
    file: str, precision: str, chunk: int, threads: int, two_layers: Path, whole: dict[tuple[str, str], np.ndarray]
) -> None:
    """Every row depends on the tokens before it alone, so a shorter sequence has the first rows of the long one."""
    batch = run(two_layers / file, RAGGED, precision=precision, threads=threads, prefill_chunk=chunk, context=LONG)
    for logits in batch:
        assert np.array_equal(logits, whole[file, precision][: len(logits)])


def test_precisions_differ(whole: dict[tuple[str, str], np.ndarray]) -> None:
    """Else `fast` would be tested twice as `exact`; the two stay close all the same."""
    exact, fast = whole["q4_1.gguf", "exact"], whole["q4_1.gguf", "fast"]
    assert not np.array_equal(exact, fast)
    assert np.corrcoef(exact.ravel(), fast.ravel())[0, 1] > 0.9


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_full_model(precision: str, smollm2: Path) -> None:
    length, vocab = 300, 49152
    (expected,) = run(smollm2, [length], vocab, precision=precision, threads=1, prefill_chunk=4096, context=512)
    for chunk, threads in ((1, 2), (7, 3), (64, 1), (500, 2)):
        options = {"precision": precision, "threads": threads, "prefill_chunk": chunk, "context": 512}
        (logits,) = run(smollm2, [length], vocab, **options)
        assert np.array_equal(logits, expected), options
    for logits in run(smollm2, (length, 1, 33, 150, 64), vocab, precision=precision, threads=2, context=512):
        assert np.array_equal(logits, expected[: len(logits)])


def test_generated_tokens_do_not_depend_on_neighbours(two_layers: Path) -> None:
    prompts = [tokens(n, seed=n, vocab=VOCAB) for n in (5, 40, 1, 129, 17)]
    options: dict[str, Any] = {"max_new_tokens": 24, "temperature": 1.0, "top_p": 0.9, "seed": 3, "ignore_eos": True}
    with atb.LLM(two_layers / "q4_1.gguf", context=512) as llm:
        for batch in (prompts, prompts[::-1]):
            together = [output.token_ids for output in llm.generate(batch, **options)]
            seeds = range(options["seed"], options["seed"] + len(batch))
            alone = [
                llm.generate([prompt], **{**options, "seed": seed})[0].token_ids
                for prompt, seed in zip(batch, seeds, strict=True)
            ]
            assert together == alone


def variants(path: Path, tmp_path: Path, precision: str) -> dict[bool, set[str]]:
    """Kernel variants of the matrix products that ran for one row (True) and for many rows (False)."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    with atb.LLM(path, precision=precision, prefill_chunk=64, context=512) as llm:
        llm.start_trace()
        llm.generate([tokens(64, vocab=VOCAB)], max_new_tokens=3, ignore_eos=True)
        llm.write_trace(tmp_path / "x.trace.json")
    for event in json.loads((tmp_path / "x.trace.json").read_text())["traceEvents"]:
        details = event.get("args", {})
        if details.get("op") in ("merged_matmul", "fused_gate_up") and details.get("rows") is not None:
            found[details["rows"] == 1].add(details["variant"])
    return found


@pytest.mark.parametrize(("file", "precision"), KINDS)
def test_the_trace_names_different_kernels(file: str, precision: str, two_layers: Path, tmp_path: Path) -> None:
    found = variants(two_layers / file, tmp_path, precision)
    assert found[True]
    assert found[False]
    assert found[True].isdisjoint(found[False])
    for variant in found[True] | found[False]:
        assert ("int8" in variant) == (precision == "fast")
