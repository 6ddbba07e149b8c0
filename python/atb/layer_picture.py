# SPDX-License-Identifier: Apache-2.0
"""A layer as an inline SVG picture: nodes in rows by how far they are from the layer's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

WIDTH, HEIGHT = 150, 40  # of a box
GAP_X, GAP_Y = 14, 26


class Box(NamedTuple):
    """A node's place."""

    label: str
    note: str
    kind: str  # "kernel", "fused", "view" or "outside"
    x: float
    y: float


def draw(nodes: Sequence[dict[str, Any]], fused: set[str]) -> str:
    """SVG of the nodes of a report's sketch; operators in `fused` stand out."""
    rows = _rows(nodes)
    inside = {node["name"]: node for node in nodes}
    most = max((len(row) for row in rows), default=0)
    width, height = most * (WIDTH + GAP_X) + GAP_X, len(rows) * (HEIGHT + GAP_Y) + GAP_Y
    boxes: dict[str, Box] = {}
    for level, row in enumerate(rows):
        start = (width - len(row) * (WIDTH + GAP_X) + GAP_X) / 2
        for column, name in enumerate(row):
            x, y = start + column * (WIDTH + GAP_X), GAP_Y + level * (HEIGHT + GAP_Y)
            boxes[name] = _box(name, inside.get(name), fused, x, y)
    edges = [_edge(boxes[source], boxes[node["name"]]) for node in nodes for source in node["inputs"]]
    body = "".join(edges) + "".join(map(_svg, boxes.values()))
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img">{body}</svg>'


def _rows(nodes: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Names by level, each below all that it reads, and near the middle of them; what comes from outside is on top."""
    level: dict[str, int] = {}
    for node in nodes:
        for source in node["inputs"]:
            level.setdefault(source, 0)
        level[node["name"]] = 1 + max((level[source] for source in node["inputs"]), default=0)
    rows: list[list[str]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for name, at in level.items():
        rows[at].append(name)
    reads = {node["name"]: node["inputs"] for node in nodes}
    place: dict[str, float] = {}
    for row in rows:
        row.sort(key=lambda name: _mean([place[source] for source in reads.get(name, ())]))
        for index, name in enumerate(row):
            place[name] = index - (len(row) - 1) / 2
    return [row for row in rows if row]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _box(name: str, node: dict[str, Any] | None, fused: set[str], x: float, y: float) -> Box:
    if node is None:
        return Box(name, "", "outside", x, y)
    kind = "view" if node["view"] else "fused" if node["op"] in fused else "kernel"
    return Box(node["op"], name, kind, x, y)


def _edge(source: Box, target: Box) -> str:
    x0, y0, x1, y1 = source.x + WIDTH / 2, source.y + HEIGHT, target.x + WIDTH / 2, target.y
    middle = (y0 + y1) / 2
    return f'<path class="edge" d="M{x0:g} {y0:g}C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}"/>'


def _svg(box: Box) -> str:
    center = box.x + WIDTH / 2
    lines = [(box.label, 17 if box.note else 24)] + ([(box.note, 32)] if box.note else [])
    text = "".join(
        f'<text x="{center:g}" y="{box.y + down:g}" text-anchor="middle">{escape(_short(line))}</text>'
        for line, down in lines
    )
    name = escape(box.note or box.label)
    return (
        f'<g class="{box.kind}"><title>{name}</title>'
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>{text}</g>'
    )


def _short(text: str, most: int = 22) -> str:
    """The end of a long name says more than its beginning."""
    return text if len(text) <= most else "…" + text[1 - most :]
