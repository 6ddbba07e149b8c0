# SPDX-License-Identifier: Apache-2.0
"""What is compared: peers, the model form that each reads at each precision, and workloads."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """One row of the table."""

    name: str
    select: str  # its name in PEERS; several peers may share one
    environment: str  # folder under build/peers and file under requirements/
    worker: str
    forms: dict[str, str]  # precision -> model form, see models.py
    arguments: tuple[str, ...] = ()
    batches: bool = False  # can decode several sequences at once
    load_limit_s: float = 300.0
    fixed_shapes: bool = False  # compiles for each shape that it sees


PEERS = (
    Peer(
        "transformers sdpa",
        "transformers",
        "transformers",
        "transformers_worker.py",
        {"f32": "hf-f32", "bf16": "hf-bf16"},
        ("sdpa",),
        batches=True,
    ),
    Peer(
        "transformers eager",
        "transformers",
        "transformers",
        "transformers_worker.py",
        {"f32": "hf-f32"},
        ("eager",),
        batches=True,
    ),
    Peer(
        "torch.compile",
        "torch-compile",
        "transformers",
        "torch_compile_worker.py",
        {"f32": "hf-f32"},
        load_limit_s=1200.0,
        fixed_shapes=True,
    ),
    Peer("llama.cpp", "llama-cpp", "llama-cpp", "llama_cpp_worker.py", {"q4_1": "gguf-q4_1", "q8_0": "gguf-q8_0"}),
    Peer("OpenVINO GenAI", "openvino", "openvino", "openvino_worker.py", {"q4_1": "gguf-q4_1"}),
    Peer(
        "ONNX Runtime GenAI",
        "onnxruntime",
        "onnxruntime",
        "onnxruntime_worker.py",
        {"f32": "onnx-f32", "q4_1": "onnx-int4"},
        batches=True,
    ),
    Peer(
        "CTranslate2",
        "ctranslate2",
        "ctranslate2",
        "ctranslate2_worker.py",
        {"f32": "ct2-f32", "q8_0": "ct2-int8"},
        batches=True,
    ),
)

# What ATB reads at each precision; its own environment is the one that runs the driver.
OURS = Peer(
    "ATB",
    "atb",
    "",
    "atb_worker.py",
    {"f32": "hf-f32", "bf16": "hf-bf16", "q4_1": "gguf-q4_1", "q8_0": "gguf-q8_0"},
    batches=True,
)

PRECISIONS = tuple(OURS.forms)
SELECTABLE = tuple(dict.fromkeys(peer.select for peer in PEERS))


def select_peers(names: str) -> list[Peer]:
    """Peers named in a list like "transformers llama-cpp"; an empty list is all. ValueError for an unknown name."""
    wanted = re.split(r"[\s,]+", names.strip()) if names.strip() else list(SELECTABLE)
    for name in wanted:
        if name not in SELECTABLE:
            raise ValueError(f"unknown peer {name!r}; known are {', '.join(SELECTABLE)}")
    return [peer for peer in PEERS if peer.select in wanted]


@dataclass(frozen=True)
class Workload:
    """Prompts of random tokens, and how many tokens follow each."""

    prompt_tokens: int
    new_tokens: int
    batch: int = 1

    def __str__(self) -> str:
        return f"{self.prompt_tokens} + {self.new_tokens}" + (f", batch {self.batch}" if self.batch > 1 else "")


DEFAULT_WORKLOADS = "512+64 2048+100 128+64x4 128+64x8"
QUICK_WORKLOADS = "32+8 32+8x4"


def parse_workloads(text: str) -> list[Workload]:
    """Workloads from text like "512+64 128+64x8" (x: batch). ValueError for anything else."""
    workloads = []
    for word in re.split(r"[\s,]+", text.strip()):
        match = re.fullmatch(r"(\d{1,7})\+(\d{1,7})(?:x(\d{1,4}))?", word)
        if match is None or int(match[1]) < 1 or int(match[2]) < 2 or int(match[3] or 1) < 1:
            raise ValueError(f"workload {word!r}; expected PROMPT+NEW or PROMPT+NEWxBATCH, with NEW at least 2")
        workloads.append(Workload(int(match[1]), int(match[2]), int(match[3] or 1)))
    return workloads
