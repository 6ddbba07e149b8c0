# SPDX-License-Identifier: Apache-2.0
"""Several threads on one LLM, cancelling at any moment, and what a forked child may do."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import atb
import pytest
import reference
from forks import wait_for
from reference import tokens

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[atb.LLM]:
    """A tiny model with small prefill chunks, so that a prompt takes many steps."""
    folder = reference.save(reference.wide_llama(reference.llama_config()), tmp_path_factory.mktemp("threads"))
    with atb.LLM(folder, prefill_chunk=8, threads=2) as llm:
        yield llm


def blocks_in_use(llm: atb.LLM) -> int:
    return int(llm.stats()["kv_blocks_in_use"])


def test_each_thread_gets_what_it_gets_alone(smollm2: Path) -> None:
    prompts = ["The capital of France is", "1, 1, 2, 3,", "Once upon a time", "def add(a, b):"]
    with atb.LLM(smollm2, context=512) as llm:
        alone = [llm.generate(prompt, max_new_tokens=24)[0].text for prompt in prompts]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda prompt: llm.generate(prompt, max_new_tokens=24)[0].text, prompts))
            streamed = list(pool.map(lambda prompt: "".join(llm.stream(prompt, max_new_tokens=24)), prompts))
        assert together == alone == streamed
        assert blocks_in_use(llm) == 0


def test_many_threads_and_calls(llm: atb.LLM) -> None:
    prompts = [tokens(1 + 13 * i, seed=i) for i in range(16)]
    alone = [llm.generate([prompt], max_new_tokens=9, ignore_eos=True)[0].token_ids for prompt in prompts]

    def work(seed: int) -> None:
        for i in random.Random(seed).sample(range(16), 16):
            (output,) = llm.generate([prompts[i]], max_new_tokens=9, ignore_eos=True)
            assert output.token_ids == alone[i]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert blocks_in_use(llm) == 0


def test_logits_and_generation_at_once(llm: atb.LLM) -> None:
    ids = tokens(100)
    expected = llm.logits([ids])[0]
    with ThreadPoolExecutor(2) as pool:
        generation = pool.submit(lambda: [llm.generate([ids], max_new_tokens=20, ignore_eos=True) for _ in range(5)])
        for _ in range(5):
            assert memoryview(llm.logits([ids])[0]) == memoryview(expected)
        generation.result()
    assert blocks_in_use(llm) == 0


@pytest.mark.parametrize("after", [0, 1, 2, 7])
def test_leaving_a_stream_returns_all_blocks(llm: atb.LLM, after: int) -> None:
    stream = llm.engine
    request = stream.submit(tokens(200), 50, 0.0, 0, 1.0, 0, None, True)
    for _ in range(after):
        stream.next(request)
    stream.cancel(request)
    assert blocks_in_use(llm) == 0
    assert stream.next(request) == ([], "cancelled")
    stream.release(request)
    stream.release(request)


def test_cancelling_at_any_moment(llm: atb.LLM) -> None:
    """Another thread cancels while the first waits: during prefill, during decode, before the first step."""
    chance = random.Random(1)
    engine = llm.engine
    for _ in range(60):
        request = engine.submit(tokens(150), 60, 0.0, 0, 1.0, 0, None, True)
        canceller = threading.Timer(chance.random() * 0.02, engine.cancel, [request])
        canceller.start()
        reason = None
        while reason is None:
            _, reason = engine.next(request)
        canceller.join()
        engine.release(request)
        assert reason in ("cancelled", "length")
        assert blocks_in_use(llm) == 0
    assert llm.generate([tokens(20)], max_new_tokens=3, ignore_eos=True)[0].finish_reason == "length"


def test_a_neighbour_survives_a_cancel(llm: atb.LLM) -> None:
    prompt = tokens(64, seed=3)
    (alone,) = llm.generate([prompt], max_new_tokens=20, ignore_eos=True)
    engine = llm.engine
    kept = engine.submit(prompt, 20, 0.0, 0, 1.0, 0, None, True)
    dropped = engine.submit(tokens(64, seed=4), 20, 0.0, 0, 1.0, 0, None, True)
    found, reason = engine.next(kept)
    engine.cancel(dropped)
    while reason is None:
        new, reason = engine.next(kept)
        found += new
    engine.release(kept)
    engine.release(dropped)
    assert found == alone.token_ids
    assert blocks_in_use(llm) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_fork_the_child_works_or_raises_at_once(llm: atb.LLM) -> None:
    llm.generate([tokens(20)], max_new_tokens=2)  # the workers have started
    child = os.fork()
    if child == 0:  # exit codes: 0 works, 1 raises as promised, 2 anything else
        code = 2
        try:
            llm.generate([tokens(20)], max_new_tokens=2)
            code = 0
        except atb.FailedPreconditionError:
            code = 1
        finally:
            os._exit(code)
    assert wait_for(child, 20) in (0, 1)  # -9: it hangs
    assert llm.generate([tokens(20)], max_new_tokens=2)[0].token_ids  # the parent goes on


def test_a_stream_is_closed_from_another_thread(smollm2: Path) -> None:
    with atb.LLM(smollm2, prefill_chunk=16) as llm:
        stream = llm.stream("word " * 4000)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(lambda: list(stream))
            while blocks_in_use(llm) == 0:
                time.sleep(0.001)
            stream.close()
            reading.result(timeout=30)
        assert blocks_in_use(llm) == 0


def default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupt_ends_a_long_prompt(smollm2: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "atb",
        "generate",
        str(smollm2),
        "--prompt",
        "word " * 8000,
        "--prefill-chunk",
        "16",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A test run in the background of a shell ignores the signal, and so would its children.
    with subprocess.Popen(command, **pipes, preexec_fn=default_interrupt) as process:
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
