# SPDX-License-Identifier: Apache-2.0
"""OpenVINO GenAI's `LLMPipeline` on the GGUF file itself; times are those of its own performance metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino
import openvino_genai
from serve import serve


class OpenVino:
    def load(
        self, model: str, precision: str, threads: int, prompt_tokens: int, new_tokens: int, batch: int
    ) -> dict[str, Any]:
        self.pipeline = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)
        return {"version": f"openvino-genai {openvino_genai.__version__}"}

    def run(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = False
        result = self.pipeline.generate(openvino.Tensor(np.array(prompts, dtype=np.int64)), config)
        metrics = result.perf_metrics
        first = metrics.get_ttft().mean / 1e3
        total = metrics.get_generate_duration().mean / 1e3
        return {"prefill_s": first, "decode_s": total - first, "ids": [list(ids) for ids in result.tokens]}


if __name__ == "__main__":
    serve(OpenVino())
