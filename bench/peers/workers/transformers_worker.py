# SPDX-License-Identifier: Apache-2.0
"""transformers `generate`, greedy; attention is sdpa or eager (first argument)."""

from __future__ import annotations

import sys
from typing import Any

import torch
import transformers
from serve import Clock, serve

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class TokenClock(Clock):
    """As a streamer of `generate`: it is given the prompt first, then each step's tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_prompt = False

    def put(self, ids: torch.Tensor) -> None:
        if self.skipped_prompt:
            self.token()
        self.skipped_prompt = True

    def end(self) -> None:
        pass


class Transformers:
    def __init__(self, attention: str) -> None:
        self.attention = attention

    def load(
        self, model: str, precision: str, threads: int, prompt_tokens: int, new_tokens: int, batch: int
    ) -> dict[str, Any]:
        torch.set_num_threads(threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            model, dtype=DTYPES[precision], attn_implementation=self.attention
        ).eval()
        return {"version": f"transformers {transformers.__version__}, torch {torch.__version__}"}

    @torch.inference_mode()
    def run(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        ids = torch.tensor(prompts)
        clock = TokenClock()
        output = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            streamer=clock,
        )
        return clock.result(output[:, ids.shape[1] :].tolist())


if __name__ == "__main__":
    serve(Transformers(sys.argv[1]))
