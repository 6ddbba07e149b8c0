# SPDX-License-Identifier: Apache-2.0
"""`GraphOp`: a block declared as a list of items, which is a torch module and runs as one graph."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import atb
import torch
from atb import Profile, _core, profiled
from atb.errors import FailedPreconditionError, InvalidArgumentError
from torch import nn

from atb_torch.block_call import BlockCall, is_traced, take_call, wrong_call, wrong_inputs
from atb_torch.block_export import ignores_caches, trace
from atb_torch.block_parameters import (
    Declared,
    declare,
    is_lazy,
    known_shapes,
    materialize,
    place,
    widths_to_try,
)
from atb_torch.checks import check_tensor, plain
from atb_torch.dtypes import NAMES
from atb_torch.errors import unsupported
from atb_torch.freshness import Snapshot
from atb_torch.items import Item
from atb_torch.kv_cache import KVCache
from atb_torch.options import as_threads
from atb_torch.plugins import (
    Active,
    Described,
    LibraryPlugin,
    Plugin,
    PluginHandle,
    Plugins,
    context_of,
    describe_plugins,
    in_library,
    running,
)

_MAX_PROGRAMS = 8  # forms of call kept; each has packed weights of its own
# Names that mean an argument of the call: an item so named has its index as the prefix of its parameters.
_CALL_NAMES = {"x", "query", "key", "value", "residual", "input", "output", "kv_cache", "attention_mask", "positions"}

Cached = tuple[str, int, int]  # scope of an attention, its heads of keys, features of a head


@dataclass
class Program:
    """What serves one form of call: the graph before and after, and its attentions that keep a cache."""

    graph: atb.Graph
    compiled: atb.CompiledGraph
    cached: list[Cached]
    plugins: Active

    def lost_a_plugin(self) -> bool:
        """Whether no call will use it any more, because a plugin in it was removed."""
        return any(one.removed for _, one in self.plugins)


class GraphOp(nn.Module):
    """A block made of `items`, constructors of which `atb_torch` has (`LayerNorm`, `Linear`, ...), or GraphOps.

    Called as `block(x, key=None, value=None, residual=None, *, kv_cache=None, attention_mask=None, positions=None)`;
    with `kv_cache=True` in an item it returns `(output, kv_cache)`, else the output. Shapes of parameters are those of
    the first call or of the loaded state.
    """

    def __init__(self, items: Sequence[Item | GraphOp], *, name: str | None = None, threads: int = 0) -> None:
        """items: in the order of the data; see `docs/graphop.md`.

        name: prefix of its parameters inside another GraphOp. threads: workers; 0 takes what the CPU quota allows.
        Raises `atb.InvalidArgumentError` naming the item whose options or name are wrong.
        """
        super().__init__()
        self.name = check_name(name)
        self.items = check_list(items)
        self.threads = as_threads(threads, "GraphOp")
        self.layer: int | None = None
        """Which layer of a model this is, for the context of plugins; None: its slot in the cache."""
        self._plugins = Plugins()
        self._warned: set[str] = set()
        self._prepare()
        for path, nested in _nested(self.items, ""):
            place(self, path, nested)
        declare(self, self._block.parameter_names)

    def _prepare(self) -> None:
        """What is no part of a copy or of a saved module."""
        self._kernels: dict[str, Callable[..., Any]] = {}
        self._block = _core.Block([describe(item, self._kernels) for item in self.items])
        self._programs: dict[Any, Program] = {}
        self._last: Program | None = None
        self._snapshot: Snapshot | None = None  # of the parameters that the programs have packed
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        dropped = ("_block", "_programs", "_last", "_snapshot", "_lock", "_kernels")
        return {key: value for key, value in self.__dict__.items() if key not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare()

    def extra_repr(self) -> str:
        return "\n".join(repr(item) for item in self.items if isinstance(item, Item))

    # --- Calls

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the block: [batch, tokens, features] (or token ids) in, [batch, tokens, features] out.

        x: the primary stream (query), also without a batch axis. key, value: streams of their own for the attention.
        residual: what ResidualAdd adds for "input", instead of x.
        attention_mask: [batch, keys], [batch, tokens, keys] or [batch, heads, tokens, keys]; bools and integers say
            which keys are seen, floats are added to the scores. With a cache, its keys and then the call's.
        positions: of the tokens, [tokens] or [batch, tokens].
        Floats have the dtype of the parameters: float32, float16 or bfloat16; ids and positions are int32 or int64.
        Raises `atb.InvalidArgumentError` with the call's signature where arguments do not fit the items, one another,
        or the parameters, and `atb.UnsupportedError` for inputs that require gradients, other dtypes, and live dropout.
        """
        if torch.compiler.is_dynamo_compiling():
            from atb_torch.untraced import call_untraced  # imports what torch.compile has loaded by now

            return call_untraced(self, args, kwargs)
        return self._forward(args, kwargs)

    def _forward(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        arguments = _bind(args, kwargs)
        kv_cache = arguments.pop("kv_cache", None)
        self._check_mode()
        call = take_call(**arguments, past=self._past(kv_cache))
        output = self._run(call) if kv_cache is None else self._run_cached(call, kv_cache)
        if not call.batched:
            output = output[0]
        return (output, kv_cache) if self._block.cached else output

    def _past(self, kv_cache: Any) -> int | None:
        """Tokens that a call finds in its cache; None where it has none. Raises for what is no cache of this block."""
        if kv_cache is None:
            return None
        if not self._block.cached:
            wrong_call("kv_cache is given, but no item has kv_cache=True")
        if not isinstance(kv_cache, KVCache):
            wrong_call(f"kv_cache is a {type(kv_cache).__name__}, expected an atb_torch.KVCache")
        return None if ignores_caches() else kv_cache.held_by(self)

    def _run(self, call: BlockCall) -> torch.Tensor:
        if is_traced(call.tensors):
            return trace(self, call, self._dtype(call))
        program = self.program(call, layer=self.layer)
        with running(program.plugins, lambda: context_of(call, self.layer, 0)):
            return torch.from_dlpack(program.compiled(*call.tensors)[0])

    def _run_cached(self, call: BlockCall, kv_cache: KVCache) -> torch.Tensor:
        """The call's tokens come after those in the cache, which they are appended to."""
        if ignores_caches():
            return self._run(call)
        if is_traced(call.tensors):
            return trace(self, call, self._dtype(call), kv_cache)
        placed = self._block.has("rotary_embedding") and all(name != "positions" for name, _, _ in call.inputs)
        if placed:
            call.add("positions", torch.arange(call.tokens), ("T",))
        layer = kv_cache.first_slot(self) if self.layer is None else self.layer
        program = self.program(call, kv_cache.dtype_name, layer)
        sizes = {(heads, dim) for _, heads, dim in program.cached}
        if len(sizes) > 1:
            unsupported(f"attentions of one block with different heads in a cache: {sorted(sizes)}")
        scopes = [scope for scope, _, _ in program.cached]
        slots = kv_cache.slots_of(self, scopes, *sizes.pop(), where=self.name or "GraphOp")
        past = kv_cache.length_of(slots)
        if placed:
            call.tensors[-1] += past
        with running(program.plugins, lambda: context_of(call, layer, past)):
            return torch.from_dlpack(kv_cache.run(program.compiled, slots, *call.tensors)[0])

    def _check_mode(self) -> None:
        for owner, item in _leaves(self):
            if item.kind == "dropout" and owner.training and item.attrs["p"] > 0:
                name = f"Dropout {item.name}" if item.name else "Dropout"
                unsupported(f"{name} is live (p = {item.attrs['p']}); call .eval()")

    # --- Programs

    def program(self, call: BlockCall, kv_dtype: str | None = None, layer: int | None = None) -> Program:
        """The program of a form of call, made now if there is none or parameters have changed.

        kv_dtype: of the cache that the call appends to; None: none. layer: what plugins are told.
        """
        with self._lock:
            if self._snapshot is None or not self._snapshot.holds():
                self._programs.clear()
            plugins = self.active_plugins()
            key = (call.form, kv_dtype, plugins, layer if in_library(plugins) else None)
            program = self._programs.pop(key, None)
            if program is None:
                self._programs = {k: kept for k, kept in self._programs.items() if not kept.lost_a_plugin()}
                program = self._make(call, kv_dtype, plugins, layer)
            self._programs[key] = program
            while len(self._programs) > _MAX_PROGRAMS:
                del self._programs[next(iter(self._programs))]
            self._last = program
            return program

    def _make(self, call: BlockCall, kv_dtype: str | None, plugins: Active, layer: int | None) -> Program:
        kernels = dict(self._kernels)
        placed = describe_plugins(plugins, kernels, layer if in_library(plugins) else None)
        dtype = self._dtype(call)
        try:
            core, declared, cached, notes = self._build(call.inputs, dtype, placed, known_shapes(self))
        except InvalidArgumentError as error:
            wrong_inputs(error, call)
        for note in notes:
            if note not in self._warned:
                self._warned.add(note)
                warnings.warn(note, stacklevel=8)
        materialize(self, declared)
        for name, _, _, _ in declared:
            parameter = self.get_parameter(name)
            check_tensor(name, parameter)
            core.bind(name, plain(parameter).contiguous())
        graph = atb.Graph(core)
        graph.kernels.update(kernels)
        graph.to_kernel_array = torch.from_dlpack
        scopes = [] if kv_dtype is None else [scope for scope, _, _ in cached]
        compiled = graph.compile(threads=self.threads, cached=scopes, kv_dtype=kv_dtype or "f32")
        self._snapshot = Snapshot(self, ask=False)
        return Program(graph, compiled, cached, plugins)

    def _build(
        self,
        inputs: Sequence[Any],
        dtype: str,
        plugins: Sequence[Described] = (),
        shapes: Mapping[str, list[int]] | None = None,
    ) -> tuple[_core.Graph, list[Declared], list[Cached], list[str]]:
        listed = [(name, kind, list(dims)) for name, kind, dims in inputs]
        return self._block.build(listed, dtype, list(plugins), dict(shapes or {}))

    def _dtype(self, call: BlockCall) -> str:
        """The parameters' dtype, which floats of the call must have too."""
        dtypes = {NAMES.get(parameter.dtype, str(parameter.dtype)) for parameter in self.parameters()}
        if len(dtypes) > 1:
            unsupported(
                f"parameters are of several dtypes: {', '.join(sorted(dtypes))}; make them one, as with .half()"
            )
        for name, dtype, _ in call.inputs:
            if name == "attention_mask" or not dtype.startswith(("f", "bf")):
                continue
            dtypes = dtypes or {dtype}
            if dtype not in dtypes:
                wrong_call(f"{name} is {dtype}, the block {min(dtypes)}; convert one of them, as with .to()")
        return min(dtypes, default="f32")

    # --- Plugins

    def plugin_points(self) -> list[str]:
        """Where plugins may be registered: `pre_X` and `post_X` for each item, nested ones too.

        X is the item's name (its index, where it has none), or what it is: attention, norm, linear, activation, mlp,
        residual, or the kind itself; a name comes before a kind that is called the same.
        """
        return self._block.plugin_points

    def register_plugin(self, point: str, plugin: Plugin | LibraryPlugin) -> PluginHandle:
        """Calls from now on run a plugin at a point, after those that were registered there before.

        At `pre_X` it gets the inputs of X in `preprocess` and its outputs in `postprocess`; at `post_X` the outputs. An
        attention's inputs are (q, k, v), each [batch, heads, tokens, head_dim], rotated, before the cache; a residual
        sum's are (x, residual); those of other items come as they come: several where key and value are streams of
        their own or the item before gives several.
        The block keeps it as an object of its own, so that parameters in it are no part of the block's state.
        Raises `atb.InvalidArgumentError` for a point that is none, listing all, or a plugin that would do nothing.
        """
        return self._plugins.add(point, plugin, self.plugin_points())

    def active_plugins(self) -> Active:
        """The enabled plugins of this block and of those inside it, in order of registration."""
        found = [("", one) for one in self._plugins.enabled()]
        for path, nested in _nested(self.items, ""):
            found += [(f"{path}.{within}" if within else path, one) for within, one in nested.active_plugins()]
        return tuple(sorted(found, key=lambda place: place[1].order))

    def program_key(self) -> Any:
        """What a program of a module that this block is part of depends on, beside parameters and attributes."""
        return self.active_plugins()

    # --- What it became

    @property
    def graph(self) -> atb.Graph:
        """The plain graph of the last call, before any optimization."""
        return self._latest().graph

    @property
    def compiled(self) -> atb.CompiledGraph:
        """The fused graph that ran last."""
        return self._latest().compiled

    def report(self, tokens: int = 512) -> Any:
        """What was fused, and what was not and why, in the graph that ran last; it prints as a table."""
        return self._latest().compiled.report(tokens)

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """Calls the block, as itself, and tells what happened inside: launches, nodes, where the time went."""
        with profiled() as entries:
            self(*args, **kwargs)
        return entries[-1]

    def _latest(self) -> Program:
        if self._last is None:
            raise FailedPreconditionError("[GraphOp] nothing is compiled yet; call the block once")
        return self._last

    # --- States

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        names = [name for name in self._block.parameter_names if prefix + name in state_dict]
        self._take_shapes({name: tuple(state_dict[prefix + name].shape) for name in names})
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _take_shapes(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Gives parameters without a shape those of a state, after checking that they belong together."""
        shapes = {name: shape for name, shape in shapes.items() if shape != (0,)}
        if not any(is_lazy(self.get_parameter(name)) for name in shapes):
            return
        dtype = NAMES.get(next(self.parameters()).dtype, "f32")
        best: list[str] | None = None
        for declared in self._candidates(shapes, dtype):
            wrong = [
                f"item {name.rpartition('.')[0]}: its {name.rpartition('.')[2]} is {list(shapes[name])} in the state, "
                f"expected {list(shape)}"
                for name, shape, _, _ in declared
                if name in shapes and shapes[name] != tuple(shape)
            ]
            if not wrong:
                materialize(self, declared)
                return
            best = wrong if best is None or len(wrong) < len(best) else best
        if best is not None:
            raise InvalidArgumentError(f"[GraphOp] {'; '.join(best)}")
        # No width alone says it (another residual, say): the first call checks.
        materialize(self, [(name, list(shape), "zeros", 1.0) for name, shape in shapes.items()])

    def _candidates(self, shapes: dict[str, tuple[int, ...]], dtype: str) -> Iterator[list[Declared]]:
        """Parameters of calls whose inputs are as wide as these shapes may come from."""
        kinds: list[tuple[str, tuple[int | str, ...]]] = [
            (dtype, ("B", "T", width)) for width in widths_to_try(shapes.values())
        ]
        if _takes_ids(self.items):
            kinds = [("i64", ("B", "T"))]
        for kind, dims in kinds:
            try:
                yield self._build([("x", kind, dims)], dtype)[1]
            except InvalidArgumentError:
                continue


_SIGNATURE = inspect.Signature(
    [inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    + [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
        for name in ("key", "value", "residual")
    ]
    + [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in ("kv_cache", "attention_mask", "positions")
    ]
)


# What inspection shows for the method, which takes anything so that a wrong call can be answered with it.
GraphOp.forward.__signature__ = _SIGNATURE.replace(  # type: ignore[attr-defined]
    parameters=[inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *_SIGNATURE.parameters.values()]
)


def _bind(args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(_SIGNATURE.bind(*args, **kwargs).arguments)
    except TypeError as error:
        wrong_call(str(error))


def check_name(name: Any) -> str | None:
    """A block's name, if it is one."""
    if name is not None and (not isinstance(name, str) or not name):
        raise InvalidArgumentError(f"[GraphOp] name={name!r}; expected text, or None for no name")
    return name


def check_list(items: Any) -> tuple[Any, ...]:
    """The items as a tuple; what each is `describe` checks."""
    if isinstance(items, (list, tuple)):
        return tuple(items)
    raise InvalidArgumentError(
        f"[GraphOp] items is of type {type(items).__name__}; expected a list, as in GraphOp([LayerNorm(), SiLU()])"
    )


def describe(item: Any, kernels: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    """An item as the core takes it; its Python callables are added to `kernels`."""
    if isinstance(item, GraphOp):
        inside = [describe(one, kernels) for one in item.items]
        return {"kind": "graph", "name": item.name or "", "attrs": {}, "branches": [inside]}
    if not isinstance(item, Item):
        raise InvalidArgumentError(
            f"[GraphOp] a {type(item).__name__} is no item; items are made by atb_torch.Linear(...) and the like, "
            "other code goes into atb_torch.Custom(...)"
        )
    attrs = dict(item.attrs)
    if item.function is not None:
        attrs["kernel"] = f"python:{attrs['target']}#{len(kernels)}"
        kernels[attrs["kernel"]] = item.function
    branches = [[describe(one, kernels) for one in branch] for branch in item.branches]
    return {"kind": item.kind, "name": item.name or "", "attrs": attrs, "branches": branches}


def _nested(items: Sequence[Any], prefix: str, indexed: str | None = None) -> Iterator[tuple[str, GraphOp]]:
    """The GraphOps inside, with the prefix of their parameters."""
    indexed = prefix if indexed is None else indexed
    for index, item in enumerate(items):
        named = item.name is not None and item.name not in _CALL_NAMES
        path = f"{prefix}{item.name}" if named else f"{indexed}{index}"
        if isinstance(item, GraphOp):
            yield path, item
            continue
        for number, branch in enumerate(item.branches):
            yield from _nested(branch, prefix, f"{path}.{number}.")


def _leaves(block: GraphOp) -> Iterator[tuple[GraphOp, Item]]:
    """All items, those of nested blocks and branches too, with the GraphOp that they are in."""

    def walk(owner: GraphOp, items: Sequence[Any]) -> Iterator[tuple[GraphOp, Item]]:
        for item in items:
            if isinstance(item, GraphOp):
                yield from walk(item, item.items)
                continue
            yield owner, item
            for branch in item.branches:
                yield from walk(owner, branch)

    return walk(block, block.items)


def _takes_ids(items: Sequence[Any]) -> bool:
    """Whether the block's input are token ids."""
    first = items[0]
    if isinstance(first, GraphOp):
        return _takes_ids(first.items)
    if first.kind == "branch":
        return any(_takes_ids(branch) for branch in first.branches if branch)
    return bool(first.kind == "embedding")
