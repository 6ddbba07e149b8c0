#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts instructions of fixed pieces of work under callgrind and compares them with the committed figures.

Counts repeat where seconds do not: callgrind emulates a CPU with AVX2, whatever the machine has. They depend on the
compiler, so figures.json holds one set a compiler. A count beyond the tolerance fails: above, something got slower;
below, the figure is to be renewed (`--update`).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

FIGURES = pathlib.Path(__file__).with_name("figures.json")
RESULTS = pathlib.Path("build/results/instructions.json")  # added up by scripts/run_tests.py --summary
TOLERANCE = 0.02  # of the committed count; between two runs of one binary it is below 0.0001


def count(program: pathlib.Path, work: str) -> int:
    """Instructions inside atb_counted of one piece of work."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=atb_counted"]
    run = subprocess.run([*command, str(program), work], capture_output=True, text=True, check=False, timeout=300)
    found = re.search(r"Collected\s*:\s*(\d+)", run.stderr)
    if run.returncode != 0 or found is None:
        raise SystemExit(f"[instructions] {work} ended with status {run.returncode}:\n{run.stderr[-2000:]}")
    return int(found.group(1))


def verdict(measured: int, committed: int | None) -> str:
    """'new', 'ok', 'more' or 'fewer'."""
    if committed is None:
        return "new"
    if abs(measured - committed) <= TOLERANCE * committed:
        return "ok"
    return "more" if measured > committed else "fewer"


def compiler_of(build: pathlib.Path) -> str:
    """Name and major version of the compiler that CMake used: 'GNU 12'."""
    for path in sorted(build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake")):
        text = path.read_text()
        name = re.search(r'CMAKE_CXX_COMPILER_ID "(\w+)"', text)
        version = re.search(r'CMAKE_CXX_COMPILER_VERSION "(\d+)', text)
        if name and version:
            return f"{name.group(1)} {version.group(1)}"
    raise SystemExit(f"[instructions] {build} is not a CMake build folder; `make build` makes one")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="CMake build folder")
    parser.add_argument("--update", action="store_true", help="write the counts of this build as the figures")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("[instructions] valgrind not found: install valgrind")
    compiler = compiler_of(args.build)
    program = args.build / "bench" / "instructions" / "atb-instructions"
    works = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    committed = figures.get(compiler, {})
    if not committed and not args.update:
        print(f"[instructions] no figures for {compiler}: counts are printed, not compared")
    counts = {}
    bad = 0
    for work in works:
        counts[work] = count(program, work)
        result = verdict(counts[work], committed.get(work))
        bad += result in ("more", "fewer")
        change = f"{counts[work] / committed[work] - 1:+.2%}" if work in committed else "-"
        print(f"[instructions] {work:28} {counts[work]:>12,} {change:>8} {result}", flush=True)
    if args.update:
        FIGURES.write_text(json.dumps({**figures, compiler: counts}, indent=2, sort_keys=True) + "\n")
        return 0
    passed = len(works) - bad
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"passed": passed, "failed": bad, "skipped": 0}))
    print(f"[instructions] {passed} within {TOLERANCE:.0%}, {bad} beyond; `--update` renews {FIGURES.name}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
