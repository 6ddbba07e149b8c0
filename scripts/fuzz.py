#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives each fuzz target some seconds and prints one line a target: executions, coverage, findings.

Then checks random graphs: optimized and compiled they must give the plain graph's numbers (tests/fuzz/random_graphs).
Corpora grow under the build folder; inputs that end in a finding are kept beside them. Fails on any finding.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DICTIONARIES = {"config": "json", "safetensors": "json", "gguf": "gguf", "tokenizer": "gguf", "graph_text": "graph"}
MAX_INPUT_BYTES = 16384
LIMITS = ["-rss_limit_mb=512", "-malloc_limit_mb=256", "-timeout=5", f"-max_len={MAX_INPUT_BYTES}"]
# What may pass beyond the time asked for: starting, the corpus, the last input, the report.
GRACE_S = 120


def last_number(pattern: str, log: str) -> int:
    found = re.findall(pattern, log)
    return int(found[-1]) if found else 0


def fuzz(program: pathlib.Path, work: pathlib.Path, seconds: int) -> bool:
    """Runs one target on its seeds and its corpus of earlier runs; true without a finding."""
    name = program.name.removeprefix("atb_fuzz_")
    seeds, corpus, findings = (work / part / name for part in ("seeds", "corpus", "findings"))
    for directory in (seeds, corpus, findings):
        directory.mkdir(parents=True, exist_ok=True)
    subprocess.run([program, f"--write_seeds={seeds}"], check=True)
    command = [program, f"-max_total_time={seconds}", f"-artifact_prefix={findings}/", *LIMITS]
    command += ["-print_final_stats=1", "-verbosity=1"]
    if name in DICTIONARIES:
        command.append(f"-dict={ROOT / 'tests' / 'fuzz' / DICTIONARIES[name]}.dict")
    log_path = work / f"{name}.log"
    with log_path.open("w") as log_file:
        try:
            run = subprocess.run(
                [*command, corpus, seeds],
                stdout=log_file,
                stderr=subprocess.STDOUT,
                timeout=seconds + GRACE_S,
                check=False,
            )
            status = run.returncode
        except subprocess.TimeoutExpired:
            status = -1
    log = log_path.read_text(errors="replace")
    executions = last_number(r"stat::number_of_executed_units:\s+(\d+)", log) or last_number(r"(?m)^#(\d+)", log)
    coverage = last_number(r"cov: (\d+)", log)
    verdict = "no finding" if status == 0 else f"FINDING, see {log_path} and {findings}"
    print(f"[fuzz] {name}: {executions} executions, {coverage} edges, {verdict}", flush=True)
    return status == 0 and executions > 0


def check_random_graphs(program: pathlib.Path, work: pathlib.Path, graphs: int) -> bool:
    """Runs the generator over its seeds; true if no graph failed and each fusion occurred often enough."""
    log_path = work / "random_graphs.log"
    work.mkdir(parents=True, exist_ok=True)
    with log_path.open("w") as log_file:
        status = subprocess.run(
            [program, "--graphs", str(graphs)], stdout=log_file, stderr=subprocess.STDOUT, check=False
        ).returncode
    lines = log_path.read_text(errors="replace").splitlines()
    verdict = "no finding" if status == 0 else f"FINDING, see {log_path}"
    print("\n".join(line for line in lines if line.startswith("[random graphs] ")), flush=True)
    print(f"[fuzz] random graphs: {graphs} asked for, {verdict}", flush=True)
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "fuzz", help="CMake build folder")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--graphs", type=int, default=2000, help="random graphs to check")
    parser.add_argument("names", nargs="*", help="targets or random_graphs; all where none is given")
    args = parser.parse_args()
    build = args.build.resolve()
    programs = sorted(p for p in (build / "tests" / "fuzz").glob("atb_fuzz_*") if p.is_file())
    random_graphs = build / "tests" / "fuzz" / "atb_random_graphs"
    with_graphs = not args.names or "random_graphs" in args.names
    if args.names:
        programs = [p for p in programs if p.name.removeprefix("atb_fuzz_") in args.names]
    if not (programs or with_graphs) or (with_graphs and not random_graphs.is_file()):
        print("[fuzz] no target found: build with the preset fuzz", file=sys.stderr)
        return 1
    work = build / "fuzzing"
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        clean = list(pool.map(lambda program: fuzz(program, work, args.seconds), programs))
    if with_graphs:
        clean.append(check_random_graphs(random_graphs, work, args.graphs))
    print(f"[fuzz] {sum(clean)} of {len(clean)} targets without a finding")
    return int(not all(clean))


if __name__ == "__main__":
    sys.exit(main())
