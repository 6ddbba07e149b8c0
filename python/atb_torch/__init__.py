# SPDX-License-Identifier: Apache-2.0
"""ATB for PyTorch: modules compiled into fused graphs, and blocks declared as lists of items.

import atb_torch
fast = atb_torch.compile(model)
logits = fast(input_ids).logits

block = atb_torch.GraphOp([atb_torch.LayerNorm(), atb_torch.Linear(out_features=64), atb_torch.ResidualAdd()])
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    import sys as _sys

    raise ImportError(
        f"[atb_torch] needs PyTorch and numpy, which are not here; run {_sys.executable} -m pip install torch==2.13.0 "
        "numpy (the version of ATB's tests; the build for CPUs is enough)"
    ) from _error

from atb_torch import native
from atb_torch.compiler import CompiledModule, compile, import_module
from atb_torch.graph_op import GraphOp
from atb_torch.items import (
    GELU,
    Add,
    Branch,
    Concat,
    Custom,
    Dropout,
    Embedding,
    FlashAttention,
    GatedMLP,
    Item,
    LayerNorm,
    Linear,
    Mul,
    ReLU,
    ResidualAdd,
    RMSNorm,
    RotaryEmbedding,
    SiLU,
    Softmax,
    Split,
)
from atb_torch.kv_cache import KVCache
from atb_torch.plugins import LibraryPlugin, Plugin, PluginContext, PluginError, PluginHandle, load_plugin

__all__ = [
    "GELU",
    "Add",
    "Branch",
    "CompiledModule",
    "Concat",
    "Custom",
    "Dropout",
    "Embedding",
    "FlashAttention",
    "GatedMLP",
    "GraphOp",
    "Item",
    "KVCache",
    "LayerNorm",
    "LibraryPlugin",
    "Linear",
    "Mul",
    "Plugin",
    "PluginContext",
    "PluginError",
    "PluginHandle",
    "RMSNorm",
    "ReLU",
    "ResidualAdd",
    "RotaryEmbedding",
    "SiLU",
    "Softmax",
    "Split",
    "compile",
    "import_module",
    "load_plugin",
    "native",
]
