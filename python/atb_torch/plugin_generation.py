# SPDX-License-Identifier: Apache-2.0
"""`generate` of compiled models whose blocks have plugins.

What a plugin computes cannot be proven to work token by token, as the native engine needs. A model of declared blocks
says itself how it goes on behind a cache, so its compiled forward is called as its user would call it, with a cache of
its own. What is around the plugins is proven as ever.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from atb.errors import UnsupportedError
from torch.utils import _pytree as pytree

from atb_torch import decoder
from atb_torch.block_export import without_caches
from atb_torch.compiler import call_of, import_call
from atb_torch.exporting import Call
from atb_torch.forward_engine import ForwardEngine
from atb_torch.kv_cache import KVCache
from atb_torch.plugins import without_plugins

if TYPE_CHECKING:
    from atb_torch.compiler import CompiledModule, Variant

# Operators that would see the tokens of one call alone, though a cache has more before them.
_POSITIONS = re.compile(r"^ *(%\S+) = iota\(\) \{shape=\[[^\]]*[A-Za-z]", re.MULTILINE)
_ATTENTION = re.compile(r"^ *(%\S+)(?:, %\S+)* = (?:flash_attention|block_attention|softmax)\(", re.MULTILINE)


def active_points(module: torch.nn.Module) -> list[str]:
    """Where enabled plugins of a module's blocks sit: "layers.0: pre_attention"."""
    points = []
    for path, part in module.named_modules():
        own = getattr(part, "_plugins", None)
        if own is not None and hasattr(part, "program_key"):
            points += [f"{path}: {one.point}" if path else one.point for one in own.enabled()]
    return points


def make_engine(compiled: CompiledModule, points: list[str], optimizer: Any) -> ForwardEngine:
    """What generates with plugins at `points`; `atb.UnsupportedError` where it would not be what the model computes."""
    model, name = compiled.module, decoder.ids_name(compiled.module)

    def variant_for(ids: torch.Tensor) -> tuple[Call, Variant]:
        call = call_of(model, (), {name: ids})
        return call, compiled.prepare(call)

    listed = ", ".join(points[:4]) + (f" and {len(points) - 4} more" if len(points) > 4 else "")
    call, variant = variant_for(torch.ones(2, 7, dtype=torch.int64))
    if variant.cached is None:
        raise UnsupportedError(
            f"[generate] a plugin ({listed}) computes what cannot be proven to work token by token, and the model's "
            "blocks are called with no KVCache of the model; give their attentions kv_cache=True and the model a "
            "KVCache as an attribute, or generate with the plugin removed or its enabled = False"
        )
    _prove_around_plugins(model, name, optimizer)
    _require_behind_cache(str(variant.compiled), listed)
    model_cache = variant.cached.home.get(model, call)

    def forward(ids: torch.Tensor, cache: KVCache) -> torch.Tensor:
        call, variant = variant_for(ids)
        return _only_tensor(variant.run([leaf.tensor for leaf in call.leaves], cache))

    context = min(decoder.context_length(model), model_cache.max_tokens)
    return ForwardEngine(forward, model_cache.empty, context)


def _prove_around_plugins(model: torch.nn.Module, name: str, optimizer: Any) -> None:
    """Raises what `generate` without the plugins would."""
    call = call_of(model, (), {name: torch.ones(2, 7, dtype=torch.int64)})
    with without_caches(), without_plugins():
        _, imported = import_call(model, call, optimizer)
    decoder.require_no_kernels(imported.graph)
    imported.graph._core.prove_incremental()


def _require_behind_cache(text: str, points: str) -> None:
    """Refuses a program in which something besides the cached attentions depends on where a call begins."""
    counted, attends = _POSITIONS.search(text), _ATTENTION.search(text)
    found = counted or attends
    if found is None:
        return
    what = "counts the tokens of a call from 0" if counted else "attends to the tokens of a call alone"
    raise UnsupportedError(
        f"[generate] {found[1]} {what}, outside of the blocks, but with a plugin ({points}) a call continues what is "
        "in the KVCache; let blocks do this (attentions with kv_cache=True and rope), or remove the plugin"
    )


def _only_tensor(result: Any) -> torch.Tensor:
    tensors = [value for value in pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]
    if len(tensors) != 1:
        raise UnsupportedError(f"[generate] the model gives {len(tensors)} tensors; needs one, the logits [B, T, V]")
    return tensors[0]
