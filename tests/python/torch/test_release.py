# SPDX-License-Identifier: Apache-2.0
"""Weights are kept once: what becomes of a module's parameters when ATB has packed them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import atb
import atb_torch
import families
import numpy as np
import pytest
import torch
import transformers
from atb import _core
from atb_torch.decoder import make_engine
from torch.multiprocessing.reductions import StorageWeakRef

Storages = dict[str, StorageWeakRef]


def storages(module: torch.nn.Module) -> Storages:
    """The memory of each parameter, without keeping it alive."""
    return {name: StorageWeakRef(parameter.untyped_storage()) for name, parameter in module.named_parameters()}


def alive(memory: Storages) -> set[str]:
    return {name for name, reference in memory.items() if not reference.expired()}


def logits(module: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return module(ids).logits


@pytest.mark.parametrize(
    ("family", "changes", "tables"),
    [
        ("llama", {}, {"model.embed_tokens.weight"}),
        ("llama", {"tie_word_embeddings": True}, {"model.embed_tokens.weight"}),  # table and head are one
        ("gpt2", {}, {"transformer.wte.weight", "transformer.wpe.weight"}),  # its matrices are packed transposed
        ("gemma2", {}, {"model.embed_tokens.weight"}),  # adds 1 to the weights of its norms
    ],
)
def test_compile_keeps_the_tables_alone(family: str, changes: dict[str, Any], tables: set[str]) -> None:
    attention = "eager" if family == "gemma2" else "sdpa"
    model, twin = (families.model(family, attention, **changes) for _ in range(2))
    memory, ids = storages(model), families.tokens(2, 7)
    kept = atb_torch.compile(twin, ids, threads=1)
    fast = atb_torch.compile(model, ids, release=True, threads=1)
    assert alive(memory) == tables
    assert all(parameter.is_meta for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == sum(p.numel() for p in twin.parameters())
    for batch, length in ((2, 7), (1, 1), (3, 33)):
        ids = families.tokens(batch, length)
        assert torch.equal(logits(fast, ids), logits(kept, ids))
    assert str(fast.graph) == str(kept.graph)
    assert str(fast.report()) == str(kept.report())
    assert len(storages(twin)) == len(alive(storages(twin)))  # without release a module keeps what it has
    del fast
    gc.collect()
    assert alive(memory) == set()


def test_half_precision_weights_go_too() -> None:
    model = families.model("llama", "sdpa").to(torch.bfloat16)
    memory = storages(model)
    fast = atb_torch.compile(model, families.tokens(2, 7), release=True, threads=1)
    assert alive(memory) == {"model.embed_tokens.weight"}
    twin = families.model("llama", "sdpa").to(torch.bfloat16)
    ids = families.tokens(2, 7)
    assert torch.equal(logits(fast, ids), logits(atb_torch.compile(twin, threads=1), ids))


class InPlace(torch.nn.Module):
    """Reads `offset` in place, and `both` in place and packed."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name in ("both", "offset", "packed"):
            setattr(self, name, torch.nn.Parameter(torch.randn(24, 24, generator=generator)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.linear(x, self.both) + self.both[3] + self.offset[:1]
        return torch.nn.functional.linear(torch.tanh(hidden * self.offset), self.packed) * self.both


def test_what_is_read_in_place_stays() -> None:
    module, x = InPlace().eval(), torch.randn(24, 24)
    with torch.no_grad():
        expected = module(x)
        memory = storages(module)
        fast = atb_torch.compile(module, (x,), release=True, threads=1)
        assert alive(memory) == {"both", "offset"}
        torch.testing.assert_close(fast(x), expected)


def test_two_programs_of_one_module() -> None:
    model, ids = families.model("llama", "sdpa"), families.tokens(2, 7)
    memory = storages(model)
    first = atb_torch.compile(model, ids, threads=1)
    expected = logits(first, ids)
    second = atb_torch.compile(model, ids, release=True, threads=1)
    assert alive(memory) == {"model.embed_tokens.weight"}  # the first has kept nothing that it packed, either
    assert torch.equal(logits(first, ids), expected)
    assert torch.equal(logits(second, ids), expected)


def test_parameters_that_another_module_has_stay() -> None:
    model, other = families.model("llama", "sdpa"), families.model("llama", "sdpa")
    other.load_state_dict(model.state_dict(), assign=True)
    memory, ids = storages(model), families.tokens(2, 7)
    expected = logits(other, ids)
    fast = atb_torch.compile(model, ids, release=True, threads=1)
    assert alive(memory) == set(memory)
    assert torch.equal(logits(other, ids), expected)
    assert families.distance(logits(fast, ids), expected) < 2e-4


@torch.fx.wrap
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x + x


class Doubling(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(24, 24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return doubled(torch.nn.functional.linear(x, self.weight))


class Doubled(atb.Pattern):
    def match(self, graph: atb.Graph) -> list[atb.Node] | None:
        return next(([node] for node in graph.nodes if node.target == doubled), None)

    def replace(self, matched_nodes: list[atb.Node]) -> atb.FusionOp:
        return atb.FusionOp("doubled_once_more", kernel=lambda x: x + x)


def test_the_copy_that_keeps_functions_whole_gives_its_parameters_too() -> None:
    traced = torch.fx.symbolic_trace(Doubling()).eval()
    memory, x = storages(traced), torch.randn(3, 24)
    optimizer = atb.GraphOptimizer()
    optimizer.register_pattern(Doubled())
    with torch.no_grad():
        expected = traced(x)
        fast = atb_torch.compile(traced, (x,), optimizer=optimizer, release=True, threads=1)
        assert alive(memory) == set()
        torch.testing.assert_close(fast(x), expected)


def test_an_error_leaves_the_module_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = families.model("llama", "sdpa"), families.tokens(2, 7)
    memory, expected = storages(model), logits(model, ids)
    fast = atb_torch.compile(model, release=True, threads=1)

    def fail(*_: Any, **__: Any) -> None:
        raise atb.ResourceExhaustedError("[weights] no memory")

    for place, name in ((atb.Graph, "compile"), (atb_torch.compiler.Variant, "decide_ones")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail)
            with pytest.raises(atb.ResourceExhaustedError):
                fast(ids)
        assert alive(memory) == set(memory)
        assert torch.equal(logits(model, ids), expected)
    with pytest.raises(atb.InvalidArgumentError):
        atb_torch.compile(model, ids, release=True, threads=-1)
    assert torch.equal(logits(model, ids), expected)
    assert families.distance(logits(fast, ids), expected) < 2e-4  # and then it does
    assert alive(memory) == {"model.embed_tokens.weight"}


def test_generate_takes_the_parameters() -> None:
    model, twin = families.model("llama", "sdpa"), families.model("llama", "sdpa")
    memory, ids = storages(model), families.tokens(2, 7)
    fast = atb_torch.compile(model, release=True, threads=1)
    expected = atb_torch.compile(twin, threads=1).generate(ids, max_new_tokens=9, eos_token_id=[])
    for _ in range(2):
        assert torch.equal(fast.generate(ids, max_new_tokens=9, eos_token_id=[]), expected)
        assert alive(memory) == {"model.embed_tokens.weight"}
    with pytest.raises(atb.UnsupportedError, match=r"generate\(\) has released the parameters"):
        fast(ids)


def test_forward_takes_the_parameters_from_generate() -> None:
    fast = atb_torch.compile(families.model("llama", "sdpa"), families.tokens(2, 7), release=True, threads=1)
    with pytest.raises(atb.UnsupportedError, match=r"forward\(\) has released the parameters, and generate\(\) needs"):
        fast.generate(families.tokens(1, 3))


@pytest.mark.parametrize("tied", [False, True])
def test_a_directory_through_torch_keeps_the_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: bool
) -> None:
    twin = families.model("llama", "sdpa", tie_word_embeddings=tied)
    twin.save_pretrained(tmp_path)
    memory: Storages = {}
    load = transformers.AutoModelForCausalLM.from_pretrained

    def noted(*args: Any, **options: Any) -> Any:
        model = load(*args, **options)
        memory.update(storages(model))
        return model

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", noted)
    ids = families.tokens(1, 33)[0].tolist()
    engine = make_engine(twin, threads=1)
    with atb.LLM(tmp_path, frontend="torch", threads=1) as llm:
        assert alive(memory) == {"model.embed_tokens.weight"}
        assert np.array_equal(np.asarray(llm.logits([ids])[0]), np.asarray(engine.logits([ids])[0]))
        assert str(llm.engine) == str(engine)


def test_weights_are_taken_from_a_graph_that_an_engine_is_made_of() -> None:
    model = families.model("llama", "sdpa")
    graph = atb_torch.import_module(model, families.tokens(2, 7))
    text = str(graph)
    for release in (False, True):
        _core.Engine.from_graph(graph._core, 512, [], [], threads=1, release=release)
        assert str(graph) == text
    with pytest.raises(atb.FailedPreconditionError, match="has no data: none was given, or it was released"):
        graph.compile()
    with pytest.raises(atb.FailedPreconditionError, match=r"has no data.* released once it was packed"):
        _core.Engine.from_graph(graph._core, 512, [], [])


_GROWTH = """
import sys
import torch, atb_torch

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def module(sizes):
    return torch.nn.Sequential(*(torch.nn.Linear(a, b, bias=False) for a, b in zip(sizes, sizes[1:]))).eval()

with torch.no_grad():
    atb_torch.compile(module([64, 96, 64]), (torch.zeros(2, 64),), release=True, threads=1)
    before = resident()
    large = module([2304, 4608, 2304, 4608])  # 42 MB each
    weights = sum(parameter.nbytes for parameter in large.parameters())
    fast = atb_torch.compile(large, (torch.zeros(2, 2304),), release=sys.argv[1] == "True", threads=1)
    fast(torch.ones(2, 2304))
    print((resident() - before) / weights)
"""


def growth(release: bool) -> float:
    """How much the process grows by a module and its compiled form, in sizes of its weights."""
    environment = os.environ | {"PYTHONPATH": str(Path(atb.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _GROWTH, str(release)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    return float(result.stdout)


def test_a_process_grows_by_the_packed_weights_alone() -> None:
    assert growth(release=True) < 1.3
    assert growth(release=False) > 1.8  # so the measurement can tell
