# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/plugins.md run as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from documented import run_examples


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples("plugins.md")
