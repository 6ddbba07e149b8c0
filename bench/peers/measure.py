# SPDX-License-Identifier: Apache-2.0
"""Measures ATB and one peer in turns: fresh random prompts every round, the same for both, the best round of each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from bench.peers.catalog import Workload
from bench.peers.worker import PeerError, Worker

RUN_LIMIT_S = 600.0
GUARD_TOKENS = 16  # prompt and new tokens of the comparison of greedy texts
EQUAL_PRECISION = "f32"  # where greedy texts must be equal
SETTLE_S = 0.3  # idle threads of some peers spin for a while after a run


@dataclass
class Speed:
    """The best round of one program, and its most memory."""

    prefill_tokens_per_s: float = 0.0
    decode_tokens_per_s: float = 0.0
    first_token_s: float = 0.0  # of the whole batch
    peak_rss_mb: float = 0.0
    version: str = ""

    def take(self, answer: dict[str, Any], workload: Workload) -> None:
        """Keeps what is better in this round. PeerError for an answer that cannot be true."""
        prefill_s, decode_s = float(answer["prefill_s"]), float(answer["decode_s"])
        counts = [len(ids) for ids in answer["ids"]]
        if counts != [workload.new_tokens] * workload.batch or prefill_s <= 0 or decode_s <= 0:
            raise PeerError(
                f"run: {counts} new tokens in {prefill_s:g} + {decode_s:g} s; "
                f"expected {workload.batch} times {workload.new_tokens}"
            )
        prefill = workload.batch * workload.prompt_tokens / prefill_s
        decode = workload.batch * (workload.new_tokens - 1) / decode_s
        self.prefill_tokens_per_s = max(self.prefill_tokens_per_s, prefill)
        self.decode_tokens_per_s = max(self.decode_tokens_per_s, decode)
        self.first_token_s = min(self.first_token_s or prefill_s, prefill_s)
        self.peak_rss_mb = max(self.peak_rss_mb, float(answer["peak_rss_mb"]))


@dataclass
class Pair:
    """ATB and a peer on one workload. `problem` says why figures of the peer are missing or doubtful."""

    precision: str
    workload: Workload
    peer: str
    ours: Speed = field(default_factory=Speed)
    theirs: Speed | None = None
    problem: str = ""
    guard: str = ""  # whether greedy texts agree
    read_gb_s: list[float] = field(default_factory=list)  # each reading; the highest is the limit
    f32_gflop_s: list[float] = field(default_factory=list)
    bytes_per_token: float = 0.0  # weights and, at half of the new tokens, keys and values: read for one token
    flops_per_token: float = 0.0  # of a prompt token
    seed: int = 0

    @property
    def decode_limit(self) -> float:
        """Tokens a second that the read bandwidth allows; 0 where it was not measured."""
        return max(self.read_gb_s, default=0.0) * 1e9 / self.bytes_per_token if self.bytes_per_token else 0.0

    @property
    def prefill_limit(self) -> float:
        """Tokens a second that the f32 multiply-add peak allows; 0 where it was not measured."""
        return max(self.f32_gflop_s, default=0.0) * 1e9 / self.flops_per_token if self.flops_per_token else 0.0


@dataclass(frozen=True)
class Contest:
    """How to start the two programs, what they read, and how to measure the machine."""

    start_ours: Callable[[], Worker]
    start_theirs: Callable[[], Worker]
    our_model: str
    their_model: str
    threads: int
    roofline: Callable[[int], dict[str, Any]]  # bytes of one step -> {"read_gb_s", "f32_gflop_s"}
    load_limit_s: float = 300.0
    fixed_shapes: bool = False  # the peer is slow for other shapes than the workload's: no warm-up with short prompts


def measure(pair: Pair, contest: Contest, rounds: int) -> None:
    """Fills `pair`. Never raises for what a worker does wrong: that becomes `pair.problem`."""
    with ExitStack() as stack:
        try:
            ours = stack.enter_context(contest.start_ours())
            facts = _load(ours, contest.our_model, pair, contest)
            pair.ours.version = facts["version"]
            _take_facts(pair, facts)
            theirs = _Opponent(pair)
            theirs.join(stack, contest)
            _alternate(pair, contest, ours, theirs, _Prompts(facts, pair.seed), rounds)
        except PeerError as error:
            pair.problem = f"ATB: {error}"


def agreement(ours: list[list[int]], theirs: list[list[int]]) -> str:
    """Whether two greedy texts are the same tokens, in words."""
    if ours == theirs:
        return f"all {sum(map(len, ours))} tokens agree"
    for i, (left, right) in enumerate(zip(ours, theirs, strict=False)):
        for at, (a, b) in enumerate(zip(left, right, strict=False)):
            if a != b:
                return f"DIFFER: prompt {i}, new token {at}: ATB {a}, peer {b}"
    return "DIFFER: not as many tokens"


class _Opponent:
    """The peer of a pair. Once it has failed it is left out, and the pair says why."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._worker: Worker | None = None

    def join(self, stack: ExitStack, contest: Contest) -> None:
        try:
            self._worker = stack.enter_context(contest.start_theirs())
            answer = _load(self._worker, contest.their_model, self._pair, contest)
            self._pair.theirs = Speed(version=answer.get("version", ""), peak_rss_mb=answer["peak_rss_mb"])
        except PeerError as error:
            self._fail(error)

    def run(self, prompts: list[list[int]], new_tokens: int, workload: Workload | None = None) -> list[list[int]]:
        """New ids, or nothing once it has failed. With a workload the times count."""
        if self._worker is None or self._pair.theirs is None:
            return []
        time.sleep(SETTLE_S)
        try:
            answer = self._worker.ask("run", RUN_LIMIT_S, prompts=prompts, new_tokens=new_tokens)
            if workload is not None:
                self._pair.theirs.take(answer, workload)
            return list(answer["ids"])
        except PeerError as error:
            self._fail(error)
            return []

    def _fail(self, error: PeerError) -> None:
        self._pair.problem, self._pair.theirs, self._worker = str(error), None, None


