# SPDX-License-Identifier: Apache-2.0
"""The driver's side of the protocol: a worker process that answers within a limit, or is killed with a reason."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

# Nothing is fetched while measuring, and progress bars stay out of the logs.
QUIET = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
QUIT_LIMIT_S = 10.0
MAX_ANSWER_BYTES = 1 << 26


class PeerError(Exception):
    """Why a peer has no figures: one line, shown in its row of the table."""


class Worker:
    """A worker process. `log` takes what it prints to stderr; the end of it explains a crash."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._pending = b""
        self.started = time.perf_counter()
        with log.open("wb") as stderr:
            try:
                self._process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    bufsize=0,
                    env={**os.environ, **QUIET, **(environment or {})},
                    start_new_session=True,  # so that killing it also ends what it has started
                )
            except OSError as error:
                raise PeerError(f"does not start: {error}") from None

    def ask(self, operation: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
        """One request and its answer. PeerError when the worker reports an error, ends, or does not answer in time."""
        request = json.dumps({"op": operation, **arguments}).encode() + b"\n"
        try:
            self._stdin.write(request)
        except OSError:
            raise PeerError(f"{operation}: {self._death()}") from None
        line = self._read_line(operation, time.monotonic() + limit_s, limit_s)
        try:
            answer = json.loads(line)
        except ValueError:
            self.kill()
            raise PeerError(f"{operation}: answered {line[:60]!r}, which is no JSON") from None
        if not isinstance(answer, dict) or "error" in answer:
            raise PeerError(f"{operation}: {answer['error'] if isinstance(answer, dict) else 'answer is no object'}")
        return answer

    def close(self) -> None:
        """Asks the worker to end; kills it if it does not."""
        if self._process.poll() is None:
            with contextlib.suppress(PeerError, subprocess.TimeoutExpired):
                self.ask("quit", QUIT_LIMIT_S)
                self._process.wait(QUIT_LIMIT_S)
        self.kill()

    def kill(self) -> None:
        """Ends the worker and all that it started, and waits for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _stdin(self) -> Any:
        if self._process.stdin is None or self._process.stdin.closed:
            raise OSError("closed")
        return self._process.stdin

    def _read_line(self, operation: str, deadline: float, limit_s: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self.kill()
                raise PeerError(f"{operation}: no answer within {limit_s:g} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise PeerError(f"{operation}: {self._death()}")
            self._pending += part
            if len(self._pending) > MAX_ANSWER_BYTES:
                self.kill()
                raise PeerError(f"{operation}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
        line, self._pending = self._pending.split(b"\n", 1)
        return line

    def _death(self) -> str:
        """How the process ended, and the last line that it wrote."""
        try:
            status = self._process.wait(QUIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed its output"
        how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
        last = last_line(self._log)
        return f"ended with {how}" + (f": {last}" if last else "")


def last_line(log: Path) -> str:
    """The last line of a log that is not blank, shortened to fit a table."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
