# SPDX-License-Identifier: Apache-2.0
"""A report as one self-contained HTML page: no scripts, no files beside it."""

from __future__ import annotations

from html import escape
from typing import Any

from atb.layer_picture import draw
from atb.report import COLUMNS, Report
from atb.table import megabytes

STYLE = """
:root { color-scheme: light dark; --fg: #1c2430; --dim: #5b6675; --bg: #fff; --line: #b9c3cf; --wire: #8794a5;
  --soft: #f2f5f8; --new: #d9efe0; }
@media (prefers-color-scheme: dark) {
  :root { --fg: #e4e8ee; --dim: #9aa6b5; --bg: #14181e; --line: #414b58; --wire: #6b7889; --soft: #1f262f;
    --new: #1f4630; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); margin: 2rem auto;
  max-width: 96rem; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; } th, td { border: 1px solid var(--line); padding: .3rem .7rem; text-align: left; }
th { background: var(--soft); } .number { text-align: right; font-variant-numeric: tabular-nums; }
.pictures { display: flex; gap: 2.5rem; align-items: flex-start; } figure { margin: 0; min-width: 0; }
figcaption { margin-bottom: .5rem; font-weight: 600; }
@media (max-width: 60rem) { .pictures { flex-direction: column; } }
.legend { color: var(--dim); } .legend span { border: 1px solid var(--line); border-radius: 4px; padding: .1rem .5rem;
  color: var(--fg); } .legend .kernel { background: var(--soft); } .legend .fused { background: var(--new); }
.legend .view { border-style: dashed; }
svg { max-width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--fg); }
svg .name, svg .outside text { font-size: 11px; fill: var(--dim); } svg .edge { fill: none; stroke: var(--wire); }
svg rect { fill: var(--soft); stroke: var(--line); } svg .fused rect { fill: var(--new); }
.stages td { padding: .2rem .4rem; } .stages .beside .node { background: var(--new); }
.stages .node { display: inline-block; background: var(--soft); border: 1px solid var(--line); border-radius: 5px;
  margin: .1rem .3rem; padding: 0 .5rem; }
svg .view rect { fill: none; stroke-dasharray: 3 3; } svg .outside rect { fill: none; stroke: none; }
@media print { body { max-width: none; margin: 0; } }
"""

LEGEND = (
    '<p class="legend"><span class="kernel">operator</span> runs as one kernel; <span class="fused">operator</span> '
    'was made by fusing; <span class="view">operator</span> only renames memory and runs nothing. Names without a box '
    "come from outside.</p>"
)


def page(report: Report) -> str:
    """The whole document."""
    title = escape(report.title or "Fusion report")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<h2>{escape(report.headline())}</h2>\n{_table(COLUMNS, report.rows())}\n"
        f"{_stages(report)}\n<h2>What did not match</h2>\n{_misses(report)}\n"
        f"<h2>{escape(_what(report))}, before and after</h2>\n{LEGEND}\n{_pictures(report)}\n</body>\n</html>\n"
    )


def _what(report: Report) -> str:
    layer = report.sketch["layer"]
    return "The graph" if layer < 0 else f"Layer {layer}"


def _pictures(report: Report) -> str:
    plain = {node["op"] for node in report.sketch["before"]}
    figures = []
    for when in ("before", "after"):
        nodes = report.sketch[when]
        kernels = sum(not node["view"] for node in nodes)
        size = megabytes(sum(node["bytes"] for node in nodes if not node["view"]))
        caption = f"{when.capitalize()}: {kernels} kernel{'' if kernels == 1 else 's'}, {size}"
        fused = {node["op"] for node in nodes} - plain
        picture = draw(nodes, fused, f"{_what(report)} {when}")
        figures.append(f"<figure><figcaption>{escape(caption)}</figcaption>{picture}</figure>")
    return '<div class="pictures">' + "\n".join(figures) + "</div>"


def _stages(report: Report) -> str:
    """A row for each stage; nodes that run side by side stand beside each other."""
    rows = []
    for stage in report["stages"]["drawn"]:
        nodes = "".join(
            f'<span class="node" title="{escape(node["name"])}">{escape(node["op"])}</span>' for node in stage["nodes"]
        )
        kind = ' class="beside"' if len(stage["nodes"]) > 1 else ""
        rows.append(f'<tr{kind}><td class="number">{stage["stage"]}</td><td>{nodes}</td></tr>')
    if not rows:
        return ""
    return f'<h2>{escape(report.stages_headline())}</h2>\n<table class="stages">\n' + "\n".join(rows) + "\n</table>"


def _table(columns: list[str], rows: list[list[str]]) -> str:
    """Columns of numbers are right-aligned, their heads too."""
    numbers = [all(row[i][:1].isdigit() or not row[i] for row in rows) for i in range(len(columns))]
    head = _row("th", columns, numbers)
    body = "\n".join(_row("td", row, numbers) for row in rows)
    return f'<div class="wide"><table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _row(tag: str, cells: list[str], numbers: list[bool]) -> str:
    styles = [' class="number"' if number else "" for number in numbers]
    return (
        "<tr>"
        + "".join(f"<{tag}{style}>{escape(cell)}</{tag}>" for cell, style in zip(cells, styles, strict=True))
        + "</tr>"
    )


def _misses(report: Report) -> str:
    misses: list[dict[str, Any]] = report["not_matched"]
    if not misses:
        return "<p>Nothing: every pattern that had something to match, matched.</p>"
    heads = ["pattern", "layers", "node", "constraint", "found", "needs"]
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for miss in misses:
        key = tuple(str(miss[name]) for name in ("pattern", "constraint", "actual", "expected"))
        alike.setdefault(key, []).append(miss)
    rows = []
    for (pattern, *why), group in alike.items():
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        rows.append([pattern, _ranges({miss["layer"] for miss in group}), group[0]["node"] + more, *why])
    return _table(heads, rows)


def _ranges(layers: set[int]) -> str:
    """ "0, 2-5": runs of numbers by their ends; -1 is what belongs to no layer."""
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][1] + 1 and runs[-1][0] >= 0:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(
        "none" if first < 0 else str(first) if first == last else f"{first}-{last}" for first, last in runs
    )
