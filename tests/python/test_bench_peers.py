# SPDX-License-Identifier: Apache-2.0
"""The comparison with peers, driven with workers that only pretend to run a model. No time is asserted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.peers import cold_start, report  # noqa: E402
from bench.peers.catalog import PEERS, Workload, parse_workloads, select_peers  # noqa: E402
from bench.peers.environments import REQUIREMENTS, llama_cpp_options, python_of  # noqa: E402
from bench.peers.measure import Contest, Pair, Speed, agreement, measure  # noqa: E402
from bench.peers.models import FORMS, Models  # noqa: E402
from bench.peers.worker import PeerError, Worker  # noqa: E402

LIMIT_S = 60.0  # of healthy answers: long enough for any machine
SHORT_S = 0.5  # of those that never come

# A worker that answers with times of its own choice and notes each run in a journal.
FAKE = """
import json, os, signal, sys, time
sys.path.insert(0, {workers!r})
from serve import serve

NAME, JOURNAL, BEHAVIOUR = sys.argv[1:4]

class Fake:
    runs = 0

    def load(self, **arguments):
        print("libraries print while they load")
        if BEHAVIOUR == "refuse":
            raise RuntimeError("no such\\nmodel")
        facts = dict(vocab=50, stop_token_ids=[7], flops_per_token=1e6, weight_bytes_per_token=800,
                     kv_bytes_per_token=2)
        return dict(version=NAME + " 1.0", **facts)

    def run(self, prompts, new_tokens):
        self.runs += 1
        with open(JOURNAL, "a") as journal:
            print(json.dumps([NAME, prompts, new_tokens]), file=journal)
        if self.runs == 3 and BEHAVIOUR == "crash":
            os.kill(os.getpid(), signal.SIGILL)
        if self.runs == 3 and BEHAVIOUR == "hang":
            time.sleep(3600)
        if BEHAVIOUR == "short":
            new_tokens -= 1
        first = 30 + (BEHAVIOUR == "other")
        ids = [[first] * new_tokens for _ in prompts]
        return dict(prefill_s=[9, 4, 2, 3][self.runs - 1], decode_s=[9, 2, 3, 1][self.runs - 1], ids=ids)

serve(Fake())
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Worker]:
    """Starts a pretended program: name, behaviour."""
    monkeypatch.setattr("bench.peers.measure.SETTLE_S", 0)
    script = tmp_path / "fake.py"
    script.write_text(FAKE.format(workers=str(ROOT / "bench" / "peers" / "workers")))

    def start(name: str, behaviour: str = "") -> Worker:
        arguments = [name, str(tmp_path / "journal"), behaviour]
        return Worker([sys.executable, str(script), *arguments], tmp_path / f"{name}.log")

    return start


def contest(fake: Callable[..., Worker], behaviour: str = "", **changes: Any) -> Contest:
    readings = iter([{"read_gb_s": float(i), "f32_gflop_s": 10.0 * i} for i in (2, 5, 3, 4, 1)])
    fields: dict[str, Any] = {
        "start_ours": lambda: fake("ours"),
        "start_theirs": lambda: fake("theirs", behaviour),
        "our_model": "a",
        "their_model": "b",
        "threads": 1,
        "roofline": lambda step_bytes: next(readings),
    }
    return Contest(**(fields | changes))


def journal(tmp_path: Path) -> list[tuple[str, list[list[int]], int]]:
    return [tuple(json.loads(line)) for line in (tmp_path / "journal").read_text().splitlines()]


