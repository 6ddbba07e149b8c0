# SPDX-License-Identifier: Apache-2.0
"""`compile`: a module as a callable that runs in ATB, and `import_module`: a module as a graph."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import atb
import torch
from atb import _core
from atb.generation import as_int

from atb_torch.caches import CachedCall, find_home, tokens_of
from atb_torch.checks import check_arguments, check_mode, check_module, check_unshared, plain
from atb_torch.errors import unsupported
from atb_torch.exporting import (
    Call,
    Entry,
    Exported,
    Outputs,
    Sizes,
    bind_arguments,
    export,
    take_apart,
    ways_to_export,
)
from atb_torch.freshness import Snapshot
from atb_torch.guards import Guards
from atb_torch.importer import Imported, State, import_program
from atb_torch.kv_cache import KVCache
from atb_torch.ones import same_at_one
from atb_torch.options import (
    MODELS_OWN,
    ModelsOwn,
    as_level,
    as_threads,
    check_optimizer,
    note_fixed_sizes,
    note_unbuilt,
    set_mode,
)
from atb_torch.releasing import release_parameters
from atb_torch.stopping import Stop, StopRule

_MAX_VARIANTS = 8  # programs kept for one form of call; each has packed weights of its own
_EXPORT = threading.RLock()  # torch.export traces for one thread at a time, whichever module


def exporting_alone() -> AbstractContextManager[Any]:
    """What a thread holds while it exports, or runs modules without data."""
    return _EXPORT


_MAX_FORMS = 16  # forms of call kept, the oldest goes: a number that is another one at each call makes no end of them


@dataclass(eq=False)
class Variant:
    """A program: its compiled graph, the calls that it is right for, and how calls and outputs are put together."""

    compiled: atb.CompiledGraph
    entry: Entry
    outputs: Outputs
    arguments: list[int]  # which of the call's tensors the graph reads
    states: list[State]
    guards: Guards
    sizes: dict[str, int]  # of symbols, as exported
    cached: CachedCall | None = None  # where declared blocks append to a cache
    fixed: bool = False  # serves the sizes alone that it was made for
    right_at_one: dict[frozenset[str], bool] = field(default_factory=dict)  # by the symbols that are 1

    def accepts(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether the program is right for tensors of these dtypes and sizes."""
        sizes = self.guards.bind(tensors)
        return sizes is not None and self._is_right_at(frozenset(name for name, size in sizes.items() if size == 1))

    def _is_right_at(self, ones: frozenset[str]) -> bool:
        if ones and ones not in self.right_at_one:
            at_one = self.guards.like({**self.sizes, **dict.fromkeys(ones, 1)})
            with _EXPORT:
                self.right_at_one[ones] = same_at_one(self.entry, at_one, self.guards.like(self.sizes))
        return not ones or self.right_at_one[ones]

    def decide_ones(self) -> None:
        """Finds out now for which sizes of 1 the program is right: later there may be no module to ask."""
        names = list(self.sizes)
        for count in range(1, len(names) + 1):
            for ones in itertools.combinations(names, count):
                self._is_right_at(frozenset(ones))

    def run(self, tensors: Sequence[torch.Tensor], cache: KVCache | None = None) -> Any:
        """The module's outputs for the tensors and the cache of a call; what the module writes to is written."""
        states = [self._tensor_of(state, tensors) for state in self.states]
        held = [tensor for state, tensor in zip(self.states, states, strict=True) if state.argument < 0]
        arrays = [plain(tensor) for tensor in (*(tensors[number] for number in self.arguments), *held)]
        if self.cached is None or cache is None:
            made = self.compiled(*arrays)
        else:
            made = self.cached.run(self.compiled, cache, tensors, arrays)
        results = [torch.from_dlpack(result) for result in made]
        count = len(results) - len(states)
        with torch.no_grad():
            for state, result in zip(states, results[count:], strict=True):
                state.copy_(result)
        return self.outputs.rebuild(results[:count], cache)

    def written(self) -> list[torch.Tensor]:
        """The buffers and other tensors of the module that it writes to."""
        return [self._tensor_of(state, ()) for state in self.states if state.argument < 0]

    def _tensor_of(self, state: State, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        if state.argument < 0:
            tensor = self.entry.get_buffer(state.buffer) if state.buffer else state.tensor
            assert tensor is not None
            return tensor
        tensor = tensors[state.argument]
        check_unshared(state.argument, tensors)
        return tensor


class CompiledModule(torch.nn.Module):
    """A module that runs in ATB: the signature and the outputs of the module that it was made of.

    It keeps one program for each form of call (which arguments there are, values of those that are no tensors), and
    makes another where sizes do not fit: export takes what a module decides by sizes as decided. A module whose sizes
    cannot stay open has a program for each set of sizes.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        optimizer: Any = None,
        release: bool = False,
        threads: int = 0,
        opt_level: int = 3,
    ) -> None:
        """Users call `atb_torch.compile`."""
        super().__init__()
        check_module(model)
        self.module = model
        self._optimizer = optimizer
        self._release = release
        self._released_by = ""  # the method whose program has taken the parameters
        self._options: dict[str, Any] = {"threads": threads, "opt_level": opt_level}
        self._variants: dict[Any, list[Variant]] = {}
        self._last: Variant | None = None
        self._engine: Any = None  # of generate(), made when first needed
        self._snapshot: Snapshot | None = None  # of the module that the programs and the engine were made of
        self._lock = threading.RLock()
        self.forward = _with_signature(self._forward, model)
        self.training = False  # some modules, of exported programs, forbid eval()

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles hold the module, and compile it again at their first call."""
        if self._released_by:
            unsupported("the parameters were released, so that there is nothing to copy; compile without release")
        left_out = ("forward", "_variants", "_last", "_engine", "_snapshot", "_lock")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._variants, self._last, self._engine, self._snapshot = {}, None, None, None
        self._lock = threading.RLock()
        self.forward = _with_signature(self._forward, self.module)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        call = call_of(self.module, args, kwargs)
        check_arguments(call)
        check_mode(self.module)
        variant = self.prepare(call)
        cache = None if variant.cached is None else variant.cached.home.get(self.module, call)
        return variant.run([leaf.tensor for leaf in call.leaves], cache)

    def prepare(self, call: Call) -> Variant:
        """The program for a call, made now if there is none."""
        tensors = [leaf.tensor for leaf in call.leaves]
        with self._lock:
            self._forget_if_changed()
            variants = self._variants.get(call.key, [])
            self._last = next((variant for variant in variants if variant.accepts(tensors)), None)
            if self._last is not None:
                variants.remove(self._last)  # what was not used for longest goes first
                variants.append(self._last)
            else:
                self._last = self._add(call, variants)
                self._variants[call.key] = variants
                while len(self._variants) > _MAX_FORMS:
                    del self._variants[next(iter(self._variants))]
                self._remember()
            return self._last

    def _add(self, call: Call, variants: list[Variant]) -> Variant:
        """A program that is right for a call. One of other sizes than the call's is tried first: it serves more."""
        self._require_parameters("this call needs another program")
        fixed = any(variant.fixed for variant in variants)
        made = [self._make(call, Sizes.FIXED if fixed else Sizes.OWN if variants else Sizes.ANY)]
        if not made[0].accepts([leaf.tensor for leaf in call.leaves]):
            made.append(self._make(call, Sizes.OWN))
        if self._release:
            for variant in made:
                variant.decide_ones()
            self._give_up_parameters("forward()", *(variant.entry for variant in made))
        variants += made
        del variants[:-_MAX_VARIANTS]
        return made[-1]

    def _forget_if_changed(self) -> None:
        """Drops what was packed from weights that are others now; it is made anew when needed."""
        if self._snapshot is not None and not self._snapshot.holds():
            self._variants, self._last, self._engine, self._snapshot = {}, None, None, None

    def _remember(self) -> None:
        """Notes what everything that is kept was made of."""
        if not self._released_by:  # else nothing can be made anew
            self._snapshot = Snapshot(self.module, (held for kept in self.variants for held in kept.written()))

    def _require_parameters(self, why: str) -> None:
        if self._released_by:
            unsupported(f"{self._released_by} has released the parameters, and {why}; compile without release")

    def _give_up_parameters(self, method: str, *others: torch.nn.Module) -> None:
        self._released_by = method
        release_parameters(self.module, *others)

    def _make(self, call: Call, sizes: Sizes) -> Variant:
        """A program that leaves open what `sizes` say, or less where nothing else can be proven."""
        refusal: atb.UnsupportedError | None = None
        for way in ways_to_export(call, sizes):
            try:
                made = self._make_at(call, way)
            except atb.UnsupportedError as error:
                refusal = error
                continue
            if way is Sizes.FIXED and refusal is not None:
                note_fixed_sizes(type(self.module).__name__, _MAX_VARIANTS, refusal)
            return made
        assert refusal is not None
        raise refusal

    def _make_at(self, call: Call, sizes: Sizes) -> Variant:
        exported, imported = import_call(self.module, call, self._optimizer, sizes)
        assert exported.entry is not None
        home = find_home(self.module, call, exported.caches)
        cached, options = None, dict(self._options)
        if home is not None:
            cached = CachedCall(home, imported.cached, tokens_of(imported), imported.placed)
            options["cached"] = [attention.scope for attention in imported.cached]
            options["kv_dtype"] = home.get(self.module, call).dtype_name
        return Variant(
            compiled=imported.graph.compile(**options),
            entry=exported.entry,
            outputs=exported.outputs,
            arguments=imported.arguments,
            states=imported.states,
            guards=imported.guards,
            sizes=imported.guards.bind(exported.examples) or {},
            cached=cached,
            fixed=sizes is Sizes.FIXED,
        )

    def __getattr__(self, name: str) -> Any:
        """What the module has and this one has not, as its configuration or its cache."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):  # how copies and the like ask for what a class can do
                raise
            return getattr(super().__getattr__("module"), name)

    @property
    def variants(self) -> list[Variant]:
        """The programs kept so far."""
        return [variant for variants in self._variants.values() for variant in variants]

    @property
    def graph(self) -> atb.CompiledGraph:
        """The fused graph that ran last."""
        return self._latest().compiled

    def _latest(self) -> Variant:
        if self._last is None:
            raise atb.FailedPreconditionError(
                "[atb_torch] nothing is compiled yet; call the module once, or give example_inputs"
            )
        return self._last

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        eos_token_id: int | Sequence[int] | ModelsOwn | None = MODELS_OWN,
        pad_token_id: int | None = None,
        stop: Stop | None = None,
        streamer: Any = None,
        tokenizer: Any = None,
        **options: Any,
    ) -> torch.Tensor:
        """Continues each row of `input_ids` [B, T], step by step with a key/value cache; see `generation.generate`.

        attention_mask: zero where a row is padded; positions count from a row's first token. Without it the model's
            padding token marks padding, unless it is an end token too.
        eos_token_id: what ends a row, by default the model's own; None, or an empty sequence: nothing does.
        pad_token_id: what fills ended rows, by default the model's own.
        stop: what else ends a row and stays in it: a string, token ids in a row, or a list of such; strings need
            `tokenizer`, anything that decodes ids.
        streamer: gets the prompt and then each token as it is chosen, as transformers' TextStreamer; for one row.
        options: max_new_tokens, temperature (0: greedy), top_k, top_p, seed (row i draws with seed + i, as it would
            alone with that seed).
        """
        from atb_torch import decoder
        from atb_torch.generation import generate, prompt_rows, sampling_options

        sampling = sampling_options(options)
        prompt_rows(input_ids, attention_mask)
        ends = None if isinstance(eos_token_id, ModelsOwn) else decoder.as_ids(eos_token_id)
        fill = None if pad_token_id is None else as_int(pad_token_id, "pad_token_id")
        check_mode(self.module)
        with self._lock:  # two callers make one engine
            self._forget_if_changed()
            if self._engine is None:
                self._require_parameters("generate() needs a program of its own")
                self._engine = self._make_engine()
                if self._release:
                    self._give_up_parameters("generate()")
                self._remember()
            engine = self._engine
        fill = fill if fill is not None else decoder.pad_token_id(self.module)
        rule = StopRule(decoder.end_token_ids(self.module) if ends is None else ends, stop, tokenizer)
        return generate(
            engine, input_ids, attention_mask, sampling=sampling, rule=rule, pad_token_id=fill, streamer=streamer
        )

    def _make_engine(self) -> Any:
        """The native one; where blocks have plugins, one that calls the forward behind a cache."""
        from atb_torch import decoder, plugin_generation

        points = plugin_generation.active_points(self.module)
        if points:
            return plugin_generation.make_engine(self, points, self._optimizer)
        return decoder.make_engine(self.module, optimizer=self._optimizer, **self._options)

    def report(self) -> Any:
        """What was fused, and what was not and why, in the program that ran last."""
        return self._latest().compiled.report()


def _with_signature(function: Any, model: torch.nn.Module) -> Any:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    forward = torch.compiler.disable(forward)  # where it is part of what torch.compile traces
    setattr(forward, "__signature__", inspect.signature(model.forward))  # noqa: B010
    forward.__doc__ = model.forward.__doc__
    return forward


def call_of(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """The arguments of a call, without a cache where the module could have one."""
    arguments = bind_arguments(model, args, kwargs)
    if arguments.get("past_key_values") is not None:
        unsupported("past_key_values is given; ATB keeps the cache itself: call generate(), or pass the whole sequence")
    if "use_cache" in inspect.signature(model.forward).parameters:
        arguments["use_cache"] = False
    return take_apart(arguments)


def import_call(
    model: torch.nn.Module, call: Call, optimizer: Any = None, sizes: Sizes = Sizes.ANY
) -> tuple[Exported, Imported]:
    """A call exported and imported, after the patterns of `optimizer`, with nothing left that ATB does not know."""
    with _EXPORT:
        exported = export(model, call, sizes)
        imported = import_program(exported, type(model).__name__)
    if optimizer is not None:
        optimizer.apply(imported.graph)
    require_lowered(imported, imported.graph)
    return exported, imported


def require_lowered(imported: Imported, graph: atb.Graph) -> None:
    """Refuses a graph in which operators are left that ATB does not know: all of them in one message."""
    left = {node.name for node in graph.nodes if node.name in graph.origins} if imported.missing else set()
    counts = Counter(str(missing) for missing in imported.missing if missing.node in left)
    if counts:
        listed = "; ".join(f"{line}" + (f" ({count} times)" if count > 1 else "") for line, count in counts.items())
        total = sum(counts.values())
        unsupported(f"{total} operator{'s' if total > 1 else ''} cannot be lowered: {listed}")


def example_call(model: Any, module: torch.nn.Module, example_inputs: Any) -> Call | None:
    """A call from what users give: a tensor, a sequence of positional arguments, or a mapping of named ones.

    Without them that of `model` where it is an exported program, which has its own; else None.
    """
    if example_inputs is None:
        if not isinstance(model, torch.export.ExportedProgram):
            return None
        args, kwargs = model.example_inputs
        return call_of(module, args, kwargs)
    if isinstance(example_inputs, torch.Tensor):
        return call_of(module, (example_inputs,), {})
    if isinstance(example_inputs, Mapping):
        return call_of(module, (), example_inputs)
    return call_of(module, tuple(example_inputs), {})


def as_module(model: Any) -> torch.nn.Module:
    """The module of what users pass: a module, or an exported program."""
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        unsupported(
            "a ScriptModule has no FX graph, and only FX graphs can be optimized; pass the original module, as it was "
            "before torch.jit.script or torch.jit.trace"
        )
    if isinstance(model, torch.export.ExportedProgram):
        return model.module()
    if isinstance(model, CompiledModule):
        return model.module
    if not isinstance(model, torch.nn.Module):
        raise atb.InvalidArgumentError(
            f"[atb_torch] a {type(model).__name__} is no torch.nn.Module, exported program or fx GraphModule"
        )
    return model


def compile(
    model: Any,
    example_inputs: Any = None,
    *,
    optimizer: Any = None,
    release: bool = False,
    log_level: str | None = None,
    threads: int = 0,
    mode: str | None = None,
    opt_level: int = 3,
    enable_prefix_caching: bool = False,
    enable_speculative: bool = False,
) -> CompiledModule:
    """Makes a module fast: exported, fused, planned and run by ATB, on the CPU.

    model: a `torch.nn.Module` in eval mode, an exported program, or an fx GraphModule.
    example_inputs: a tensor, a sequence of arguments, or a mapping of named ones, of any batch and length; without
        them the module is imported at the first call.
    optimizer: an `atb.GraphOptimizer` whose patterns run before ATB's own.
    release: takes the parameters from the module when the first program is made of it, by a call or by `generate`,
        which then holds them in packed form alone. The module cannot be called itself afterwards, and there is no
        second program. An error on the way leaves the module as it was.
    log_level: "debug" logs every pattern, matched or not, by layer.
    threads: workers; 0 takes what the affinity mask and the CPU quota allow.
    mode: "infer", the only one, puts the module into eval mode; None takes it as it is, and refuses training mode.
    opt_level: 0 as written; 1 canonical form and folding; 2 fusions too; 3 independent nodes side by side, and buffers
        that share memory, too.
    enable_prefix_caching, enable_speculative: not built yet: the model runs without, and says so once.
    Raises `atb.UnsupportedError` with the reason for what cannot be compiled; operators without a lowering are listed
    all at once with the modules that call them.
    """
    check_optimizer(optimizer)
    options = {"threads": as_threads(threads), "opt_level": as_level(opt_level)}
    note_unbuilt(enable_prefix_caching, enable_speculative)
    if log_level is not None:
        _core.set_log_level(log_level)
    module = as_module(model)
    set_mode(module, mode)
    compiled = CompiledModule(module, optimizer=optimizer, release=release, **options)
    call = example_call(model, module, example_inputs)
    if call is not None:
        compiled.prepare(call)
    return compiled


def import_module(model: Any, example_inputs: Any = None) -> atb.Graph:
    """The plain graph of a module, an exported program or an fx GraphModule, before any optimization.

    Operators that ATB does not know are `external` nodes; `graph.origins` says what they were.
    """
    module = as_module(model)
    check_module(module)
    call = example_call(model, module, example_inputs)
    if call is None:
        raise atb.InvalidArgumentError("[atb_torch] example_inputs are needed to import a module")
    check_arguments(call)
    with _EXPORT:
        return import_program(export(module, call), type(module).__name__).graph
