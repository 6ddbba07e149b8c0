# SPDX-License-Identifier: Apache-2.0
"""Why an operator or a module is not taken."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """PyTorch logs a call that fails on tensors without data, with a trace of its own, before it raises. Here the error
    is caught and tells the reason, so that this thread's log of it is left out.
    """
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    thread = threading.get_ident()

    def others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)
