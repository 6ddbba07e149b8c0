# SPDX-License-Identifier: Apache-2.0
"""Tables as text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

WIDTH = 140  # columns, where it does not go to a terminal


def table_text(columns: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None = WIDTH) -> str:
    """A table; columns of numbers are right-aligned. width: most columns, None for the terminal's."""
    from rich.console import Console
    from rich.table import Table

    cells = [[str(cell) for cell in row] for row in rows]
    table = Table()
    for i, name in enumerate(columns):
        numbers = all(row[i][:1].isdigit() or not row[i] for row in cells)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    out = io.StringIO()
    Console(markup=False, highlight=False, width=width or Console().width, file=out).print(table)
    return out.getvalue().rstrip("\n")


def megabytes(count: float) -> str:
    """Bytes as decimal megabytes."""
    return f"{count / 1e6:,.1f} MB"
