# SPDX-License-Identifier: Apache-2.0
"""The examples of the pages on declared blocks run as they are written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import atb_torch as atb  # noqa: E402
from documented import PAGES, run_examples  # noqa: E402


@pytest.mark.parametrize("page", ["graphop.md", "kv_cache.md", "plugins.md"])
def test_the_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(page)


def test_the_report_that_the_page_explains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_examples("graphop.md")
    without, with_cache = names["decoder"].report(), cached_report(names)
    shown = re.findall(r"^│ ([\w+ ]+?) +│", (PAGES / "graphop.md").read_text(encoding="utf-8"), re.MULTILINE)
    rows = [row[0] for row in without.rows()]
    assert shown[0] == rows[0] == "as written"
    assert shown[-1] == rows[-1] == "as it runs"
    assert set(shown) <= set(rows), "a row that the page explains is gone"
    assert without["tokens"] == 512  # whatever was called
    after = {row[0]: row[2] for row in without.rows()}
    assert int(after["as it runs"]) < int(after["AddNorm"])
    assert with_cache["bytes_per_layer"]["after"] > without["bytes_per_layer"]["after"]


def cached_report(names: dict[str, Any]) -> Any:
    """Of the same decoder with a cache in its attention."""
    decoder = names["decoder"]
    items = [
        replace(item, attrs={**item.attrs, "kv_cache": True}) if item.kind == "flash_attention" else item
        for item in decoder.items
    ]
    cached = atb.GraphOp(items)
    cached(names["query"], kv_cache=atb.KVCache(num_layers=1, num_heads=2, head_dim=16, max_tokens=64))
    return cached.report()


def test_every_form_of_rope_that_the_page_lists() -> None:
    text = (PAGES / "graphop.md").read_text(encoding="utf-8")
    table = text[text.index("| `rope=` |") :].partition("\n\n")[0].splitlines()[2:]
    forms = [form for line in table for form in re.findall(r"`([^`]+)`", line.split("|")[1])]
    assert len(forms) == 7
    for form in forms:
        rope = eval(form.replace("(...)", "()"), {"RotaryEmbedding": atb.RotaryEmbedding})
        block = atb.GraphOp([atb.Linear(out_features=3 * 128), atb.FlashAttention(num_heads=2, causal=True, rope=rope)])
        block(torch.randn(1, 3, 8))
        assert ("rotary" in str(block.graph)) == bool(rope), form
