# SPDX-License-Identifier: Apache-2.0
"""Pages of the documentation whose Python examples are run, one after another, as a reader would."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGES = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str | Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language in a page ("" for those of none), with the line that each begins at.

    page: below docs/, or an absolute path.
    """
    text = (PAGES / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, m.start()) + 2, m.group(2)) for m in found if m.group(1) == language]


def run_examples(page: str | Path, **given: Any) -> dict[str, Any]:
    """Runs every Python block of a page in one namespace, which it returns; errors name the page's lines."""
    names: dict[str, Any] = {"__name__": "__documented__", **given}
    examples = blocks(page, "python")
    assert examples, f"{page} has no examples"
    for line, source in examples:
        exec(compile("\n" * (line - 1) + source, str(PAGES / page), "exec"), names)
    return names
