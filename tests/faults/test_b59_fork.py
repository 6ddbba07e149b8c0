# SPDX-License-Identifier: Apache-2.0
"""B59: after the pool has started, a forked child works or raises at once; it never hangs, also at exit."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import atb
import pytest
import reference
from reference import tokens

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
PROMPT = tokens(20)
WATCHDOG_S = 30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.save(reference.wide_llama(reference.llama_config()), tmp_path_factory.mktemp("b59"))


@pytest.fixture
def llm(model: Path) -> Iterator[atb.LLM]:
    with atb.LLM(model, threads=2) as llm:
        llm.generate([PROMPT], max_new_tokens=2, ignore_eos=True)  # the workers have started
        yield llm


def generated(llm: atb.LLM) -> list[int]:
    return llm.generate([PROMPT], max_new_tokens=4, ignore_eos=True)[0].token_ids


def in_child(body: Callable[[], object]) -> object:
    """What `body` returns in a forked child, or the exception that it raises; fails if the child hangs."""

    def run(sender: Connection) -> None:
        try:
            sender.send(body())
        except atb.Error as error:
            sender.send(error.args[0])
        except BaseException:
            sender.send(traceback.format_exc())

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=run, args=(sender,))
    child.start()
    try:
        assert receiver.poll(WATCHDOG_S), "the child hangs"
        result = receiver.recv()
        child.join(WATCHDOG_S)
        assert child.exitcode == 0, "the child does not exit"
        return result
    finally:
        if child.is_alive():
            child.kill()
            child.join()


def test_generate_in_a_forked_child(llm: atb.LLM) -> None:
    result = in_child(lambda: generated(llm))
    assert result == generated(llm) or "fork" in str(result)


@pytest.mark.parametrize(
    "use",
    [
        lambda llm: llm.logits([PROMPT])[0].shape,
        lambda llm: llm.stats()["requests"],
        lambda llm: next(iter(llm.stream([1, 2, 3]))),
        lambda llm: llm.engine.cancel(1),
        lambda llm: llm.start_trace(),
        lambda llm: llm.close(),
    ],
)
def test_every_entry_point_returns_in_a_forked_child(llm: atb.LLM, use: Callable[[atb.LLM], object]) -> None:
    result = in_child(lambda: use(llm))
    assert "Traceback" not in str(result), result


def test_a_fork_while_another_thread_generates(llm: atb.LLM) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: llm.generate([PROMPT], max_new_tokens=400, ignore_eos=True))
        for _ in range(5):
            result = in_child(lambda: generated(llm))
            assert result == generated(llm) or "fork" in str(result)
        running.result(timeout=120)


def test_a_child_may_load_a_model_of_its_own(llm: atb.LLM, model: Path) -> None:
    def load_and_generate() -> list[int]:
        with atb.LLM(model, threads=2) as own:
            return generated(own)

    assert in_child(load_and_generate) == generated(llm)
