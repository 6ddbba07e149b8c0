# SPDX-License-Identifier: Apache-2.0
"""Seconds from the start of a process to the first token of a short prompt, with the files in the page cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.peers.measure import RUN_LIMIT_S
from bench.peers.worker import PeerError, Worker

PROMPT_TOKENS = 16


@dataclass
class ColdStart:
    """The fastest start of one program."""

    name: str
    precision: str
    seconds: float | None = None
    problem: str = ""


def first_token_s(start: Callable[[], Worker], model: str, precision: str, threads: int, limit_s: float) -> float:
    """One start of a worker: interpreter, imports, loading, prompt, one token."""
    prompt = [list(range(100, 100 + PROMPT_TOKENS))]
    with start() as worker:
        worker.ask(
            "load",
            limit_s,
            model=model,
            precision=precision,
            threads=threads,
            prompt_tokens=PROMPT_TOKENS,
            new_tokens=1,
            batch=1,
        )
        worker.ask("run", RUN_LIMIT_S, prompts=prompt, new_tokens=1)
        return time.perf_counter() - worker.started


def measure_starts(contestants: Sequence[tuple[ColdStart, Callable[[], float]]], rounds: int) -> None:
    """Starts each in turn, `rounds` times after one that fills the page cache, and keeps the fastest."""
    for counts in [False, *[True] * rounds]:
        for result, measure in contestants:
            if result.problem:
                continue
            try:
                seconds = measure()
            except PeerError as error:
                result.problem, result.seconds = str(error), None
                continue
            if counts:
                result.seconds = min(result.seconds or seconds, seconds)
