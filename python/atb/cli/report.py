# SPDX-License-Identifier: Apache-2.0
"""Prints what was fused: kernels and bytes a layer after each pattern, and why a pattern did not match."""

from __future__ import annotations

from typing import Any

from atb.cli.common import megabytes, print_line, print_table


def print_report(report: dict[str, Any]) -> None:
    """The object of `atb explain --json` as tables."""
    layers, tokens = report["layers"], report["tokens"]
    kernels, size = report["kernels_per_layer"], report["bytes_per_layer"]
    rows = [["as written", "", kernels["before"], megabytes(size["before"]), ""]]
    for pattern in report["patterns"]:
        matched = f"{pattern['layers_matched']} of {layers}"
        saved = _saved(size["before"], pattern["bytes_per_layer"])
        row = [pattern["name"], matched, pattern["kernels_per_layer"], megabytes(pattern["bytes_per_layer"]), saved]
        rows.append(row)
    rows.append(["as it runs", "", kernels["after"], megabytes(size["after"]), _saved(size["before"], size["after"])])
    title = f"Fusion, one layer of {layers}, step of {tokens} tokens (cumulative)"
    print_table(title, ["after", "layers", "kernels", "bytes", "saved"], rows)
    for miss in report["not_matched"]:
        print_line(
            f"{miss['pattern']} not matched at layer {miss['layer']}: {miss['node']}: {miss['constraint']} is"
            f" {miss['actual']}, expected {miss['expected']}"
        )


def _saved(before: float, after: float) -> str:
    return f"{100 * (1 - after / before):.0f} %" if before else ""
