# SPDX-License-Identifier: Apache-2.0
"""The Python examples of the documentation's pages run as written, top to bottom, in one session a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ["graphop.md"]


def examples(page: str) -> list[tuple[int, str]]:
    """The Python code of a page with the lines where it starts."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text[: match.start()].count("\n") + 2, match[1]) for match in found]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore:.*no projection before it")
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session: dict[str, object] = {}
    assert examples(page)
    for line, code in examples(page):
        exec(compile("\n" * (line - 1) + code, str(DOCS / page), "exec"), session)