def test_rounds_alternate_and_the_best_counts(fake: Callable[..., Worker], tmp_path: Path) -> None:
    pair = Pair("f32", Workload(8, 4, batch=2), "theirs", seed=1)
    measure(pair, contest(fake), rounds=3)
    runs = journal(tmp_path)
    assert [name for name, _, _ in runs] == ["ours", "theirs"] * 4  # the first turn compares greedy texts
    assert [new for _, _, new in runs] == [16, 16] + [4] * 6
    for ours, theirs in zip(runs[::2], runs[1::2], strict=True):
        assert ours[1] == theirs[1]  # the same prompts for both
    prompts = [json.dumps(ids) for _, ids, _ in runs[::2]]
    assert len(set(prompts)) == 4  # and new ones every round
    assert all(len(row) == 8 and 7 not in row for _, ids, _ in runs[2:] for row in ids)
    assert pair.problem == ""
    assert pair.guard == "all 32 tokens agree"
    assert pair.theirs is not None
    for speed in (pair.ours, pair.theirs):  # prefill 4, 2, 3 s; decode 2, 3, 1 s; two prompts
        assert speed.prefill_tokens_per_s == 2 * 8 / 2
        assert speed.decode_tokens_per_s == 2 * 3 / 1
        assert speed.first_token_s == 2
        assert speed.peak_rss_mb > 1
    assert pair.ours.version == "ours 1.0"
    # One reading before and after each round; the highest is the limit.
    assert pair.read_gb_s == [2, 5, 3, 4]
    assert pair.bytes_per_token == 800 / 2 + 2 * (8 + 2)
    assert pair.decode_limit == 5e9 / 420
    assert pair.prefill_limit == 50e9 / 1e6


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        ("crash", "run: ended with SIGILL"),
        ("refuse", "load: RuntimeError: no such model"),
        ("short", "run: [3] new tokens"),
    ],
)
def test_a_failing_peer_is_a_row_and_ours_goes_on(
    fake: Callable[..., Worker], tmp_path: Path, behaviour: str, problem: str
) -> None:
    pair = Pair("bf16", Workload(8, 4), "theirs")
    measure(pair, contest(fake, behaviour), rounds=3)
    assert pair.problem.startswith(problem)
    assert pair.theirs is None
    assert [name for name, _, _ in journal(tmp_path)].count("ours") == 4
    assert pair.ours.decode_tokens_per_s == 3
    text = report.markdown([pair], [], {})
    assert f"| theirs | {' | '.join(['-'] * 8)} | {problem}" in text


def test_a_peer_that_cannot_start_or_be_made_is_a_row(fake: Callable[..., Worker], tmp_path: Path) -> None:
    missing = [str(tmp_path / "nothing")]
    pair = Pair("f32", Workload(8, 4), "theirs")
    measure(pair, contest(fake, start_theirs=lambda: Worker(missing, tmp_path / "log")), rounds=1)
    assert pair.problem.startswith("does not start: ")
    assert pair.ours.decode_tokens_per_s > 0


def test_a_failing_atb_is_named(fake: Callable[..., Worker]) -> None:
    pair = Pair("f32", Workload(8, 4), "theirs")
    measure(pair, contest(fake, start_ours=lambda: fake("ours", "crash")), rounds=3)
    assert pair.problem.startswith("ATB: run: ended with SIGILL")


def test_other_tokens_are_reported(fake: Callable[..., Worker]) -> None:
    pair = Pair("f32", Workload(8, 4), "theirs")
    measure(pair, contest(fake, "other"), rounds=1)
    assert pair.guard == "DIFFER: prompt 0, new token 0: ATB 30, peer 31"
    assert "greedy: DIFFER" in report.markdown([pair], [], {})
    assert agreement([[1, 2], [3, 4]], [[1, 2], [3, 5]]) == "DIFFER: prompt 1, new token 1: ATB 4, peer 5"
    assert agreement([[1, 2]], [[1]]) == "DIFFER: not as many tokens"


def test_peers_with_fixed_shapes_see_only_the_workload(fake: Callable[..., Worker], tmp_path: Path) -> None:
    pair = Pair("f32", Workload(8, 4), "theirs")
    measure(pair, contest(fake, fixed_shapes=True), rounds=1)
    assert [new for _, _, new in journal(tmp_path)] == [4, 4]
    assert pair.guard == "all 4 tokens agree"


