# SPDX-License-Identifier: Apache-2.0
"""The worker's side of the protocol: one JSON object a line on stdin, one answer a line on stdout.

Runs inside each peer's own environment, so it needs nothing but Python. Requests:

    {"op": "load", "model": path, "precision": "f32", "threads": 2, "prompt_tokens": 512, "new_tokens": 64, "batch": 1}
    {"op": "run", "prompts": [[ids]], "new_tokens": 64}
        -> {"prefill_s": seconds to the first new token, "decode_s": seconds for the others, "ids": [[new ids]]}
    {"op": "quit"}

Every answer also holds "peak_rss_mb". An exception becomes {"error": "Type: text"}.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any

OPERATIONS = ("load", "run", "roofline")


class Clock:
    """When the first and the last token of a run came; call `token()` whenever one has come."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.first = self.last = 0.0

    def token(self) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last

    def result(self, ids: list[list[int]]) -> dict[str, Any]:
        return {"prefill_s": self.first - self.start, "decode_s": self.last - self.first, "ids": ids}


def peak_rss_mb() -> float:
    """Most memory that this process has had in use, in 10^6 bytes."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def serve(adapter: Any) -> None:
    """Answers requests with the adapter's methods until "quit" or the end of stdin."""
    # Libraries print; what they print goes to the log, not between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        operation = request.pop("op")
        if operation == "quit":
            answer: dict[str, Any] = {}
        elif operation in OPERATIONS:
            answer = _answer(getattr(adapter, operation), request)
        else:
            answer = {"error": f"unknown operation {operation!r}; known are quit, {', '.join(OPERATIONS)}"}
        print(json.dumps({**answer, "peak_rss_mb": peak_rss_mb()}), file=answers)
        if operation == "quit":
            return


def _answer(method: Any, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(method(**request))
    except Exception as error:  # whatever a peer raises is a row of the table, not the end of the run
        traceback.print_exc()
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
