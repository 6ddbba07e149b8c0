# SPDX-License-Identifier: Apache-2.0
"""The examples of the pages on declared blocks run as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from documented import run_examples


@pytest.mark.parametrize("page", ["graphop.md", "kv_cache.md", "plugins.md"])
def test_the_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(page)
