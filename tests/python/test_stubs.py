# SPDX-License-Identifier: Apache-2.0
"""The committed types of the native module are those that it has."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]


def test_stubs_are_those_of_the_module() -> None:
    pytest.importorskip("nanobind.stubgen")
    spec = importlib.util.spec_from_file_location("make_stubs", ROOT / "scripts" / "make_stubs.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    committed = script.STUBS.read_text(encoding="utf-8")
    assert committed == script.make_stubs(), "python/atb/_core.pyi is out of date: run `make stubs`"
