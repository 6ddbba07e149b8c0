# SPDX-License-Identifier: Apache-2.0
"""From an exported program to an ATB graph of plain operators."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import atb
import torch
from atb._core import BuilderValue, GraphBuilder
from torch.export.graph_signature import InputKind

from atb_torch import aliasing
from atb_torch.aliasing import Alias, Storage, View
from atb_torch.context import Cached, Context, Place, layer_of
from atb_torch.decompose import decompose, tensor_arguments
from atb_torch.dtypes import NAMES, dtype_name
from atb_torch.errors import Refused, Unequal, unsupported
from atb_torch.exporting import ROOT, Exported
from atb_torch.guards import Guards, guards_of
from atb_torch.kept import FUNCTIONS
from atb_torch.lowering import TABLE
from atb_torch.origins import Origins, is_users, operator_name
from atb_torch.symbols import SymbolNames

_MAX_EXTENT = (1 << 31) - 1  # positions are counted in i32


@dataclass
class Missing:
    """An operator that has no lowering, or a form of one that is refused, and the module that calls it."""

    node: str
    target: str
    scope: str
    reason: str

    def __str__(self) -> str:
        return f"{self.target} in {self.scope or 'the module itself'}: {self.reason}"


@dataclass
class State:
    """A tensor that the module writes to: fed as an input, and written back from an output of the same index."""

    tensor: torch.Tensor | None  # what is written to; None for an argument of the call
    argument: int = -1  # which of the call's tensors it is
    buffer: str = ""  # name among the entry's buffers, which users may assign anew; empty for other tensors


@dataclass
class Imported:
    """A graph with what the caller must know to run it.

    The graph's inputs are the call's tensors that it reads (`arguments`: their numbers), then the buffers it writes to.
    Its outputs are the module's tensors, then the new contents of `states`.
    """

    graph: atb.Graph
    arguments: list[int]
    states: list[State]
    guards: Guards
    missing: list[Missing] = field(default_factory=list)
    cached: list[Cached] = field(default_factory=list)  # attentions with a cache
    placed: bool = False  # the last input are the positions of a cached call


# Checks that export leaves in the program. What they say of sizes is among the guards; dtypes and devices are what
# export saw, which the caller compares with its tensors.
_PROVEN = frozenset(
    (
        "aten._assert_tensor_metadata.default",
        "aten._assert_scalar.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
        "aten._assert_async.msg",
    )
)


def import_program(exported: Exported, name: str) -> Imported:
    """Lowers every node; what cannot be lowered becomes an `external` node and is listed in `missing`."""
    merged: dict[str, int | str] = {}
    while True:
        importer = _Importer(exported, name, merged)
        try:
            return importer.run()
        except Unequal as found:  # sizes of inputs: at most as many rounds as there are
            importer.merge(found, merged)


class _Importer:
    def __init__(self, exported: Exported, name: str, merged: dict[str, int | str]) -> None:
        self._exported = exported
        self._program = exported.program
        self._guards = guards_of(exported.program)
        example = self._guards.bind(exported.examples) or {}
        self._guards.merged.update(merged)
        self._ctx = Context(GraphBuilder(name), SymbolNames(merged), example=example, not_one=self._guards.not_one)
        self._values: dict[torch.fx.Node, Any] = {}  # Alias, a list of Alias, or a symbolic number
        self._missing: list[Missing] = []
        self._origins = Origins()
        self._states: list[tuple[torch.fx.Node, State]] = []
        self._written: set[torch.fx.Node] = set()

    def run(self) -> Imported:
        nodes = list(self._program.graph.nodes)
        self._find_writes(nodes)
        arguments = self._add_placeholders([node for node in nodes if node.op == "placeholder"])
        for node in nodes:
            if node.op == "call_function":
                self._lower(node)
        self._finish(nodes[-1])
        graph = atb.Graph(self._ctx.builder.finish())
        self._origins.give_to(graph)
        graph.kernels.update(self._ctx.kernels)
        graph.to_kernel_array = torch.from_dlpack
        states = [state for _, state in self._states]
        placed = self._ctx.positions is not None
        return Imported(graph, arguments, states, self._guards, self._missing, self._ctx.cached, placed)

    def merge(self, found: Unequal, merged: dict[str, int | str]) -> None:
        """Notes that two sizes are equal in every call, or refuses where they are not in the example."""
        symbols, example = self._ctx.symbols, self._ctx.example
        key, other = symbols.of(found.size), found.other
        if isinstance(other, str):
            other = symbols.of(other) or unsupported(f"the sizes {found.size} and {found.other} must be equal")
        sizes = [size if isinstance(size, int) else example.get(size) for size in (key or found.size, other)]
        if sizes[0] != sizes[1]:
            unsupported(f"the sizes {sizes[0]} and {sizes[1]} of inputs do not go together: they must be equal")
        assert key is not None
        merged[key] = other

    # --- Inputs and constants

    def _find_writes(self, nodes: Sequence[torch.fx.Node]) -> None:
        """Notes the placeholders that something writes to, through whatever views."""
        bases: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in nodes:
            viewed = node.args[0] if node.target is operator.getitem else aliasing.viewed_argument(node)
            if aliasing.is_mutable(node) and isinstance(node.args[0], torch.fx.Node):
                viewed = node.args[0]
                self._written.add(bases.get(viewed, viewed))
            if isinstance(viewed, torch.fx.Node):
                bases[node] = bases.get(viewed, viewed)

    def _add_placeholders(self, nodes: Sequence[torch.fx.Node]) -> list[int]:
        specs = self._program.graph_signature.input_specs
        user = [node for node, spec in zip(nodes, specs, strict=True) if spec.kind is InputKind.USER_INPUT]
        self._define_symbols(user)
        arguments = []
        for number, node in enumerate(user):
            if node.users or node in self._written:
                arguments.append(number)
                self._set(node, self._add_input(node, self._exported.inputs[number]))
                if node in self._written:
                    self._states.append((node, State(None, number)))
        for node, spec in zip(nodes, specs, strict=True):
            if spec.kind is not InputKind.USER_INPUT and (node.users or node in self._written):
                self._add_held(node, spec)
        return arguments

    def _define_symbols(self, user: Sequence[torch.fx.Node]) -> None:
        """Every size of an input that is a symbol of its own: B and T of [B, T, ...], others by number."""
        names = self._exported.inputs
        order = sorted(range(len(user)), key=lambda i: (names[i] != "input_ids", i))
        for number in order:
            value = user[number].meta["val"]
            if not isinstance(value, torch.Tensor):
                continue
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    self._define_symbol(size.node.expr, self._wanted(names[number], value, axis))

    @staticmethod
    def _wanted(name: str, value: torch.Tensor, axis: int) -> str | None:
        sequence = value.dim() == 2 and not value.is_floating_point()
        return ("B", "T")[axis] if axis < 2 and (sequence or value.dim() == 3) else None

    def _define_symbol(self, symbol: Any, wanted: str | None) -> None:
        if str(symbol) in dict(self._ctx.symbols.items()):
            return
        known = set(dict(self._ctx.symbols.items()).values())
        name = self._ctx.symbols.define(symbol, wanted)
        bounds = self._program.range_constraints.get(symbol)
        low, high = 1, _MAX_EXTENT
        if bounds is not None:
            # Export takes every dynamic size to be 2 or more; what that hides at 1 is checked apart.
            low = 1 if bounds.lower <= 2 else int(bounds.lower)
            high = min(high, int(bounds.upper)) if bounds.upper.is_Integer else high
        if name not in known and not name.isdecimal():
            self._ctx.builder.add_symbol(name, low, high)
        self._guards.ranges[str(symbol)] = (low, high)

    def _add_input(self, node: torch.fx.Node, name: str) -> BuilderValue:
        value = node.meta["val"]
        return self._ctx.builder.add_input(name, dtype_name(value.dtype), list(self._ctx.symbols.shape(value.shape)))

    def _add_held(self, node: torch.fx.Node, spec: Any) -> None:
        """A parameter, buffer or constant; one that is written to is state, which is fed in."""
        name = str(spec.target).removeprefix(f"{ROOT}.")
        tensor = self._held(spec)
        if node not in self._written:
            self._set(node, self._ctx.constant(name, tensor))
            return
        if spec.kind is InputKind.PARAMETER:
            unsupported(f"the module changes its parameter {name} in place; only buffers may change")
        self._set(node, self._add_input(node, name))
        known = self._exported.entry is not None and spec.kind is InputKind.BUFFER
        self._states.append((node, State(tensor, buffer=spec.target if known else "")))

    def _held(self, spec: Any) -> torch.Tensor:
        entry = self._exported.entry
        if entry is not None and spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            get = entry.get_parameter if spec.kind is InputKind.PARAMETER else entry.get_buffer
            return get(spec.target)  # the module's own, which the program may have copied
        table = self._program.state_dict if spec.target in self._program.state_dict else self._program.constants
        tensor = table[spec.target]
        if not isinstance(tensor, torch.Tensor):
            unsupported(f"the module holds {spec.target}, a {type(tensor).__name__}; only tensors are supported")
        return tensor

    # --- Nodes

    def _lower(self, node: torch.fx.Node) -> None:
        if self._set_number(node) or str(node.target) in _PROVEN:
            return
        self._ctx.place = self._place(node)
        self._ctx.out = node.meta.get("val")
        try:
            if is_users(node.target):  # a view of what was written is made anew here, and is no part of the operator
                self._arguments(node)
            self._ctx.made.clear()
            value, results = self._apply(node)
            self._set_results(node, value)
            self._note_origin(node, results)
        except (Refused, atb.Error) as error:
            self._set_results(node, self._external(node, str(error)))
        except TypeError as error:  # arguments that the lowering does not take
            self._set_results(node, self._external(node, f"this form is not supported: {error}"))

    def _set_number(self, node: torch.fx.Node) -> bool:
        """Keeps a size, or a member of a list, which needs no node; False for other values."""
        value = node.meta.get("val")
        if node.target is operator.getitem and isinstance(self._values.get(node.args[0]), list):
            self._values[node] = self._values[node.args[0]][node.args[1]]
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
            self._values[node] = value
        else:
            return False
        return True

    def _note_origin(self, node: torch.fx.Node, results: list[BuilderValue]) -> None:
        made = self._ctx.made
        if is_users(node.target):
            self._origins.set_whole(node.target, made, map(self._argument, tensor_arguments(node)), results)
        else:
            self._origins.set_results(node.target, made, results)

    def _apply(self, node: torch.fx.Node) -> tuple[Any, list[BuilderValue]]:
        """What stands for the node from now on, and the results of its call, which differ where it writes in place:
        then they are the new contents of what it writes to.
        """
        if aliasing.is_mutable(node):
            written = self._values[aliasing.written_argument(node)]
            result = self._in_place_value(node, written.read())
            written.write(self._ctx, result)
            return written, [result]
        program = None if str(node.target) in TABLE else decompose(node)
        if program is not None:
            value = self._inline(node, program)
        else:
            value = self._call(node, str(node.target), self._arguments(node))
        return value, list(value) if isinstance(value, list) else [value]

    def _inline(self, node: torch.fx.Node, program: torch.fx.GraphModule) -> Any:
        """The value of an operator by its definition in others; `Refused` if one of those has no lowering."""
        *body, output = program.graph.nodes
        inputs = [inner for inner in body if inner.op == "placeholder"]
        for inner, operand in zip(inputs, tensor_arguments(node), strict=True):
            self._set(inner, self._argument(operand))
        for inner in body:
            if inner.op == "call_function" and not self._set_number(inner):
                self._ctx.out = inner.meta["val"]
                value, _ = self._apply(inner)
                self._set_results(inner, value)
        self._ctx.out = node.meta["val"]
        return self._argument(output.args[0])

    def _in_place_value(self, node: torch.fx.Node, before: BuilderValue) -> BuilderValue:
        args, kwargs = self._arguments(node)
        name = str(node.target)
        ctx = self._ctx
        if name.startswith("aten.zero_."):
            after = ctx.scalar(0 if before.dtype in ("i32", "i64") else 0.0, before.dtype)
        elif name.startswith(("aten.copy_.", "aten.fill_.")):
            after = ctx.operand(args[1], before.dtype)
        else:
            packet, overload = name.removeprefix("aten.").split(".")
            functional = f"aten.{packet.removesuffix('_')}.{overload}"
            after = self._call(node, functional, ([before, *args[1:]], kwargs))
        return ctx.broadcast(ctx.cast(after, before.dtype), before.shape)

    def _call(self, node: torch.fx.Node, name: str, arguments: tuple[list[Any], dict[str, Any]]) -> Any:
        lowering = TABLE.get(name)
        if lowering is None:
            raise Refused("there is no lowering of this operator")
        args, kwargs = arguments
        return lowering(self._ctx, *args, **kwargs)

    def _arguments(self, node: torch.fx.Node) -> tuple[list[Any], dict[str, Any]]:
        return [self._argument(arg) for arg in node.args], {
            key: self._argument(arg) for key, arg in node.kwargs.items()
        }

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, torch.fx.Node):
            value = self._values.get(arg)
            if isinstance(value, Alias):
                return value.read()
            if isinstance(value, list):
                return [alias.read() for alias in value]
            if value is None or isinstance(value, (torch.SymFloat, torch.SymBool)):
                raise Refused(f"an argument is {arg.name}, which is no tensor and no integer")
            return self._ctx.symbols.dim(value) if isinstance(value, torch.SymInt) else value
        if isinstance(arg, (list, tuple)):
            return [self._argument(item) for item in arg]
        return arg

    def _place(self, node: torch.fx.Node) -> Place:
        stack = node.meta.get("nn_module_stack") or {}
        paths = [path for path, _ in stack.values() if not path.startswith("_empty")]
        scope = paths[-1].removeprefix(ROOT).removeprefix(".") if paths else ""
        return Place(node.name, scope, layer_of(scope))

    def _external(self, node: torch.fx.Node, reason: str) -> list[BuilderValue]:
        """An operator that stays whole; it runs only where a pattern replaces it."""
        ctx = self._ctx
        if aliasing.is_mutable(node):
            unsupported(f"{node.target} in {ctx.place.scope or 'the module itself'}: {reason}")
        kept = FUNCTIONS.get(node.target)
        name = kept.__qualname__ if kept is not None else operator_name(node.target)
        out = node.meta.get("val")  # `ctx.out` may be that of an operator inside its definition
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        if not all(isinstance(out, torch.Tensor) and out.dtype in NAMES for out in outs):  # a graph cannot hold these
            unsupported(f"{node.target} in {ctx.place.scope or 'the module itself'}: {reason}")
        try:
            types = ", ".join(self._type(out) for out in outs)
        except Refused:  # sizes that depend on values, which no graph has
            unsupported(f"{node.target} in {ctx.place.scope or 'the module itself'}: {reason}")
        operands = [self._argument(arg) for arg in node.all_input_nodes if isinstance(self._values.get(arg), Alias)]
        values = ctx.node("external", *operands, target=name, types=types)
        self._origins.set_opaque(values[0].name, node.target if kept is None else (kept, node.target))
        self._missing.append(Missing(values[0].name, name, ctx.place.scope, reason))
        return values

    def _type(self, tensor: torch.Tensor) -> str:
        return f"{dtype_name(tensor.dtype)}[{', '.join(map(str, self._ctx.symbols.shape(tensor.shape)))}]"

    # --- Values

    def _set(self, node: torch.fx.Node, value: BuilderValue) -> None:
        """A tensor with a storage of its own."""
        self._values[node] = Alias(Storage(node, value), (), value, 0)

    def _set_results(self, node: torch.fx.Node, results: Any) -> None:
        if isinstance(results, Alias):
            self._values[node] = results
            return
        several = isinstance(node.meta["val"], (list, tuple))
        values = list(results) if isinstance(results, list) else [results]
        viewed = aliasing.viewed_argument(node)
        base = self._values.get(viewed) if viewed is not None else None
        made = []
        for index, value in enumerate(values):
            if not isinstance(base, Alias):
                made.append(Alias(Storage(node, value), (), value, 0))
                continue
            view = View(node, index if several else None, self._replay(node, index if several else None))
            made.append(Alias(base.storage, (*base.chain, view), value, base.storage.version))
        self._values[node] = made if several else made[0]

    def _replay(self, node: torch.fx.Node, index: int | None) -> Any:
        """The view `node` of another value, for after a write."""

        def replay(value: BuilderValue) -> BuilderValue:
            out, self._ctx.out = self._ctx.out, node.meta["val"]
            args, kwargs = self._arguments(node)
            try:
                result = self._call(node, str(node.target), ([value, *args[1:]], kwargs))
            except Refused as error:  # the first time it could stay whole, but of that nobody knows the other way
                where = self._place(node).scope or "the module itself"
                unsupported(f"{node.target} in {where}: {error}, and here what it views is written to")
            self._ctx.out = out
            return result if index is None else result[index]

        return replay

    # --- Outputs

    def _finish(self, output: torch.fx.Node) -> None:
        names = [f"output{i}" for i in range(len(output.args[0]))]
        values = []
        for node in output.args[0]:
            if not isinstance(node, torch.fx.Node) or not isinstance(self._values.get(node), Alias):
                unsupported("an output is a number that depends on sizes; only tensors can be outputs")
            values.append(self._values[node].read())
        for index, (node, _) in enumerate(self._states):
            values.append(self._values[node].read())
            names.append(f"state{index}")
        self._ctx.builder.set_outputs(values, names)
