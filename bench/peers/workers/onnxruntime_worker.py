# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime GenAI: `append_tokens` for the prompt, then `generate_next_token`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnxruntime_genai as genai
from serve import Clock, serve


class OnnxRuntime:
    def load(
        self, model: str, precision: str, threads: int, prompt_tokens: int, new_tokens: int, batch: int
    ) -> dict[str, Any]:
        config = genai.Config(model)
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self.model = genai.Model(config)
        return {"version": f"onnxruntime-genai {genai.__version__}"}

    def run(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        length = len(prompts[0])
        parameters = genai.GeneratorParams(self.model)
        total = length + new_tokens
        parameters.set_search_options(batch_size=len(prompts), min_length=total, max_length=total, do_sample=False)
        clock = Clock()
        generator = genai.Generator(self.model, parameters)
        generator.append_tokens(np.array(prompts, dtype=np.int32))
        for _ in range(new_tokens):
            generator.generate_next_token()
            clock.token()
        return clock.result([generator.get_sequence(i)[length:].tolist() for i in range(len(prompts))])


if __name__ == "__main__":
    serve(OnnxRuntime())