def _load(worker: Worker, model: str, pair: Pair, contest: Contest) -> dict[str, Any]:
    workload = pair.workload
    return worker.ask(
        "load",
        contest.load_limit_s,
        model=model,
        precision=pair.precision,
        threads=contest.threads,
        prompt_tokens=workload.prompt_tokens,
        new_tokens=workload.new_tokens,
        batch=workload.batch,
    )


def _take_facts(pair: Pair, facts: dict[str, Any]) -> None:
    context = pair.workload.prompt_tokens + pair.workload.new_tokens // 2
    weights = facts["weight_bytes_per_token"] / pair.workload.batch  # one read of them serves the batch
    pair.bytes_per_token = weights + facts["kv_bytes_per_token"] * context
    pair.flops_per_token = facts["flops_per_token"]


class _Prompts:
    """Random token ids, never the same twice and never one that ends a text."""

    def __init__(self, facts: dict[str, Any], seed: int) -> None:
        stops = set(facts.get("stop_token_ids", ()))
        self._ids = [i for i in range(facts["vocab"]) if i not in stops]
        self._random = random.Random(seed)

    def draw(self, batch: int, length: int) -> list[list[int]]:
        return [self._random.choices(self._ids, k=length) for _ in range(batch)]


def _alternate(pair: Pair, contest: Contest, ours: Worker, theirs: _Opponent, prompts: _Prompts, rounds: int) -> None:
    workload = pair.workload

    def turn(batch: int, length: int, new_tokens: int, counts: bool) -> str:
        drawn = prompts.draw(batch, length)
        time.sleep(SETTLE_S)
        answer = ours.ask("run", RUN_LIMIT_S, prompts=drawn, new_tokens=new_tokens)
        if counts:
            pair.ours.take(answer, workload)
        their_ids = theirs.run(drawn, new_tokens, workload if counts else None)
        return agreement(answer["ids"], their_ids) if their_ids and pair.precision == EQUAL_PRECISION else ""

    def readings() -> None:
        limits = contest.roofline(int(pair.bytes_per_token * workload.batch))
        pair.read_gb_s.append(limits["read_gb_s"])
        pair.f32_gflop_s.append(limits["f32_gflop_s"])

    if not contest.fixed_shapes:
        pair.guard = turn(workload.batch, GUARD_TOKENS, GUARD_TOKENS, counts=False)
    for _ in range(rounds):
        readings()
        agreed = turn(workload.batch, workload.prompt_tokens, workload.new_tokens, counts=True)
        pair.guard = pair.guard or agreed
    readings()
