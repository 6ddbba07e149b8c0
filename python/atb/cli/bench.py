# SPDX-License-Identifier: Apache-2.0
"""`atb bench`: how fast a model runs, against what the machine could do at most."""

from __future__ import annotations

import json as json_module
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from atb import _core
from atb.cli import common
from atb.cli.profile import print_profile
from atb.errors import InvalidArgumentError
from atb.generation import SamplingOptions, give_back, submit
from atb.llm import LLM
from atb.output import rate

_MOST_THREADS = 1024  # of a thread team
_BLOCK_SLACK = 128  # tokens: a sequence takes whole KV blocks


@common.command
def run(
    model: common.Model,
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of each prompt.")] = 512,
    new_tokens: Annotated[int, typer.Option(help="Tokens to generate for each prompt.")] = 64,
    batch: Annotated[int, typer.Option(help="Prompts at once.")] = 1,
    rounds: Annotated[int, typer.Option(help="Repetitions; the best one counts.")] = 3,
    profile: Annotated[bool, typer.Option("--profile", help="Show where the time of one more round goes.")] = False,
    profile_nodes: Annotated[
        bool, typer.Option("--profile-nodes", help="The same, with a row for every node of every layer.")
    ] = False,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome/Perfetto trace of one more round.")] = None,
    precision: common.Precision = "auto",
    device: common.Device = "cpu",
    threads: Annotated[int, typer.Option(help="Worker threads; 0 takes what this process may use.")] = 0,
    prefill_chunk: Annotated[int, typer.Option(help="Prompt tokens a step; 0 lets the engine choose.")] = 0,
    log_level: common.LogLevel = None,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Measure prefill and decode on random prompts."""
    _check_range("--prompt-tokens", prompt_tokens, 1)
    _check_range("--new-tokens", new_tokens, 2)
    _check_range("--batch", batch, 1)
    _check_range("--rounds", rounds, 1)
    _check_range("--threads", threads, 0, _MOST_THREADS)
    _check_range("--prefill-chunk", prefill_chunk, 0)
    context = prompt_tokens + new_tokens
    llm = LLM(
        model,
        device=device,
        precision=precision,
        threads=threads,
        prefill_chunk=prefill_chunk,
        log_level=log_level,
        kv_tokens=batch * (context + _BLOCK_SLACK),
    )
    chance = random.Random(0)
    measured = [_round(llm, _prompts(llm, chance, batch, prompt_tokens), new_tokens) for _ in range(rounds)]
    profiled: dict[str, Any] | None = None
    if trace is not None or profile or profile_nodes:
        llm.start_trace()
        _round(llm, _prompts(llm, chance, batch, prompt_tokens), new_tokens)
        if profile or profile_nodes:
            profiled = json_module.loads(_core.profile_json(llm.engine, profile_nodes))
        llm.write_trace(os.devnull if trace is None else trace)
    prefill, decode = max(r.prefill for r in measured), max(r.decode for r in measured)
    info = llm.info()
    peak_rss_mb = _core.peak_rss_mb()  # before the roofline program takes memory of its own
    limits = _core.roofline(threads, _bytes_per_token(info, context, batch) * batch)
    result = {
        "prefill_tokens_per_s": prefill,
        "decode_tokens_per_s": decode,
        "limits": limits,
        "share": _share(info, limits, prefill, decode, prompt_tokens + new_tokens // 2, batch),
        "peak_rss_mb": peak_rss_mb,
        "prompt_tokens": prompt_tokens,
        "new_tokens": new_tokens,
        "batch": batch,
        "precision": info["precision"],
        "target": info["target"],
    }
    if profiled is not None:
        result["profile"] = profiled
    if json:
        common.print_json(result)
    else:
        _print(result)
        if profiled is not None:
            print_profile(profiled)


def _check_range(option: str, value: int, least: int, most: int = common.INT32_MAX) -> None:
    if not least <= value <= most:
        raise InvalidArgumentError(f"[bench] {option}: {value}; allowed are {least} to {most}")


@dataclass(frozen=True)
class _Speed:
    prefill: float  # prompt tokens a second, all prompts together
    decode: float  # generated tokens a second after every prompt has its first one


def _prompts(llm: LLM, chance: random.Random, batch: int, length: int) -> list[list[int]]:
    """Fresh random prompts, so that nothing can be reused from an earlier round."""
    vocab = llm.info()["vocab"]
    return [[chance.randrange(vocab) for _ in range(length)] for _ in range(batch)]


def _round(llm: LLM, prompts: list[list[int]], new_tokens: int) -> _Speed:
    """Times a batch from outside: prefill ends when the last prompt has its first token."""
    engine, sampling = llm.engine, SamplingOptions(max_new_tokens=new_tokens, ignore_eos=True)
    requests: list[int] = []
    counts = [0] * len(prompts)
    prefill_s, in_prefill = 0.0, 0
    start = time.perf_counter()
    try:
        for ids in prompts:
            requests.append(submit(engine, ids, sampling))
        while min(counts) < new_tokens:
            for i, request in enumerate(requests):
                if counts[i] < new_tokens:
                    counts[i] += len(engine.next(request)[0])
            if not prefill_s and all(counts):
                prefill_s, in_prefill = time.perf_counter() - start, sum(counts)
        decode_s = time.perf_counter() - start - prefill_s
    finally:
        give_back(engine, requests)
    prompt_tokens = sum(map(len, prompts))
    return _Speed(rate(prompt_tokens, prefill_s), rate(sum(counts) - in_prefill, decode_s))


def _bytes_per_token(info: dict[str, Any], context: int, batch: int) -> int:
    """Bytes that decoding one token must read: its share of the weights, and its own keys and values."""
    return int(info["weight_bytes_per_token"] / batch + info["kv_bytes_per_token"] * context)


def _share(
    info: dict[str, Any], limits: dict[str, float], prefill: float, decode: float, context: int, batch: int
) -> dict[str, float]:
    """Measured speed over the limit: arithmetic for prefill, memory for decode."""
    prefill_limit = limits["f32_gflop_s"] * 1e9 / info["flops_per_token"]
    decode_limit = limits["read_gb_s"] * 1e9 / _bytes_per_token(info, context, batch)
    return {"prefill": prefill / prefill_limit, "decode": decode / decode_limit}


def _print(result: dict[str, Any]) -> None:
    limits, share = result["limits"], result["share"]
    rows = [
        ("prefill", result["prefill_tokens_per_s"], share["prefill"], f"{limits['f32_gflop_s']:,.1f} GFLOP/s"),
        ("decode", result["decode_tokens_per_s"], share["decode"], f"{limits['read_gb_s']:,.1f} GB/s"),
    ]
    shape = f"{result['batch']} x ({result['prompt_tokens']} + {result['new_tokens']})"
    title = f"{shape} tokens, {result['precision']}, {result['target']}"
    columns = ["phase", "tokens/s", "of the limit", "limit"]
    common.print_table(title, columns, [(name, f"{speed:,.1f}", f"{part:.0%}", top) for name, speed, part, top in rows])
    common.print_line(f"peak memory {result['peak_rss_mb']:,.0f} MB")
