# SPDX-License-Identifier: Apache-2.0
"""A build without one of the packages that it needs ends with a line that names the package to install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"  # nothing is looked for in /usr and its like
GIVEN = ["-DATB_HWY_INCLUDE=/x", "-DATB_HWY_LIBRARY=/x/libhwy.so", "-DATB_JSON_INCLUDE=/x"]

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


def messages(build: Path, *options: str, **environment: str) -> str:
    """What configuring prints, on one line; it must fail."""
    command = ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(build), "-DATB_BUILD_PYTHON=OFF", *options]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=os.environ | environment
    )
    assert result.returncode != 0, result.stdout
    return " ".join((result.stdout + result.stderr).split())


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([NOWHERE], "Highway not found: install libhwy-dev (Debian, Ubuntu) or highway-devel (Fedora)"),
        ([NOWHERE, *GIVEN[:2]], "nlohmann-json not found: install nlohmann-json3-dev (Debian, Ubuntu) or json-devel"),
        (["-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON", *GIVEN], "GoogleTest not found: install libgtest-dev"),
        (
            ["-DCMAKE_DISABLE_FIND_PACKAGE_benchmark=ON", "-DATB_BUILD_BENCH=ON", "-DATB_BUILD_TESTS=OFF", *GIVEN],
            "Google Benchmark not found: install libbenchmark-dev",
        ),
        (
            ["-DCMAKE_DISABLE_FIND_PACKAGE_Python=ON", "-DATB_BUILD_PYTHON=ON", *GIVEN],
            "Python >= 3.10 with headers not found: install python3-dev",
        ),
    ],
    ids=["highway", "json", "gtest", "benchmark", "python"],
)
def test_package(options: list[str], line: str, tmp_path: Path) -> None:
    assert line in messages(tmp_path, *options)


def test_nanobind(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\n[ "$1 $2" = \'-m nanobind\' ] && exit 1\nexec {sys.executable} "$@"\n')
    bare.chmod(0o755)
    text = messages(tmp_path / "build", "-DATB_BUILD_PYTHON=ON", f"-DPython_EXECUTABLE={bare}", *GIVEN)
    assert f"nanobind not found for {bare}: run `{bare} -m pip install nanobind`" in text


def test_compiler(tmp_path: Path) -> None:
    text = messages(tmp_path, CXX=str(tmp_path / "no-compiler"))
    assert "No C++ compiler found: install g++ (Debian, Ubuntu) or gcc-c++ (Fedora), version 12 or newer" in text
