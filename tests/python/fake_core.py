# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the native module: the same names, scripted tokens. Unit tests of the Python layer run on it."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from types import ModuleType
from typing import Any


class Error(RuntimeError):
    pass


class InvalidArgument(Error, ValueError):
    pass


class NotFound(Error):
    pass


class DataLoss(Error):
    pass


class Unsupported(Error):
    pass


class ResourceExhausted(Error, MemoryError):
    pass


class Cancelled(Error):
    pass


class FailedPrecondition(Error):
    pass


class Internal(Error):
    pass


class Tensor:
    def __init__(self, rows: list[list[float]]) -> None:
        self._rows = rows

    def tolist(self) -> list[list[float]]:
        return self._rows


class Graph:
    """There is no stand-in for running graphs: tests of them need the native module."""


class CompiledGraph:
    pass


class Engine:
    """Answers each prompt with `script` (a list of token ids), one token a call of `next`."""

    script: list[int] = [72, 105]  # class attributes: tests set them
    fail_after: int | None = None
    instances: list[Engine] = []

    def __init__(self, path: str, device: str = "cpu", **options: Any) -> None:
        if device != "cpu":
            raise Unsupported(f"[device] {device} is not in this build; it has: cpu")
        if not Path(path).exists():
            raise NotFound(f"[model] {path} does not exist")
        self.path, self.options = path, options
        self.live: dict[int, dict[str, Any]] = {}
        self.submitted: list[dict[str, Any]] = []
        self.cancelled: list[int] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        Engine.instances.append(self)

    def submit(self, prompt_ids: list[int], **sampling: Any) -> int:
        if not prompt_ids:
            raise InvalidArgument("[generate] the prompt is empty; expected at least one token")
        request = next(self._numbers)
        with self._lock:
            self.submitted.append({"prompt_ids": list(prompt_ids), **sampling})
            self.live[request] = {"ids": self.script[: sampling["max_new_tokens"]], "at": 0, "prompt": len(prompt_ids)}
        return request

    def next(self, request: int) -> tuple[list[int], str | None]:
        state = self.live[request]
        if self.fail_after is not None and state["at"] >= self.fail_after:
            raise Internal("[engine] scripted failure")
        if request in self.cancelled:
            return [], "cancelled"
        if state["at"] == len(state["ids"]):
            return [], "length"
        state["at"] += 1
        done = state["at"] == len(state["ids"])
        return [state["ids"][state["at"] - 1]], "length" if done else None

    def cancel(self, request: int) -> None:
        self.cancelled.append(request)

    def release(self, request: int) -> None:
        self.live.pop(request, None)

    def timing(self, request: int) -> dict[str, Any]:
        state = self.live[request]
        return {
            "prefill_s": 0.5,
            "decode_s": 0.25,
            "prompt_tokens": state["prompt"],
            "generated_tokens": state["at"],
        }

    def logits(self, sequences: list[list[int]]) -> list[Tensor]:
        return [Tensor([[float(t)] for t in ids]) for ids in sequences]

    def log_likelihood(self, ids: list[int], begin: int) -> float:
        return -float(len(ids) - begin)

    def stats(self) -> dict[str, Any]:
        return {"kv_blocks_in_use": len(self.live), "kv_blocks_total": 64}

    def info(self) -> dict[str, Any]:
        return {
            "family": "llama",
            "layers": 2,
            "vocab": 256,
            "context_length": 64,
            "bos": None,
            "eos": [2],
            "precision": "exact",
            "target": "fake",
            "load_s": 0.125,
            "weight_bytes_per_token": 1_000_000,
            "kv_bytes_per_token": 1_000,
            "flops_per_token": 2_000_000,
        }

    def report_json(self, tokens: int = 1) -> str:
        return explain_json(self.path, tokens, "f32")

    def start_trace(self) -> None:
        pass

    def write_trace(self, path: str) -> None:
        Path(path).write_text(json.dumps({"traceEvents": []}))


def profile_json(engine: Engine, each_node: bool = False) -> str:
    node = {"name": "layers.*.q", "op": "linear", "count": 6, "total_ms": 3.0, "mean_us": 500.0, "share": 0.75}
    phase = {
        "steps": 3,
        "launches": 3,
        "tokens": 3,
        "total_ms": 4.0,
        "nodes": [node | {"variant": "fake", "wait_ms": 0.1, "worker_ms": 5.0}],
        "waits": {"count": 7, "total_ms": 0.4, "share": 0.1, "worker_ms": 0.6},
        "wakeups": {"count": 3, "from_park": 1, "mean_us": 20.0, "worker_ms": 0.06},
        "elsewhere": {
            "total_ms": 0.6,
            "share": 0.15,
            "sampling_ms": 0.1,
            "between_steps_ms": 0.2,
            "planning_and_launch_ms": 0.3,
        },
    }
    return json.dumps({"decode": phase, "dropped_events": 0})


def version() -> str:
    return "0.0.fake"


def platform_info() -> dict[str, Any]:
    return {
        "cpu_target": "FAKE2",
        "usable_targets": ["FAKE2", "FAKE1"],
        "compiled_targets": ["FAKE3", "FAKE2", "FAKE1"],
        "cpu_problem": "",
        "devices": ["cpu"],
        "affinity_cpus": 3,
        "cpu_quota": 1.5,
        "threads": 2,
        "available_bytes": 5_000_000_000,
        "cgroup_bytes": None,
        "model_cache": "/nowhere/hub",
    }


def set_log_level(name: str) -> None:
    if name not in ("debug", "info", "warning", "error", "off"):
        raise InvalidArgument(f"[log] level {name!r} is not known")


def resolve_model_path(name: str) -> str:
    if not Path(name).exists():
        raise NotFound(f"[model] {name} is no file or directory here; download it first")
    return name


def load_library(path: str) -> list[str]:
    return []


def operator_names() -> list[str]:
    return ["add"]


def explain_json(path_or_config: str, tokens: int, dtype: str) -> str:
    sizes = {"before": 20, "after": 8}
    return json.dumps(
        {
            "layers": 2,
            "tokens": tokens,
            "kernels_per_layer": sizes,
            "bytes_per_layer": {"before": 3_400_000_000, "after": 900_000_000},
            "intermediate_bytes_per_layer": {"before": 2_600_000_000, "after": 200_000_000},
            "patterns": [
                {"name": "SDPA", "layers_matched": 2, "kernels_per_layer": 15, "bytes_per_layer": 2_000_000_000}
            ],
            "not_matched": [
                {
                    "pattern": "GateUp",
                    "layer": 1,
                    "node": "act",
                    "constraint": "activation",
                    "actual": "tanh",
                    "expected": "silu",
                }
            ],
        }
    )


def inspect_json(path: str) -> str:
    tensor = {"name": "a", "dtype": "f32", "shape": [2]}
    return json.dumps({"family": "llama", "context_length": 64, "tensors": [tensor]})


def roofline(threads: int, bytes: int) -> dict[str, float]:
    return {"read_gb_s": 10.0, "f32_gflop_s": 50.0}


def peak_rss_mb() -> float:
    return 12.5


def gguf_metadata(path: str) -> dict[str, Any]:
    """Metadata read with the `gguf` package, so that tokenizer tests run without the native module."""
    import gguf

    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def as_module() -> ModuleType:
    """This file as the module `atb._core`."""
    module = ModuleType("atb._core")
    module.__dict__.update({name: value for name, value in globals().items() if not name.startswith("__")})
    return module
