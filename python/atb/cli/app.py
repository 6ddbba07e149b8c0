# SPDX-License-Identifier: Apache-2.0
"""The Typer application and its global options."""

from __future__ import annotations

from typing import Annotated

import typer

import atb
from atb.cli import bench, doctor, explain, generate, inspect, perplexity
from atb.cli.common import Debug

app = typer.Typer(
    name="atb",
    help="Runs transformer models fast by fusing their operators.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("generate")(generate.run)
app.command("explain")(explain.run)
app.command("bench")(bench.run)
app.command("inspect")(inspect.run)
app.command("perplexity")(perplexity.run)
app.command("doctor")(doctor.run)


def _print_version(value: bool) -> None:
    if value:
        print(f"atb {atb.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Options before the command."""
