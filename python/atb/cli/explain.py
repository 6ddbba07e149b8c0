# SPDX-License-Identifier: Apache-2.0
"""`atb explain`: kernels and bytes a layer, before and after each fusion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atb import _core
from atb.cli import common
from atb.report import Report


@common.command
def run(
    model: Annotated[str | None, typer.Argument(help="A model directory, a .gguf file, or a cached hub name.")] = None,
    config: Annotated[str | None, typer.Option(help="A config.json in place of a model; no weights needed.")] = None,
    tokens: Annotated[
        int, typer.Option(max=common.INT32_MAX, help="Tokens of the step that bytes are counted for.")
    ] = 512,
    dtype: Annotated[str, typer.Option(help="Type that bytes are counted in: auto, f32, f16 or bf16.")] = "auto",
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML page to this file.")] = None,
    log_level: common.LogLevel = None,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Show what is fused, and why a pattern did not match."""
    if (model is None) == (config is None):
        raise typer.BadParameter("give either MODEL or --config FILE")
    if log_level is not None:
        _core.set_log_level(log_level)
    path = config if config is not None else _core.resolve_model_path(str(model))
    report = Report.from_json(_core.explain_json(path, tokens, dtype), title=f"Fusion of {Path(path).name or path}")
    if html is not None:
        report.html(html)
    if json:
        common.print_json(report)
    elif html is not None:
        common.print_line(f"{html}: {report.headline()}")
    else:
        common.print_line(report.text(common.table_width()))
