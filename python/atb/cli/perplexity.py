# SPDX-License-Identifier: Apache-2.0
"""`atb perplexity`: how well a model predicts a text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from atb.cli import common
from atb.errors import InvalidArgumentError, NotFoundError
from atb.llm import LLM


@common.command
def run(
    model: common.Model,
    file: Annotated[Path, typer.Option(help="The text, in UTF-8.")],
    window: Annotated[int, typer.Option(help="Tokens scored at once; 0 is the context length.")] = 0,
    precision: common.Precision = "auto",
    device: common.Device = "cpu",
    threads: common.Threads = 0,
    log_level: common.LogLevel = None,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Score a text; lower is better."""
    text = _read_text(file)
    llm = LLM(model, device=device, precision=precision, threads=threads, log_level=log_level)
    log_likelihood, tokens = llm.log_likelihood(text, window or None)
    result = {
        "perplexity": math.exp(-log_likelihood / tokens),
        "log_likelihood": log_likelihood,
        "tokens": tokens,
        "precision": llm.info()["precision"],
    }
    if json:
        common.print_json(result)
    else:
        common.print_line(f"perplexity {result['perplexity']:.4f} over {tokens} tokens ({result['precision']})")


def _read_text(file: Path) -> str:
    """The text of a regular file; a byte order mark is no part of it."""
    if not file.is_file():
        raise NotFoundError(f"[perplexity] {file} is no file; give a text file")
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte {error.object[error.start]:#04x} at {error.start}"
        raise InvalidArgumentError(f"[perplexity] {file} is not UTF-8: {byte}; convert it first") from error
