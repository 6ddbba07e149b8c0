# SPDX-License-Identifier: Apache-2.0
"""What was fused: kernels and bytes a layer after each pattern, and why a pattern did not match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atb.table import WIDTH, megabytes, table_text

COLUMNS = ["after", "layers", "kernels", "bytes", "saved"]


class Report(dict[str, Any]):
    """The object of `atb explain --json`: a dict that prints as a table, and writes itself as a page.

    Keys: layers, tokens, kernels_per_layer, bytes_per_layer and intermediate_bytes_per_layer (before, after; the last
    is what one kernel writes for another, without weights, inputs and outputs), patterns (name, layers_matched,
    kernels_per_layer, bytes_per_layer; cumulative, in the order applied), not_matched (pattern, layer, node,
    constraint, actual, expected), stages (layer, total, side_by_side, drawn: which nodes run side by side).
    """

    def __init__(self, facts: dict[str, Any], title: str = "") -> None:
        """facts: as the native module tells them; title: what the page calls the model."""
        super().__init__(facts)
        self.sketch: dict[str, Any] = self.pop("sketch", {"layer": -1, "before": [], "after": []})
        """The layer in the middle, before and after: nodes with name, op, inputs, bytes, view."""
        self.setdefault("stages", {"layer": -1, "total": 0, "side_by_side": 0, "drawn": []})
        self.title = title

    @classmethod
    def from_json(cls, text: str, title: str = "") -> Report:
        """Reads what the native module writes."""
        return cls(json.loads(text), title)

    def __str__(self) -> str:
        """The table, a line for each miss, and the stages."""
        return self.text()

    def text(self, width: int | None = WIDTH) -> str:
        """The same for a terminal: width None."""
        table = table_text(COLUMNS, self.rows(), width)
        return "\n".join([self.headline(), table, *self.intermediates(), *self.misses(), *self.stages()])

    def headline(self) -> str:
        """What the table is about."""
        return f"Fusion, one layer of {self['layers']}, step of {self['tokens']} tokens (cumulative)"

    def rows(self) -> list[list[str]]:
        """The cells of the table, in the order of COLUMNS."""
        layers, kernels, size = self["layers"], self["kernels_per_layer"], self["bytes_per_layer"]
        rows = [["as written", "", str(kernels["before"]), megabytes(size["before"]), ""]]
        for pattern in self["patterns"]:
            matched = f"{pattern['layers_matched']} of {layers}"
            saved = _saved(size["before"], pattern["bytes_per_layer"])
            size_after = megabytes(pattern["bytes_per_layer"])
            rows.append([pattern["name"], matched, str(pattern["kernels_per_layer"]), size_after, saved])
        saved = _saved(size["before"], size["after"])
        rows.append(["as it runs", "", str(kernels["after"]), megabytes(size["after"]), saved])
        return rows

    def intermediates(self) -> list[str]:
        """A line about what kernels write for each other."""
        size = self.get("intermediate_bytes_per_layer")
        if size is None:
            return []
        return [f"intermediate results: {megabytes(size['before'])} before, {megabytes(size['after'])} after"]

    def misses(self) -> list[str]:
        """Why patterns did not match, in the form of the log."""
        return [
            f"{miss['pattern']} not matched at layer {miss['layer']}: {miss['node']}: {miss['constraint']},"
            f" found {miss['actual']}, needs {miss['expected']}"
            for miss in self["not_matched"]
        ]

    def stages_headline(self) -> str:
        """What the stages are of."""
        stages = self["stages"]
        what = "the graph" if stages["layer"] < 0 else f"layer {stages['layer']}"
        return (
            f"Stages of {what}, in the order they run ({stages['total']} in all, {stages['side_by_side']} with several"
            " nodes side by side)"
        )

    def stages(self, most: int = 60) -> list[str]:
        """A line for each stage of the layer, with the nodes that run side by side in it."""
        drawn = self["stages"]["drawn"]
        lines = [
            f"{stage['stage']:>4}  " + "  |  ".join(f"{node['op']} {node['name']}" for node in stage["nodes"])
            for stage in drawn[:most]
        ]
        more = [f"      and {len(drawn) - most} more"] if len(drawn) > most else []
        return [self.stages_headline() + ":", *lines, *more] if drawn else []

    def html(self, path: str | Path) -> None:
        """Writes one page that needs nothing else: a layer before and after as a picture, the table, the misses."""
        from atb.report_html import page

        Path(path).write_text(page(self), encoding="utf-8")


def _saved(before: float, after: float) -> str:
    return f"{100 * (1 - after / before):.0f} %" if before else ""
