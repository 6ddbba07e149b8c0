# SPDX-License-Identifier: Apache-2.0
"""`atb generate`: text from a model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from atb.cli import common
from atb.llm import LLM
from atb.output import GenerationOutput


@common.command
def run(
    model: common.Model,
    prompt: Annotated[list[str], typer.Option(help="Text to continue; several make one batch.")],
    max_new_tokens: Annotated[int, typer.Option(help="Most tokens to generate.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Keep the k most likely tokens; 0 keeps all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Keep the most likely tokens that make up this probability.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    stop_token_id: Annotated[
        list[int] | None, typer.Option(help="Token that ends the text, in place of the model's own; repeatable.")
    ] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Do not stop at end tokens.")] = False,
    chat: Annotated[bool, typer.Option("--chat", help="Put each prompt into the model's chat template.")] = False,
    precision: common.Precision = "auto",
    device: common.Device = "cpu",
    threads: common.Threads = 0,
    prefill_chunk: common.PrefillChunk = 0,
    context: common.Context = 0,
    report: Annotated[bool, typer.Option("--report", help="Also print what was fused, and the speed.")] = False,
    log_level: common.LogLevel = None,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Continue one or several prompts."""
    llm = LLM(
        model,
        device=device,
        precision=precision,
        threads=threads,
        prefill_chunk=prefill_chunk,
        context=context,
        log_level=log_level,
    )
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "stop_token_ids": stop_token_id or None,
        "ignore_eos": ignore_eos,
    }
    texts = [llm.chat_prompt([{"role": "user", "content": text}]) for text in prompt] if chat else prompt
    if json:
        objects = [output.to_dict() for output in llm.generate(texts, **options)]
        common.print_json(objects[0] if len(objects) == 1 else objects)
        return
    outputs = _print_texts(llm, texts, options, echo=report)
    if report:
        common.print_line(llm.report().text(common.table_width()))
        _print_speed(outputs)


def _print_texts(llm: LLM, texts: list[str], options: dict[str, Any], echo: bool) -> list[GenerationOutput]:
    """One prompt is streamed; several run as a batch and are printed when all are done."""
    if len(texts) > 1:
        outputs = llm.generate(texts, **options)
        for text, output in zip(texts, outputs, strict=True):
            common.print_line((text if echo else "") + output.text)
        return outputs
    pieces = llm.stream(texts[0], **options)
    for i, piece in enumerate(pieces):
        common.print_piece((texts[0] if echo and i == 0 else "") + piece)
    common.print_line("")
    return [pieces.output]


def _print_speed(outputs: list[GenerationOutput]) -> None:
    for output in outputs:
        timing = output.timing
        common.print_line(
            f"load {timing.load_s:.2f} s, prefill {len(output.prompt_token_ids)} tokens at"
            f" {timing.prefill_tokens_per_s:,.1f} tokens/s, decode {len(output.token_ids)} tokens at"
            f" {timing.decode_tokens_per_s:,.1f} tokens/s, peak memory {timing.peak_rss_mb:,.0f} MB"
        )
