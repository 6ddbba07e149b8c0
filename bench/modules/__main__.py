# SPDX-License-Identifier: Apache-2.0
"""`.venv/bin/python -m bench.modules`: `forward` and `generate` of modules, eager and compiled by ATB, in one process.

Needs torch and transformers. Weights are random: speed does not depend on them, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import atb_torch
import torch
import transformers

from bench.peers.machine import machine_facts

# Sizes of small released decoders (SmolLM2-135M, GPT-2, Qwen2.5-0.5B with half of its layers).
MODELS: dict[str, Callable[[], Any]] = {
    "llama 135M": lambda: transformers.LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
    "gpt2 124M": lambda: transformers.GPT2Config(),
    "qwen2 250M": lambda: transformers.Qwen2Config(
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=12,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=64000,
        tie_word_embeddings=True,
    ),
}
FORWARDS = [(1, 1), (1, 128), (1, 512), (8, 64)]  # batch, tokens
GENERATES = [(1, 128, 32), (4, 64, 32)]  # batch, prompt, new tokens


def best_in_turns(rounds: int, ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """The fastest of each in seconds, after one call of each that warms up."""
    ours(), theirs()
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, run in enumerate((ours, theirs)):
            start = time.perf_counter()
            run()
            best[index] = min(best[index], time.perf_counter() - start)
    return best[0], best[1]


def row(model: str, what: str, tokens: int, times: tuple[float, float]) -> str:
    """A line of the table: tokens/s of both and the ratio."""
    ours, theirs = times
    return f"| {model} | {what} | {tokens / ours:,.0f} | {tokens / theirs:,.0f} | {theirs / ours:.2f}x |"


class Pair:
    """A module, eager and compiled."""

    def __init__(self, name: str, dtype: torch.dtype, threads: int) -> None:
        """With random weights, in evaluation mode."""
        torch.manual_seed(0)
        config = MODELS[name]()
        self.model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(dtype).eval()
        self.fast = atb_torch.compile(self.model, threads=threads)

    def forward(self, rounds: int, ids: torch.Tensor) -> tuple[float, float]:
        """Seconds of one call, without a cache on either side."""
        return best_in_turns(rounds, lambda: self.fast(ids), lambda: self.model(ids, use_cache=False))

    def generate(self, rounds: int, ids: torch.Tensor, new: int) -> tuple[float, float]:
        """Seconds of greedy generation, with a cache on both."""
        return best_in_turns(
            rounds,
            lambda: self.fast.generate(ids, max_new_tokens=new, temperature=0.0, eos_token_id=[]),
            lambda: self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=new,
                min_new_tokens=new,
                pad_token_id=0,
            ),
        )


def compare(name: str, dtype: torch.dtype, rounds: int, threads: int) -> None:
    """Prints the lines of one model in one dtype."""
    pair = Pair(name, dtype, threads)
    label = f"{name}, {str(dtype).removeprefix('torch.')}"
    for batch, length in FORWARDS:
        times = pair.forward(rounds, torch.randint(5, 1000, (batch, length)))
        print(row(label, f"forward [{batch}, {length}]", batch * length, times), flush=True)
    for batch, prompt, new in GENERATES:
        times = pair.generate(rounds, torch.randint(5, 1000, (batch, prompt)), new)
        print(row(label, f"generate [{batch}, {prompt}] + {new}", batch * new, times), flush=True)


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--dtypes", nargs="*", default=["float32"], choices=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    versions = [f"torch {torch.__version__}", f"transformers {transformers.__version__}"]
    print("\n".join(f"{k}: {v}" for k, v in machine_facts(torch.get_num_threads(), options.rounds, versions).items()))
    print("\n| model | call | ATB tokens/s | eager tokens/s | ATB is |\n| --- | --- | ---: | ---: | ---: |")
    with torch.no_grad():
        for name in options.models:
            for dtype in options.dtypes:
                compare(name, getattr(torch, dtype), options.rounds, options.threads)


if __name__ == "__main__":
    main()