def test_a_hanging_worker_is_killed(fake: Callable[..., Worker], tmp_path: Path) -> None:
    with fake("theirs", "hang") as worker:
        worker.ask("load", LIMIT_S)
        for _ in range(2):
            worker.ask("run", LIMIT_S, prompts=[[1]], new_tokens=1)
        with pytest.raises(PeerError, match=r"run: no answer within 0\.5 s"):
            worker.ask("run", SHORT_S, prompts=[[1]], new_tokens=1)
        pid = worker._process.pid
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        with pytest.raises(PeerError, match="run: ended with SIGKILL"):
            worker.ask("run", LIMIT_S, prompts=[[1]], new_tokens=1)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('hello', flush=True); import time; time.sleep(3600)", "which is no JSON"),
        ("print([1], flush=True); import time; time.sleep(3600)", "answer is no object"),
        ("import sys; sys.exit('[peer] no licence')", r"exit status 1: \[peer\] no licence"),
    ],
)
def test_bad_answers_are_reasons(tmp_path: Path, program: str, reason: str) -> None:
    with Worker([sys.executable, "-c", program], tmp_path / "log") as worker, pytest.raises(PeerError, match=reason):
        worker.ask("load", LIMIT_S)


def test_unknown_operations_are_refused(fake: Callable[..., Worker]) -> None:
    with fake("theirs") as worker, pytest.raises(PeerError, match="unknown operation '__class__'"):
        worker.ask("__class__", LIMIT_S)


def known_pair() -> Pair:
    pair = Pair("q4_1", Workload(512, 64), "llama.cpp")
    pair.ours = Speed(2000, 150, 0.25, 200, "atb 1")
    pair.theirs = Speed(200, 60, 2.5, 400, "llama 2")
    pair.read_gb_s, pair.f32_gflop_s = [18.0, 20.0], [300.0, 250.0]
    pair.bytes_per_token, pair.flops_per_token = 1e8, 2e8
    return pair


def test_ratios_and_shares() -> None:
    pair = known_pair()
    assert report.ratios(pair) == {"prefill": 10, "decode": 2.5, "first_token": 0.1, "peak_rss": 0.5}
    # 20 GB/s allow 200 tokens a second, 300 GFLOP/s allow 1,500.
    assert report.shares(pair)["ours"] == {"prefill": pytest.approx(2000 / 1500), "decode": pytest.approx(0.75)}
    assert report.shares(pair)["theirs"] == {"prefill": pytest.approx(200 / 1500), "decode": pytest.approx(0.3)}
    pair.read_gb_s = []
    assert report.shares(pair) == {"ours": {}, "theirs": {}}


def test_the_table_is_readable_and_complete() -> None:
    starts = [cold_start.ColdStart("ATB", "q4_1", 0.5), cold_start.ColdStart("x", "q4_1", None, "load: no|file")]
    text = report.markdown([known_pair()], starts, {"date": "2026-01-01"})
    assert "- date: 2026-01-01\n" in text
    figures = "2000 | 133% | - | 150 | 75% | - | 0.250 | 200 | 18.0-20.0 GB/s, 250-300 GFLOP/s |"
    assert f"| 512 + 64 | q4_1 | **ATB** | {figures}" in text
    peer = "200 | 13% | 10.00x | 60.0 | 30% | 2.50x | 2.500 (ATB 10%) | 400 (ATB 50%) |"
    assert f"| 512 + 64 | q4_1 | llama.cpp | {peer}" in text
    assert "| q4_1 | ATB | 0.50 |" in text
    assert "| q4_1 | x | - | load: no/file |" in text
    for table in text.split("\n\n"):
        rows = [line.count("|") for line in table.splitlines() if line.startswith("|")]
        assert len(set(rows)) <= 1
    data = json.loads(report.as_json([known_pair()], starts, {}))
    assert data["pairs"][0]["ratio"]["prefill"] == 10
    assert data["pairs"][0]["read_gb_s"] == [18.0, 20.0]


