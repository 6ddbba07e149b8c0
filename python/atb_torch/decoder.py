# SPDX-License-Identifier: Apache-2.0
"""A module that maps token ids to logits, as a native engine with a key/value cache."""

from __future__ import annotations

import inspect
import operator
from collections import Counter
from typing import Any

import torch
from atb import Graph, _core
from atb.errors import UnsupportedError
from atb.generation import as_ids as checked_ids
from atb.generation import is_int

from atb_torch.block_export import without_caches
from atb_torch.compiler import call_of, exporting_alone, import_call
from atb_torch.decoder_sizes import longest, require_one_form
from atb_torch.kv_cache import KVCache
from atb_torch.releasing import release_parameters

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "block_size")
DEFAULT_CONTEXT = 2048  # of modules without a configuration that says


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
    assert exported.entry is not None
    limit = min(context or context_length(model), longest(imported.guards, exported.examples[0]))
    with exporting_alone():
        require_one_form(exported.entry, imported.guards, exported.examples[0])
    del exported, imported  # which hold the parameters too
    require_no_kernels(graph)
    if release:
        release_parameters(model)
    return _core.Engine.from_graph(
        graph._core,
        context_length=limit,
        bos_ids=as_ids(_setting(model, "bos_token_id")),
        eos_ids=end_token_ids(model),
        release=release,
        **options,
    )


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


def as_ids(value: Any, name: str = "eos_token_id") -> list[int]:
    """Token ids of an id, of several, or of None: none. `atb.InvalidArgumentError` for what is no id."""
    if value is None:
        return []
    return checked_ids([value] if is_int(value) or isinstance(value, str) else value, name)
