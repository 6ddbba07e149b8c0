# SPDX-License-Identifier: Apache-2.0
"""A report as one self-contained HTML page: no scripts, no files beside it."""

from __future__ import annotations

from html import escape
from typing import Any

from atb.layer_picture import draw
from atb.report import COLUMNS, Report
from atb.table import megabytes

STYLE = """
:root { color-scheme: light dark; --fg: #1c2430; --bg: #fff; --line: #c8d0da; --soft: #f2f5f8; --new: #d9efe0; }
@media (prefers-color-scheme: dark) {
  :root { --fg: #e4e8ee; --bg: #14181e; --line: #414b58; --soft: #1f262f; --new: #1f4630; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); margin: 2rem auto;
  max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { border: 1px solid var(--line); padding: .3rem .7rem; text-align: left; }
th { background: var(--soft); } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.pictures { display: flex; flex-wrap: wrap; gap: 2rem; align-items: flex-start; } figure { margin: 0; }
figcaption { margin-bottom: .5rem; } figure > div { overflow-x: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--fg); } svg .edge { fill: none; stroke: var(--line); }
svg rect { fill: var(--soft); stroke: var(--line); } svg .fused rect { fill: var(--new); }
svg .view rect { fill: none; stroke-dasharray: 3 3; } svg .outside rect { fill: none; stroke: none; }
"""


def page(report: Report) -> str:
    """The whole document."""
    title = escape(report.title or "Fusion report")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"{_pictures(report)}\n<h2>{escape(report.headline())}</h2>\n{_table(COLUMNS, report.rows())}\n"
        f"<h2>What did not match</h2>\n{_misses(report)}\n</body>\n</html>\n"
    )


def _pictures(report: Report) -> str:
    layer = report.sketch["layer"]
    what = "The graph" if layer < 0 else f"Layer {layer}"
    plain = {node["op"] for node in report.sketch["before"]}
    figures = []
    for when in ("before", "after"):
        nodes = report.sketch[when]
        kernels = sum(not node["view"] for node in nodes)
        size = megabytes(sum(node["bytes"] for node in nodes if not node["view"]))
        caption = f"{what} {when}: {kernels} kernels, {size}"
        fused = {node["op"] for node in nodes} - plain
        figures.append(f"<figure><figcaption>{escape(caption)}</figcaption><div>{draw(nodes, fused)}</div></figure>")
    return '<div class="pictures">' + "\n".join(figures) + "</div>"


def _table(columns: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    return (
        f"<table>\n<tr>{head}</tr>\n" + "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows) + "\n</table>"
    )


def _cell(text: str) -> str:
    number = text[:1].isdigit()
    return f'<td class="number">{escape(text)}</td>' if number else f"<td>{escape(text)}</td>"


def _misses(report: Report) -> str:
    misses: list[dict[str, Any]] = report["not_matched"]
    if not misses:
        return "<p>Nothing: every pattern that had something to match, matched.</p>"
    keys = ["pattern", "layer", "node", "constraint", "actual", "expected"]
    return _table(keys, [[str(miss[key]) for key in keys] for miss in misses])
