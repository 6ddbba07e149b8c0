# SPDX-License-Identifier: Apache-2.0
"""`profiled`: what happens inside calls of compiled graphs: launches, nodes, and where the time goes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

from atb.table import WIDTH, table_text

_COLUMNS = ["node", "operator", "code", "us", "share"]
_recording = threading.local()


class Profile(dict[str, Any]):
    """One entry into the engine: a dict that prints as a table.

    Keys: launches (of the workers: one, and one more behind each kernel in Python), nodes (name, op, variant, total_ms,
    share, ...; in the order they ran), tokens (rows of the first output), total_ms, waits, wakeups, elsewhere: as
    `atb bench --profile` prints them, see docs/cli.md. A profile costs a few percent itself.
    """

    def __init__(self, facts: dict[str, Any], title: str = "") -> None:
        """facts: as the native module tells them; title: what the table calls the graph."""
        super().__init__(facts)
        self.title = title

    @classmethod
    def from_json(cls, text: str, title: str = "") -> Profile:
        """Reads what the native module writes of one call."""
        facts = json.loads(text)
        return cls({**facts["call"], "dropped_events": facts["dropped_events"]}, title)

    def __str__(self) -> str:
        """The table, in the order of the nodes."""
        rows = [
            [node["name"], node["op"], node["variant"], f"{1000 * node['total_ms']:.1f}", f"{node['share']:.1%}"]
            for node in self["nodes"]
        ]
        launches = self["launches"]
        head = (
            f"{self.title}: {launches} launch{'' if launches == 1 else 'es'}, {len(rows)} nodes, "
            f"{1000 * self['total_ms']:.1f} us"
        )
        return f"{head}\n{table_text(_COLUMNS, rows, WIDTH)}"


@contextlib.contextmanager
def profiled() -> Iterator[list[Profile]]:
    """A list that gets a `Profile` for each entry into the engine that this thread makes meanwhile.

    Entries are calls of compiled graphs, declared blocks and compiled modules; `generate` has `atb bench --profile`.
    """
    before = recorder()
    entries: list[Profile] = []
    _recording.entries = entries
    try:
        yield entries
    finally:
        _recording.entries = before


def recorder() -> list[Profile] | None:
    """Where this thread's entries are noted; None while nobody asks."""
    entries: list[Profile] | None = getattr(_recording, "entries", None)
    return entries
