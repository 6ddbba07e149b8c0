#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the C++ and Python tests and closes with one line: `N passed, N failed, N skipped`.

Suites: `cpp` (ctest), `py` (pytest), `slow` (the long ones of both). A suite that executes nothing has failed, except
`slow`. Counts are kept under build/results, and `--summary` adds up what is there.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "results"
# C++ tests whose name holds this word, and Python tests marked `slow`, belong to the slow suite.
SLOW_CPP = "Slow"
TEST_TIMEOUT_S = 300
PYTEST_NO_TESTS = 5


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    @property
    def executed(self) -> int:
        return self.passed + self.failed


def read_junit(path: pathlib.Path) -> Counts:
    """Counts the test cases of a JUnit file; a file that is missing or cut counts nothing."""
    counts = Counts()
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return counts
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            counts.failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            counts.skipped += 1
        else:
            counts.passed += 1
    return counts


def run(command: list[str], junit: pathlib.Path, empty_status: int | None = None) -> Counts:
    """Runs a test program that writes `junit`. A bad exit that no test case explains is one failure more."""
    junit.parent.mkdir(parents=True, exist_ok=True)
    junit.unlink(missing_ok=True)
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    counts = read_junit(junit)
    if status not in (0, empty_status) and counts.failed == 0:
        print(f"[tests] {command[0]} ended with status {status}", file=sys.stderr)
        counts.failed += 1
    return counts


def run_cpp(build: pathlib.Path, jobs: int, slow: bool) -> Counts:
    junit = RESULTS / ("ctest-slow.xml" if slow else "ctest.xml")
    select = ["-R", SLOW_CPP] if slow else ["-E", SLOW_CPP]
    limits = ["-j", str(jobs), "--timeout", str(TEST_TIMEOUT_S)]
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--output-junit", str(junit), *limits, *select]
    return run(command, junit)


def run_py(slow: bool) -> Counts:
    # The unit tests can run on a stand-in for the extension module; here a module that does not load is a failure.
    if subprocess.run([sys.executable, "-c", "import atb._core"], cwd=ROOT, check=False).returncode != 0:
        print("[tests] py: the extension module atb._core does not load; build it with `make build`", file=sys.stderr)
        return Counts(failed=1)
    junit = RESULTS / ("pytest-slow.xml" if slow else "pytest.xml")
    select = "slow" if slow else "not slow"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", "-m", select]
    return run([*command, f"--timeout={TEST_TIMEOUT_S}", "--durations=10"], junit, empty_status=PYTEST_NO_TESTS)


def run_suite(suite: str, build: pathlib.Path, jobs: int) -> Counts:
    start = time.monotonic()
    if suite == "slow":
        counts = run_cpp(build, jobs, slow=True) + run_py(slow=True)
    else:
        counts = run_cpp(build, jobs, slow=False) if suite == "cpp" else run_py(slow=False)
        if counts.executed == 0:
            print(f"[tests] {suite}: no test was executed", file=sys.stderr)
            counts.failed += 1
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{suite}.json").write_text(json.dumps(asdict(counts)))
    print(f"[tests] {suite}: {counts.line()} in {time.monotonic() - start:.0f} s")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", choices=["cpp", "py", "slow", []], help="what to run")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="CMake build folder")
    parser.add_argument("--jobs", type=int, default=2, help="C++ test programs at a time")
    parser.add_argument("--summary", action="store_true", help="add up the results of earlier runs")
    args = parser.parse_args()
    total = Counts()
    if args.summary:
        for path in sorted(RESULTS.glob("*.json")):
            total += Counts(**json.loads(path.read_text()))
    for suite in args.suites:
        total += run_suite(suite, args.build.resolve(), args.jobs)
    print(total.line(), flush=True)
    only_slow = args.suites == ["slow"]
    return int(total.failed > 0 or (total.executed == 0 and not only_slow))


if __name__ == "__main__":
    sys.exit(main())
