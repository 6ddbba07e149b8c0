# SPDX-License-Identifier: Apache-2.0
"""No source file is longer than 600 lines, unless it is listed here with a reason."""

from __future__ import annotations

from collections.abc import Iterator

from house.files import main

LIMIT = 600
SUFFIXES = (".h", ".cc", ".py", ".cmake", ".sh")
# path -> reason. An entry that is no longer needed is reported too.
LONG: dict[str, str] = {}


def check(name: str, lines: list[str]) -> Iterator[str]:
    if name.endswith(SUFFIXES) and len(lines) > LIMIT and name not in LONG:
        yield f"{name}: {len(lines)} lines, {LIMIT} allowed; split it, or list it with a reason in this check"
    if name in LONG and len(lines) <= LIMIT:
        yield f"{name}: {len(lines)} lines: take it off the list in tests/check_length.py"


if __name__ == "__main__":
    main(check)
