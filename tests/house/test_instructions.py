# SPDX-License-Identifier: Apache-2.0
"""The comparison of instruction counts: what passes, what does not, and where the compiler's name comes from."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
from house.files import ROOT


@pytest.fixture(scope="module")
def check() -> Any:
    spec = importlib.util.spec_from_file_location("check", ROOT / "bench" / "instructions" / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("measured", "committed", "verdict"),
    [
        (1000, None, "new"),
        (1000, 1000, "ok"),
        (1020, 1000, "ok"),
        (1021, 1000, "more"),
        (980, 1000, "ok"),
        (979, 1000, "fewer"),
    ],
)
def test_verdict(check: Any, measured: int, committed: int | None, verdict: str) -> None:
    assert check.verdict(measured, committed) == verdict


def test_compiler_is_read_from_the_build(check: Any, tmp_path: Any) -> None:
    folder = tmp_path / "CMakeFiles" / "3.25.1"
    folder.mkdir(parents=True)
    (folder / "CMakeCXXCompiler.cmake").write_text(
        'set(CMAKE_CXX_COMPILER_ID "GNU")\nset(CMAKE_CXX_COMPILER_VERSION "12.2.0")\n'
    )
    assert check.compiler_of(tmp_path) == "GNU 12"
    with pytest.raises(SystemExit, match="not a CMake build folder"):
        check.compiler_of(tmp_path / "CMakeFiles")


def test_every_work_has_a_figure(check: Any) -> None:
    works = {
        "decode_step", "flash_attention_rows64", "fused_add_norm_rows32", "linear_f32_rows1", "linear_f32_rows64",
        "linear_q4_1_fast_rows1", "linear_q8_0_fast_rows64",
    }  # fmt: skip
    for compiler, counts in json.loads(check.FIGURES.read_text()).items():
        assert set(counts) == works, compiler
        assert min(counts.values()) > 1000, compiler
