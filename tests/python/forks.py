# SPDX-License-Identifier: Apache-2.0
"""Waiting for forked children that may hang."""

from __future__ import annotations

import os
import signal
import time


def wait_for(child: int, patience_s: float = 30) -> int:
    """Exit status of a child; it is killed, and the status is -9, if it hangs."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
