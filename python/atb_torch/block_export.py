# SPDX-License-Identifier: Apache-2.0
"""A `GraphOp` inside a module that is exported: one custom operator over the block's inputs and parameters.

The operator says which block it is and with what form of call; its lowering puts the block's own plain graph in its
place, so that a block has one emission wherever it runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import atb
import torch
from atb import _core

from atb_torch.dtypes import TORCH
from atb_torch.errors import unsupported

if TYPE_CHECKING:
    from atb_torch.block_call import BlockCall
    from atb_torch.graph_op import GraphOp
    from atb_torch.kv_cache import KVCache

_LIBRARY = torch.library.Library("atb", "FRAGMENT")
_LIBRARY.define("graph_op(Tensor[] inputs, Tensor[] parameters, str block, str form) -> Tensor")
OPERATOR = "atb.graph_op.default"

_blocks: weakref.WeakValueDictionary[str, GraphOp] = weakref.WeakValueDictionary()
_names: weakref.WeakKeyDictionary[GraphOp, str] = weakref.WeakKeyDictionary()
_count = itertools.count()
_state = threading.local()


@dataclass(frozen=True)
class Form:
    """A form of call as text: inputs (name, dtype, dims over B, T, S), and what a cache adds."""

    inputs: tuple[tuple[str, str, tuple[int | str, ...]], ...]
    dtype: str  # of the parameters
    cached: bool = False
    placed: bool = False  # positions come from the cache's length

    def text(self) -> str:
        return json.dumps([self.inputs, self.dtype, self.cached, self.placed])

    @classmethod
    def parse(cls, text: str) -> Form:
        inputs, dtype, cached, placed = json.loads(text)
        return cls(tuple((name, kind, tuple(dims)) for name, kind, dims in inputs), dtype, cached, placed)

    def listed(self) -> list[tuple[str, str, list[int | str]]]:
        """The inputs as the core takes them, with positions where they come from the cache."""
        listed = [(name, kind, list(dims)) for name, kind, dims in self.inputs]
        return [*listed, ("positions", "i64", ["T"])] if self.placed else listed


# --- What a trace sees


@contextlib.contextmanager
def without_caches() -> Iterator[None]:
    """Blocks called meanwhile, on this thread, compute whole sequences: caches given to them are only passed on."""
    before, _state.ignored = ignores_caches(), True
    try:
        yield
    finally:
        _state.ignored = before


def ignores_caches() -> bool:
    """Whether this thread is inside `without_caches`."""
    return bool(getattr(_state, "ignored", False))


@contextlib.contextmanager
def watch_caches() -> Iterator[list[tuple[GraphOp, KVCache]]]:
    """Lists the blocks that are traced with a cache meanwhile, on this thread, in the order of their calls."""
    before, _state.seen = getattr(_state, "seen", None), []
    try:
        yield _state.seen
    finally:
        _state.seen = before


def trace(block: GraphOp, call: BlockCall, dtype: str, kv_cache: KVCache | None = None) -> torch.Tensor:
    """The block's call as one operator. Raises `atb.UnsupportedError` where parameters have no shapes yet."""
    parameters = [_parameter(block, name) for name in block._block.parameter_names]
    if any(parameter.shape == (0,) for parameter in parameters):
        unsupported(
            "a GraphOp has parameters without shapes; call the module once, or load its state, before exporting it"
        )
    placed = (
        kv_cache is not None
        and block._block.has("rotary_embedding")
        and all(name != "positions" for name, _, _ in call.inputs)
    )
    inputs = tuple((name, kind, tuple(_plain(dim) for dim in dims)) for name, kind, dims in call.inputs)
    form = Form(inputs, dtype, kv_cache is not None, placed)
    seen = getattr(_state, "seen", None)
    if kv_cache is not None and seen is not None:
        seen.append((block, kv_cache))
    return torch.ops.atb.graph_op(call.tensors, parameters, _name_of(block), form.text())


def _plain(dim: Any) -> int | str:
    """Features are numbers: export fixes them where it took them to be open."""
    return dim if isinstance(dim, str) else int(dim)


def _parameter(block: GraphOp, name: str) -> torch.Tensor:
    """What holds a parameter's place: export puts tensors there that are no `Parameter`."""
    path, _, last = name.rpartition(".")
    parameter: torch.Tensor = getattr(block.get_submodule(path), last)
    return parameter


def _name_of(block: GraphOp) -> str:
    if block not in _names:
        _names[block] = f"{block.name or type(block).__name__}#{next(_count)}"
        _blocks[_names[block]] = block
    return _names[block]


def block_named(name: str) -> GraphOp:
    """The block that an operator stands for. Raises `atb.UnsupportedError` once it is gone."""
    block = _blocks.get(name)
    if block is None:
        unsupported(f"the GraphOp {name} of an exported program is gone; keep its module, or export again")
    return block


# --- The operator for PyTorch


def _shape_of(text: str, sizes: Mapping[str, Any]) -> list[Any]:
    """Extents of a shape as text over B, T, S; sums and products, as blocks have them."""
    extents = [extent for extent in re.split(r",\s*", text.strip("[]")) if extent]
    return [eval(extent, {"__builtins__": {}}, dict(sizes)) for extent in extents]


def _fake(inputs: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor], block: str, form: str) -> torch.Tensor:
    call = Form.parse(form)
    sizes: dict[str, Any] = {}
    for tensor, (_, _, dims) in zip(inputs, call.inputs, strict=True):
        for extent, dim in zip(tensor.shape, dims, strict=True):
            if isinstance(dim, str):
                sizes.setdefault(dim, extent)
    core, *_ = block_named(block)._build(call.listed(), call.dtype)
    output = atb.Graph(core).outputs[0]
    return inputs[0].new_empty(_shape_of(output.shape, sizes), dtype=TORCH[output.dtype])


def _run(inputs: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor], block: str, form: str) -> torch.Tensor:
    """The block itself, for exported programs that run in PyTorch."""
    from atb_torch.block_call import BlockCall

    call, parsed = BlockCall(), Form.parse(form)
    if parsed.cached:
        unsupported("an exported program with a KVCache runs where it is compiled by atb_torch, not in PyTorch")
    for tensor, (name, _, dims) in zip(inputs, parsed.inputs, strict=True):
        call.add(name, tensor, dims)
    return block_named(block)._run(call)


_LIBRARY.impl("graph_op", _run, "CompositeExplicitAutograd")
torch.library.register_fake("atb::graph_op", _fake, lib=_LIBRARY)


# --- Modules before they are exported


def take_shapes(model: torch.nn.Module, call: Any) -> None:
    """Gives blocks without shapes theirs, by calling the module once, as for PyTorch's lazy modules."""
    from atb_torch.graph_op import GraphOp

    blocks = [module for module in model.modules() if isinstance(module, GraphOp)]
    if not any(_parameter(block, name).shape == (0,) for block in blocks for name in block._block.parameter_names):
        return
    with torch.no_grad(), without_caches():
        call()
    for block in blocks:
        block._programs.clear()  # packed for this call alone


def block_of(block: GraphOp, kernels: dict[str, Any]) -> _core.Block:
    """The block as the core has it, with kernels in Python added to those of the whole graph."""
    from atb_torch.graph_op import describe

    return _core.Block([describe(item, kernels) for item in block.items])
