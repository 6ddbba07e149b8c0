# SPDX-License-Identifier: Apache-2.0
"""ATB itself, driven like a peer; also runs the roofline program for all of them."""

from __future__ import annotations

from typing import Any

import atb
from atb import _core
from atb.generation import SamplingOptions, give_back, submit
from serve import Clock, serve

BLOCK_SLACK = 128  # tokens: a sequence takes whole KV blocks


class Atb:
    def load(
        self, model: str, precision: str, threads: int, prompt_tokens: int, new_tokens: int, batch: int
    ) -> dict[str, Any]:
        # The engine keeps the precision of the file; "auto" computes in the way that suits it.
        kv_tokens = batch * (max(prompt_tokens, 16) + max(new_tokens, 16) + BLOCK_SLACK)
        self.llm = atb.LLM(model, threads=threads, kv_tokens=kv_tokens)
        info = self.llm.info()
        keys = ("vocab", "flops_per_token", "weight_bytes_per_token", "kv_bytes_per_token", "target", "stop_token_ids")
        return {"version": f"atb {_core.version()}", **{key: info[key] for key in keys if key in info}}

    def run(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        engine, sampling = self.llm.engine, SamplingOptions(max_new_tokens=new_tokens, ignore_eos=True, temperature=0.0)
        ids: list[list[int]] = [[] for _ in prompts]
        clock = Clock()
        requests: list[int] = []
        try:
            for prompt in prompts:
                requests.append(submit(engine, prompt, sampling))
            while min(map(len, ids)) < new_tokens:
                for i, request in enumerate(requests):
                    if len(ids[i]) < new_tokens:
                        ids[i] += engine.next(request)[0]
                if all(ids):
                    clock.token()
        finally:
            give_back(engine, requests)
        return clock.result(ids)

    def roofline(self, threads: int, bytes: int) -> dict[str, Any]:
        return _core.roofline(threads, bytes)


if __name__ == "__main__":
    serve(Atb())
