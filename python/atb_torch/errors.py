# SPDX-License-Identifier: Apache-2.0
"""Why an operator or a module is not taken."""

from __future__ import annotations

from typing import NoReturn

from atb.errors import UnsupportedError


class Refused(Exception):
    """A lowering says why it cannot express a call; the importer collects these and names the module."""


class Unequal(Exception):
    """Two sizes, or a size and a number, that an operator needs to be equal though export did not ask for it."""

    def __init__(self, size: str, other: int | str) -> None:
        super().__init__(f"{size} must equal {other}")
        self.size = size
        self.other = other


def unsupported(what: str) -> NoReturn:
    """Raises `atb.UnsupportedError` in the one form of messages of this package."""
    raise UnsupportedError(f"[atb_torch] {what}")
