# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through llama-cpp-python: `eval` of the whole prompt in batches of 512, then token by token, greedy."""

from __future__ import annotations

from typing import Any

import llama_cpp
import numpy as np
from serve import Clock, serve


class LlamaCpp:
    def load(
        self, model: str, precision: str, threads: int, prompt_tokens: int, new_tokens: int, batch: int
    ) -> dict[str, Any]:
        self.llama = llama_cpp.Llama(
            model,
            n_ctx=max(prompt_tokens + new_tokens, 32) + 64,
            n_batch=512,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
        return {"version": f"llama-cpp-python {llama_cpp.__version__}"}

    def run(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        (prompt,) = prompts  # the high-level interface has no batches
        self.llama.reset()
        ids: list[int] = []
        clock = Clock()
        self.llama.eval(prompt)
        while True:
            ids.append(self._best_token())
            clock.token()
            if len(ids) == new_tokens:
                return clock.result([ids])
            self.llama.eval(ids[-1:])

    def _best_token(self) -> int:
        logits = llama_cpp.llama_get_logits_ith(self.llama.ctx, -1)
        return int(np.argmax(np.ctypeslib.as_array(logits, shape=(self.llama.n_vocab(),))))


if __name__ == "__main__":
    serve(LlamaCpp())
