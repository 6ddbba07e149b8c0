# SPDX-License-Identifier: Apache-2.0
"""A layer as an inline SVG picture: nodes in rows below what they read, with wires that go around boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 124, 36  # of a box
WIRE = 12  # width that a wire takes in a row which it passes
GAP_X, GAP_Y = 10, 22
SWEEPS = 4  # orderings of all rows, downwards and upwards in turn

Spot = tuple[str, int]  # a value and a row: the node itself in its own row, its wire in the rows below


class _Layout:
    """Which row each node is in, what each row holds from left to right, and where that is."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        self.level = _levels(nodes)
        self.edges = [(source, node["name"]) for node in nodes for source in node["inputs"]]
        last = dict(self.level)
        for source, target in self.edges:
            last[source] = max(last[source], self.level[target] - 1)
        self.rows: list[list[Spot]] = [[] for _ in range(max(self.level.values(), default=-1) + 1)]
        for name, begin in self.level.items():
            for row in range(begin, last[name] + 1):
                self.rows[row].append((name, row))
        self._order()
        self.width = max((self._extent(row) for row in self.rows), default=0.0) + 2 * GAP_X
        self.height = len(self.rows) * (HEIGHT + GAP_Y) + GAP_Y
        self.x = self._centers()

    def is_node(self, spot: Spot) -> bool:
        return self.level[spot[0]] == spot[1]

    def y(self, row: int) -> float:
        """The top of a row."""
        return GAP_Y + row * (HEIGHT + GAP_Y)

    def _size(self, spot: Spot) -> int:
        return WIDTH if self.is_node(spot) else WIRE

    def _extent(self, row: Sequence[Spot]) -> float:
        return sum(map(self._size, row)) + GAP_X * (len(row) - 1)

    def _centers(self) -> dict[Spot, float]:
        """The middle of each spot; every row is centered as a whole."""
        centers: dict[Spot, float] = {}
        for row in self.rows:
            x = (self.width - self._extent(row)) / 2
            for spot in row:
                centers[spot] = x + self._size(spot) / 2
                x += self._size(spot) + GAP_X
        return centers

    def _order(self) -> None:
        """Sorts each row by the mean place of its neighbours in the row above, then in the row below, and again."""
        above: dict[Spot, list[Spot]] = {spot: [] for row in self.rows for spot in row}
        below: dict[Spot, list[Spot]] = {spot: [] for spot in above}
        for spot in above:
            if not self.is_node(spot):
                above[spot].append((spot[0], spot[1] - 1))
        for source, target in self.edges:
            above[target, self.level[target]].append((source, self.level[target] - 1))
        for spot, sources in above.items():
            for source in sources:
                below[source].append(spot)
        for sweep in range(SWEEPS):
            rows, beside = (self.rows, above) if sweep % 2 == 0 else (self.rows[::-1], below)
            place: dict[Spot, float] = {}
            for row in rows:
                extent, x = self._extent(row), 0.0
                here = {spot: index - len(row) / 2 for index, spot in enumerate(row)}
                row.sort(key=lambda spot: _mean([place[near] for near in beside[spot]], here[spot]))
                for spot in row:
                    place[spot] = x + self._size(spot) / 2 - extent / 2
                    x += self._size(spot) + GAP_X


def _levels(nodes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The row of each node, below all that it reads; what comes from outside stands right above its first reader."""
    inside = {node["name"]: node for node in nodes}
    level: dict[str, int] = {}
    for name, node in inside.items():
        level[name] = 1 + max((level[source] for source in node["inputs"] if source in inside), default=0)
    outside: dict[str, int] = {}
    for name, node in inside.items():
        for source in node["inputs"]:
            if source not in inside:
                outside[source] = min(outside.get(source, level[name] - 1), level[name] - 1)
    first = min([*level.values(), *outside.values()], default=0)
    return {name: row - first for name, row in [*outside.items(), *level.items()]}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def draw(nodes: Sequence[Mapping[str, Any]], fused: set[str], label: str) -> str:
    """SVG of the nodes of a report's sketch, which scales; operators in `fused` stand out. label: read aloud."""
    layout = _Layout(nodes)
    inside = {node["name"]: node for node in nodes}
    wires = "".join(_wire(layout, source, target) for source, target in layout.edges)
    boxes = "".join(_box(layout, name, inside.get(name), fused) for name in layout.level)
    size = f'width="{layout.width:g}" height="{layout.height:g}" viewBox="0 0 {layout.width:g} {layout.height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">{wires}{boxes}</svg>'
    )


def _wire(layout: _Layout, source: str, target: str) -> str:
    """From the bottom of a box down to the top of another, through the places that it has in the rows between."""
    begin, end = layout.level[source], layout.level[target]
    x = layout.x[source, begin]
    path = f"M{x:g} {layout.y(begin) + HEIGHT:g}"
    for row in range(begin + 1, end + 1):
        spot = (target if row == end else source, row)
        top, to = layout.y(row), layout.x[spot]
        middle = top - GAP_Y / 2
        path += f"C{x:g} {middle:g} {to:g} {middle:g} {to:g} {top:g}"
        if row < end:
            path += f"V{top + HEIGHT:g}"
        x = to
    return f'<path class="edge" d="{path}"/>'


def _box(layout: _Layout, name: str, node: Mapping[str, Any] | None, fused: set[str]) -> str:
    row = layout.level[name]
    center, top = layout.x[name, row], layout.y(row)
    if node is None:
        kind, lines = "outside", [(name, HEIGHT - 7, "")]
    else:
        kind = "view" if node["view"] else "fused" if node["op"] in fused else "kernel"
        lines = [(node["op"], 15, ""), (name, 29, ' class="name"')]
    text = "".join(
        f'<text{style} x="{center:g}" y="{top + down:g}" text-anchor="middle">{escape(_short(line))}</text>'
        for line, down, style in lines
    )
    return (
        f'<g class="{kind}"><title>{escape(name)}</title>'
        f'<rect x="{center - WIDTH / 2:g}" y="{top:g}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>{text}</g>'
    )


def _short(text: str, most: int = 18) -> str:
    """The end of a long name says more than its beginning."""
    return text if len(text) <= most else "…" + text[1 - most :]
