# SPDX-License-Identifier: Apache-2.0
"""`atb bench --profile` and the trace behind it, on a tiny model: sums, names, and a file that Perfetto can open."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import atb
import pytest
import reference
from reference import tokens

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.save(reference.wide_llama(reference.llama_config()), tmp_path_factory.mktemp("profile"))


def run(*arguments: object) -> str:
    environment = os.environ | {"PYTHONPATH": str(Path(atb.__file__).parents[1]), "COLUMNS": "160"}
    command = [sys.executable, "-m", "atb", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def bench(model: Path, *flags: object) -> str:
    return run("bench", model, "--prompt-tokens", 40, "--new-tokens", 6, "--rounds", 1, "--threads", 2, *flags)


@pytest.mark.parametrize("flag", ["--profile", "--profile-nodes"])
def test_shares_sum_up_and_every_kernel_appears(model: Path, flag: str) -> None:
    profile = json.loads(bench(model, flag, "--json"))["profile"]
    explained = json.loads(run("explain", model, "--json"))
    kernels = explained["kernels_per_layer"]["after"]  # on average: the first norm goes into its product
    kernels = math.ceil(kernels) if flag == "--profile" else kernels * explained["layers"]
    assert profile["dropped_events"] == 0
    for phase in (profile["prefill"], profile["decode"]):
        parts = [*phase["nodes"], phase["waits"], phase["elsewhere"]]
        assert sum(part["share"] for part in parts) == pytest.approx(1)
        assert sum(part["total_ms"] for part in parts) == pytest.approx(phase["total_ms"])
        assert all(part["share"] >= 0 for part in parts)
        in_layers = [node for node in phase["nodes"] if node["in_layers"]]
        assert len(in_layers) == kernels
        assert all(node["variant"] and node["op"] for node in phase["nodes"])
        assert phase["wakeups"]["count"] == phase["steps"]
        assert phase["wakeups"]["from_park"] <= phase["wakeups"]["count"]
    assert profile["decode"]["steps"] == 5
    assert profile["decode"]["tokens"] == 5
    assert profile["prefill"]["tokens"] == 40
    layers = explained["layers"] if flag == "--profile" else 1
    counts = [n["count"] for n in profile["decode"]["nodes"] if n["in_layers"]]
    assert (
        set(counts) <= {5, 5 * layers}
        and sum(counts) == 5 * explained["kernels_per_layer"]["after"] * explained["layers"]
    )


def test_as_text(model: Path) -> None:
    text = bench(model, "--profile")
    for part in ("prefill: 1 steps", "decode: 5 steps", "waiting for parts", "elsewhere", "wake-ups: 5"):
        assert part in text


def trace_events(model: Path, path: Path, threads: int) -> list[dict[str, Any]]:
    with atb.LLM(model, threads=threads, prefill_chunk=16) as llm:
        llm.start_trace()
        llm.generate([tokens(40), tokens(7)], max_new_tokens=4, ignore_eos=True)
        llm.write_trace(path)
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


@pytest.mark.parametrize("threads", [1, 3])
def test_the_trace_is_what_viewers_expect(model: Path, tmp_path: Path, threads: int) -> None:
    events = trace_events(model, tmp_path / "x.json", threads)
    assert all({"ph", "pid", "name"} <= set(event) for event in events)
    slices: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
    for event in events:
        if event["ph"] != "X":
            continue
        assert {"ts", "dur", "tid", "cat", "args"} <= set(event)
        assert event["dur"] >= 0
        slices[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    assert set(slices) == set(range(threads))
    for on_thread in slices.values():
        assert_nested(on_thread)
    named = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert set(named) == set(slices)
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append(event["ph"])
    steps = [e for e in events if e.get("cat") == "step"]
    assert sorted(map(tuple, arrows.values())) == [("s", "f")] * (len(steps) * (threads - 1))


def assert_nested(slices: list[tuple[float, float, str]]) -> None:
    """Begins ascend, and a slice that begins inside another one ends inside it."""
    assert [begin for begin, _, _ in slices] == sorted(begin for begin, _, _ in slices)
    open_ends: list[float] = []
    for begin, end, name in slices:
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + 1e-3, name  # times are printed in ns
        open_ends.append(end)


def test_each_step_has_the_nodes_that_explain_counts(model: Path, tmp_path: Path) -> None:
    events = trace_events(model, tmp_path / "x.json", threads=2)
    explained = json.loads(run("explain", model, "--json"))
    steps = [e for e in events if e.get("cat") == "step"]
    assert {e["name"] for e in steps} == {"prefill", "decode"}
    for step in steps:
        inside = [e for e in events if e.get("cat") == "node" and step["ts"] <= e["ts"] <= step["ts"] + step["dur"]]
        names = {e["name"] for e in inside if e["args"].get("layer", -1) >= 0}
        assert len(names) == explained["kernels_per_layer"]["after"] * explained["layers"]
        assert all(e["args"]["variant"] for e in inside)
