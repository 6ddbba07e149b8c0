# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/compile.md run as they are written."""

from __future__ import annotations

from documented import blocks, run_examples


def test_the_examples_run() -> None:
    names = run_examples("compile.md")
    [(_, drawn)] = blocks("compile.md", "")
    assert names["report"].stages() == drawn.splitlines()