def test_docs_are_updated_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{report.BEGIN}\nold\n{report.END}\nbelow\n")
    for table in ("new", "newer"):
        report.write_docs(page, table)
    assert page.read_text() == f"above\n{report.BEGIN}\n\nnewer\n{report.END}\nbelow\n"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="put them where the table belongs"):
        report.write_docs(page, "new")
    real = (ROOT / "docs" / "benchmarks.md").read_text()
    assert real.count(report.BEGIN) == real.count(report.END) == 1


def test_starts_are_measured_in_turns() -> None:
    turns: list[str] = []

    def contestant(name: str, seconds: list[float]) -> tuple[cold_start.ColdStart, Callable[[], float]]:
        def measure_once() -> float:
            turns.append(name)
            if not seconds:
                raise PeerError("load: gone")
            return seconds.pop(0)

        return cold_start.ColdStart(name, "f32"), measure_once

    contestants = [contestant("a", [1, 5, 3]), contestant("b", [1.0])]
    cold_start.measure_starts(contestants, rounds=2)
    assert turns == ["a", "b", "a", "b", "a"]
    assert contestants[0][0].seconds == 3  # the first start only fills the page cache
    assert (contestants[1][0].seconds, contestants[1][0].problem) == (None, "load: gone")


def test_peers_and_workloads_are_selected_by_name() -> None:
    assert select_peers("") == list(PEERS)
    assert [peer.name for peer in select_peers("transformers, llama-cpp")] == [
        "transformers sdpa",
        "transformers eager",
        "llama.cpp",
    ]
    with pytest.raises(ValueError, match="unknown peer 'vllm'; known are transformers, torch-compile"):
        select_peers("vllm")
    assert parse_workloads("512+64 128+64x8") == [Workload(512, 64), Workload(128, 64, 8)]
    for text in ("512", "0+64", "512+1", "512+64x0", "512+64x", "-1+5", "99999999+4"):
        with pytest.raises(ValueError, match="expected PROMPT"):
            parse_workloads(text)


def test_every_peer_has_worker_requirements_and_models() -> None:
    for peer in PEERS:
        assert (ROOT / "bench" / "peers" / "workers" / peer.worker).exists()
        lines = (REQUIREMENTS / f"{peer.environment}.txt").read_text().splitlines()
        pins = [line for line in lines if line and not line.startswith("#")]
        assert pins and all("==" in line for line in pins)
        assert set(peer.forms.values()) <= {*FORMS, "gguf-q4_1"}


def test_llama_cpp_is_compiled_for_this_cpu_without_amx() -> None:
    options = llama_cpp_options({"avx", "avx2", "fma", "f16c", "avx512bw", "avx512_vnni", "amx_int8"}, "x86_64")
    assert {"-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_AVX512_VNNI=ON"} <= set(options.split())
    assert "-DGGML_AVX512_BF16=OFF" in options
    assert "AMX" not in options
    assert llama_cpp_options(set(), "aarch64") == "-DGGML_NATIVE=ON"


def test_a_given_interpreter_takes_the_place_of_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEER_PYTHON_llama_cpp", "/usr/bin/python3")
    assert python_of("llama-cpp") == Path("/usr/bin/python3")


def test_a_model_that_cannot_be_made_says_why_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PEER_PYTHON_transformers", sys.executable)
    made: list[str] = []
    models = Models(tmp_path / "no.gguf", tmp_path)
    monkeypatch.setattr(
        "bench.peers.models.run_logged", lambda *_: made.append("x") or (_ for _ in ()).throw(PeerError("no torch"))
    )
    for _ in range(2):
        with pytest.raises(PeerError, match="hf-f32: no torch"):
            models.path("hf-f32")
    with pytest.raises(PeerError, match="ct2-f32: hf-f32: no torch"):
        models.path("ct2-f32")
    assert made == ["x"]
    assert models.path("gguf-q4_1") == tmp_path / "no.gguf"
