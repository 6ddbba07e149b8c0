# SPDX-License-Identifier: Apache-2.0
"""A module that maps token ids to logits, as a native engine with a key/value cache."""

from __future__ import annotations

import inspect
import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from atb import Graph, _core
from atb.errors import UnsupportedError

from atb_torch.block_export import without_caches
from atb_torch.compiler import call_of, import_call
from atb_torch.guards import Guards
from atb_torch.kv_cache import KVCache
from atb_torch.releasing import release_parameters

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "block_size")
DEFAULT_CONTEXT = 2048  # of modules without a configuration that says
_UNLIMITED = 1 << 31
_LENGTHS_TRIED = 256


def make_engine(
    model: torch.nn.Module,
    *,
    optimizer: Any = None,
    context: int | None = None,
    release: bool = False,
    **options: Any,
) -> Any:
    """The native engine (`atb._core.Engine`) of a decoder with `forward(input_ids) -> logits`.

    The module is exported without cache and without mask; `insert_kv_cache` makes a ragged, incremental step of it, or
    refuses with the operator that mixes tokens. Parameters are shared, not copied.
    context: longest sequence; None takes what the module's configuration says. What the module was exported for, as
        by a table of positions, limits both.
    release: the module gives its parameters up, even if there is an error later: each goes when it is packed.
    options: of the engine (device, precision, threads, prefill_chunk, kv_tokens).
    """
    call = call_of(model, (), {ids_name(model): torch.ones(2, 7, dtype=torch.int64)})
    with without_caches():
        exported, imported = import_call(model, call, optimizer)
    graph = imported.graph
    longest = min(context or context_length(model), _longest(imported.guards, exported.examples[0]))
    del exported, imported  # which hold the parameters too
    require_no_kernels(graph)
    if release:
        release_parameters(model)
    return _core.Engine.from_graph(
        graph._core,
        context_length=longest,
        bos_ids=as_ids(_setting(model, "bos_token_id")),
        eos_ids=end_token_ids(model),
        release=release,
        **options,
    )


def _longest(guards: Guards, example: torch.Tensor) -> int:
    """Up to what length the exported program is the module: a step runs at any, and checks no guards.

    Limits are ranges; what else a module decides by its length is seen at short ones. Raises where shorter sequences
    than the example are others.
    """
    rows, length = example.shape
    high = max((high for name, (_, high) in guards.ranges.items() if _is_length(guards, name)), default=_UNLIMITED)
    for size in range(2, min(high, _LENGTHS_TRIED)):  # at the limit itself a slice of a table is all of it
        if guards.bind([torch.empty(rows, size, dtype=example.dtype, device="meta")]) is not None:
            continue
        if size > length:
            return size - 1
        raise UnsupportedError(
            f"[generate] the module decides by the length of its input: what it does for {length} tokens is not what "
            f"it does for {size}; needs one form for all lengths"
        )
    return high


def _is_length(guards: Guards, name: str) -> bool:
    size = guards.tensors[0].shape[-1]
    return isinstance(size, torch.SymInt) and str(size.node.expr) == name


def require_no_kernels(graph: Graph) -> None:
    """Refuses what a pattern gave a kernel: the engine runs no such steps, and its proof cannot see into them.

    An operator with a definition alone is written out before anything is proven.
    """
    known = set(_core.operator_names())
    opaque = [node for node in graph.nodes if node.op == "call_function" and str(node.target) not in known]
    names = Counter(
        str(node.target)
        for node in opaque
        if node.target is not operator.getitem and (node.kwargs.get("kernel") or not node.kwargs.get("body"))
    )
    if names:
        listed = ", ".join(name + (f" ({count} times)" if count > 1 else "") for name, count in names.items())
        raise UnsupportedError(
            f"[generate] {listed}: computed by a kernel of its own, which cannot be proven to work token by token; "
            "call generate() of the module compiled without that pattern, or use FusionOp without a kernel"
        )


def ids_name(model: torch.nn.Module) -> str:
    """The parameter of `forward` that takes token ids: "input_ids", else the first one."""
    parameters = list(inspect.signature(model.forward).parameters)
    if not parameters:
        raise UnsupportedError(f"[generate] {type(model).__name__}.forward takes nothing; needs forward(input_ids)")
    return "input_ids" if "input_ids" in parameters else parameters[0]


def context_length(model: torch.nn.Module) -> int:
    """The longest sequence that the module's configuration names, else its cache; else DEFAULT_CONTEXT."""
    config = getattr(model, "config", None)
    for key in _CONTEXT_KEYS:
        value = getattr(config, key, None)
        if isinstance(value, int) and value > 0:
            return value
    caches = [value for module in model.modules() for value in vars(module).values() if isinstance(value, KVCache)]
    return min((cache.max_tokens for cache in caches), default=DEFAULT_CONTEXT)


def end_token_ids(model: torch.nn.Module) -> list[int]:
    """Ids that end a sequence, as transformers finds them: the generation configuration's, else the model's."""
    return as_ids(_setting(model, "eos_token_id"))


def pad_token_id(model: torch.nn.Module) -> int | None:
    """The id that fills finished rows; None where the model has none."""
    value = _setting(model, "pad_token_id")
    return value if isinstance(value, int) else None


def _setting(model: torch.nn.Module, key: str) -> Any:
    for holder in ("generation_config", "config"):
        value = getattr(getattr(model, holder, None), key, None)
        if value is not None:
            return value
    return None


def as_ids(value: Any) -> list[int]:
    """Token ids of an id, of several, or of None: none."""
    if value is None:
        return []
    return [int(item) for item in value] if isinstance(value, Iterable) else [int(value)]
