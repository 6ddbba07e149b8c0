# SPDX-License-Identifier: Apache-2.0
"""transformers' model under torch.compile, with a static cache. Compiling takes minutes; it is part of loading."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from serve import Clock, serve

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class TorchCompile:
    def load(
        self, model: str, precision: str, threads: int, prompt_tokens: int, new_tokens: int, batch: int
    ) -> dict[str, Any]:
        torch.set_num_threads(threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=DTYPES[precision]).eval()
        self.forward = torch.compile(self.model.forward, dynamic=False)
        self.capacity = prompt_tokens + new_tokens
        start = time.perf_counter()
        self.run([[1] * prompt_tokens] * batch, min(new_tokens, 3))  # the shapes that will be measured
        version = f"torch.compile {torch.__version__}, transformers {transformers.__version__}"
        return {"version": version, "compile_s": time.perf_counter() - start}

    @torch.inference_mode()
    def run(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        ids = torch.tensor(prompts)
        cache = transformers.StaticCache(config=self.model.config, max_cache_len=self.capacity)
        generated: list[torch.Tensor] = []
        clock = Clock()
        position, step = 0, ids
        for _ in range(new_tokens):
            positions = torch.arange(position, position + step.shape[1])
            output = self.forward(
                input_ids=step,
                position_ids=positions.unsqueeze(0),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            position += step.shape[1]
            step = output.logits[:, -1:].argmax(-1)
            generated.append(step)
            clock.token()
        return clock.result(torch.cat(generated, 1).tolist())


if __name__ == "__main__":
    serve(TorchCompile())
