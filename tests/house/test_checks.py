# SPDX-License-Identifier: Apache-2.0
"""The checks of the house hold, and each of them can fail."""

from __future__ import annotations

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "scripts"))

import check_headers  # noqa: E402
import check_language  # noqa: E402
import check_layers  # noqa: E402
import check_length  # noqa: E402
import run_tests  # noqa: E402
from house.files import project_files, read_lines  # noqa: E402

CHECKS = [check_headers, check_language, check_layers, check_length]
LICENCE_LINE = "// SPDX-License-Identifier: Apache-2.0"


@pytest.mark.parametrize("module", CHECKS, ids=lambda module: module.__name__)
def test_project_passes(module):
    assert [problem for name in project_files() for problem in module.check(name, read_lines(name))] == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("src/core/a.cc", '#include "ir/graph.h"'),
        ("src/ir/a.h", '#include "ops/x.h"'),
        ("src/kernels/a-inl.h", '#include "ir/graph.h"'),
        ("src/frontends/gguf/a.cc", '#include "ir/graph.h"'),
        ("src/passes/patterns/a.cc", '  #  include "runtime/plan.h"'),
        ("src/ops/a.cc", '#include "a.h"'),
        ("include/atb/atb.h", '#include "ops/x.h"'),
        ("include/atb/atb.h", '#include "core/error.h"'),
        ("src/core/a.h", '#include "atb/language_model.h"'),
        ("src/core/a.h", '#include "atb/generation.h"'),
        ("src/nowhere/a.cc", ""),
    ],
)
def test_layers_finds(name, line):
    assert list(check_layers.check(name, [LICENCE_LINE, line]))


def test_layers_allows_lower_layers():
    assert not list(
        check_layers.check(
            "src/ops/a.cc", ['#include "core/error.h"', '#include "atb/error.h"', '#include "kernels/x.h"']
        )
    )


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("src/core/a.cc", ["// what it is"]),
        ("src/core/a.cc", [LICENCE_LINE, "namespace atb {"]),
        ("scripts/a.sh", ["#!/bin/sh", "set -e"]),
        ("python/atb/a.py", ["# SPDX-License-Identifier: Apache-2.0", "import os"]),
        ("python/atb/a.py", []),
    ],
)
def test_headers_finds(name, lines):
    assert list(check_headers.check(name, lines))


def test_length_finds():
    assert not list(check_length.check("src/core/a.cc", [""] * 600))
    assert list(check_length.check("src/core/a.cc", [""] * 601))


@pytest.mark.parametrize(
    "line",
    ["see /home/someone/x.gguf", "pip install --index-url x", "https://pypi.example.org/simple", "cp a /root/b"],
)
def test_language_finds(line):
    assert list(check_language.check("docs/a.md", [line]))


@pytest.mark.parametrize("line", ["https://example.org/work/x", "src/work/a.h", "$HOME/work/x"])
def test_language_allows(line):
    assert not list(check_language.check("docs/a.md", [line]))


def test_run_tests_counts_each_kind(tmp_path):
    junit = tmp_path / "r.xml"
    junit.write_text(
        "<testsuites><testsuite><testcase name='a'/><testcase name='b'><failure/></testcase>"
        "<testcase name='c'><error/></testcase><testcase name='d'><skipped/></testcase></testsuite></testsuites>"
    )
    assert run_tests.read_junit(junit).line() == "1 passed, 2 failed, 1 skipped"
    junit.write_text("<testsuites><testsuite>")
    assert run_tests.read_junit(junit).executed == 0


def test_run_tests_counts_a_crash_as_a_failure(tmp_path):
    crash = [sys.executable, "-c", "import sys; sys.exit(3)"]
    assert run_tests.run(crash, tmp_path / "none.xml").failed == 1
    assert run_tests.run(crash, tmp_path / "none.xml", empty_status=3).failed == 0


def requirement_lines(path: pathlib.Path) -> set[str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    return {line for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize(
    ("key", "file"), [("dependencies", "run"), ("test", "test"), ("lint", "lint"), ("docs", "docs")]
)
def test_requirements_agree_with_pyproject(key, file):
    text = (ROOT / "pyproject.toml").read_text()
    declared = re.search(rf"^{key} = \[([^\]]*)\]", text, re.MULTILINE)
    assert declared is not None
    assert set(re.findall(r'"([^"]+)"', declared[1])) == requirement_lines(ROOT / f"scripts/requirements/{file}.txt")
