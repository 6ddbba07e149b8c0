# SPDX-License-Identifier: Apache-2.0
"""What the commands share: options, one-line errors, JSON and tables."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ParamSpec

import typer

from atb.errors import Error
from atb.table import WIDTH, table_text

P = ParamSpec("P")

INT32_MAX = 2**31 - 1
_debug = False  # set by --debug, wherever it stands on the command line


def _set_debug(value: bool) -> None:
    global _debug
    _debug = _debug or value


Model = Annotated[str, typer.Argument(help="A Hugging Face directory, a .gguf file, or a cached hub name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", callback=_set_debug, is_eager=True, help="Show the trace of an error.")]
Precision = Annotated[str, typer.Option(help="exact, fast, or auto: fast for quantized weights, else exact.")]
Device = Annotated[str, typer.Option(help="Where to run.")]
Threads = Annotated[int, typer.Option(max=INT32_MAX, help="Worker threads; 0 takes what this process may use.")]
PrefillChunk = Annotated[int, typer.Option(max=INT32_MAX, help="Prompt tokens a step; 0 lets the engine choose.")]
Context = Annotated[int, typer.Option(max=INT32_MAX, help="Most tokens of a sequence; 0 is the model's own limit.")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning, error or off.")]


def command(body: Callable[P, None]) -> Callable[P, None]:
    """Makes errors of a command one line on stderr and exit status 1 (130 when interrupted)."""

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            body(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader has seen enough; nothing more can be written at exit either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except (Error, OSError, MemoryError, UnicodeError, OverflowError) as error:
            if _debug:
                raise
            print(f"error: {_one_line(error)}", file=sys.stderr)
            raise typer.Exit(1) from None

    return run


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, Error):
        return text
    if isinstance(error, MemoryError):
        return f"[memory] {text or 'out of memory'}; use a smaller --context or model"
    return f"[files] {text}"


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table on stdout under its title; columns of numbers are right-aligned."""
    print_line(title)
    print_line(table_text(columns, rows, table_width()))


def table_width() -> int | None:
    """Columns of a table on stdout: None for a terminal's own; a pipe has none, and 80 would break words."""
    return None if sys.stdout.isatty() else WIDTH


def print_line(text: str) -> None:
    """Text on stdout, at once. What a terminal cannot show is replaced, not an error."""
    sys.stdout.write(_shown(text) + "\n")
    sys.stdout.flush()


def print_piece(text: str) -> None:
    """A piece of streamed text, at once."""
    sys.stdout.write(_shown(text))
    sys.stdout.flush()


def _shown(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, errors="replace").decode(encoding)
