# SPDX-License-Identifier: Apache-2.0
"""CTranslate2 `generate_batch`, greedy, on the converted Hugging Face directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ctranslate2
from serve import Clock, serve


class CTranslate2:
    def load(
        self, model: str, precision: str, threads: int, prompt_tokens: int, new_tokens: int, batch: int
    ) -> dict[str, Any]:
        self.generator = ctranslate2.Generator(model, device="cpu", intra_threads=threads, inter_threads=1)
        self.tokens: list[str] = json.loads((Path(model) / "vocabulary.json").read_text(encoding="utf-8"))
        return {"version": f"ctranslate2 {ctranslate2.__version__}"}

    def run(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        words = [[self.tokens[i] for i in prompt] for prompt in prompts]
        clock = Clock()

        def on_token(step: Any) -> bool:
            clock.token()
            return False  # go on

        results = self.generator.generate_batch(
            words,
            min_length=new_tokens,
            max_length=new_tokens,
            sampling_topk=1,
            beam_size=1,
            include_prompt_in_result=False,
            callback=on_token,
        )
        return clock.result([list(result.sequences_ids[0]) for result in results])


if __name__ == "__main__":
    serve(CTranslate2())
