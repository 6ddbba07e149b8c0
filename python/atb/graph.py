# SPDX-License-Identifier: Apache-2.0
"""`Graph`: a graph as text with arrays for its constants, optimized and compiled to a callable on arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from atb import _core
from atb._core import Tensor
from atb.arrays import resolved, resolved_all
from atb.errors import InvalidArgumentError
from atb.generation import as_int
from atb.node import Node, make_nodes, value_name
from atb.profile import Profile, recorder
from atb.report import Report


class ValueInfo(NamedTuple):
    """An input or output of a graph: name, dtype as "f32", and shape as text over symbols, "[T, 576]"."""

    name: str
    dtype: str
    shape: str


class Graph:
    """A graph of operators. Text form: docs/graph.md."""

    def __init__(self, core: _core.Graph) -> None:
        """Wraps a native graph; users call `Graph.parse`."""
        self._core = core
        self._nodes: list[Node] | None = None
        self.origins: dict[str, Any] = {}
        """What a node was imported from, by its name: an object, or a tuple of objects, that `node.target` equals too
        (an operator of PyTorch, a Python function). Front doors fill it; nodes without an entry have none."""
        self.kernels: dict[str, Callable[..., Any]] = {}
        """Kernels in Python that external nodes ask for in their attribute `kernel`."""
        self.to_kernel_array: Callable[[Any], Any] | None = None
        """Makes of the array that a kernel in Python is lent what it gets, as `torch.from_dlpack`; None: the array."""
        self._log = _core.PatternLog()

    def copy(self) -> Graph:
        """A graph of its own; constants are shared."""
        twin = Graph(self._core.copy())
        twin.origins, twin.kernels = dict(self.origins), dict(self.kernels)
        twin.to_kernel_array = self.to_kernel_array
        twin._log = _core.PatternLog(self._log)
        return twin

    @classmethod
    def parse(cls, text: str, constants: Mapping[str, Any] | None = None) -> Graph:
        """Reads a graph from its text form.

        constants: an array for each constant that the text gives no values of, by name without the `@`: any CPU array
            with `__dlpack__` or the buffer protocol, dense and of the declared dtype and shape. It is not copied, lives
            as long as the graph and every compiled graph that reads it in place, and must not be changed meanwhile.
        Raises `atb.InvalidArgumentError` naming the line of the text, or the constant, that is wrong.
        """
        return cls(_core.Graph.parse(text, dict(constants or {})))

    def __str__(self) -> str:
        """The text form."""
        return str(self._core)

    def __repr__(self) -> str:
        return f"atb.Graph({self.name!r}: {_names(self.inputs)} -> {_names(self.outputs)})"

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def inputs(self) -> list[ValueInfo]:
        return [ValueInfo(*value) for value in self._core.inputs]

    @property
    def outputs(self) -> list[ValueInfo]:
        return [ValueInfo(*value) for value in self._core.outputs]

    @property
    def nodes(self) -> list[Node]:
        """The nodes in execution order, as torch.fx shows them: inputs, constants, operators, and one for the outputs.

        A view of the graph as it is now; after a rewrite, ask again.
        """
        if self._nodes is None:
            self._nodes = make_nodes(self._core.nodes(), self.origins)
            for gone in self.origins.keys() - {node.name for node in self._nodes}:
                del self.origins[gone]  # a node of that name to come is another one
        return self._nodes

    def find_nodes(self, *, op: str, target: Any = None) -> list[Node]:
        """The nodes of a kind, and of a target where one is given."""
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    def optimize(self, tokens: int = 512) -> Report:
        """Rewrites the graph into its fused form and tells what was fused and what was not.

        The report is the object that `atb explain --json` prints: kernels and bytes per layer (for a graph without
        layers: of the whole graph) where the symbol T is `tokens` and every other one is 1. It prints as a table.
        """
        report = Report.from_json(self._core.optimize_json(as_int(tokens, "tokens", "graph"), self._log), self.name)
        self._nodes = None
        self._keep_origins_of_opaque()
        return report

    def compile(
        self,
        threads: int = 0,
        precision: str = "auto",
        device: str = "cpu",
        cached: Sequence[str] = (),
        kv_dtype: str = "f32",
        opt_level: int = 3,
    ) -> CompiledGraph:
        """Makes the graph callable; it is optimized on a copy, and this graph stays as it is.

        threads: workers; 0 takes what the affinity mask and the CPU quota allow.
        precision: "exact", "fast", or "auto" (fast only where a constant is quantized).
        cached: scopes of causal attentions that append to a KV cache and read from it, slot 0 first; the compiled graph
            is called by `run_cached`. kv_dtype: what that cache holds, "f32" or "bf16".
        opt_level: 0 as written; 1 canonical form and folding; 2 fusions too; 3 independent nodes side by side, and
            buffers that share memory, too. 0, 1 and 2 differ by rounding; 2 and 3 give equal bits.
        Raises `atb.UnsupportedError` for a graph with state, `atb.FailedPreconditionError` if a constant has no data.
        """
        kernels = {name: self._adapted(kernel) for name, kernel in self.kernels.items()}
        core = self._core.compile(
            as_int(threads, "threads", "graph"),
            precision,
            device,
            kernels,
            self._log,
            list(cached),
            kv_dtype,
            as_int(opt_level, "opt_level", "graph"),
        )
        return CompiledGraph(core, self.name)

    def fuse(
        self,
        nodes: Sequence[Node],
        name: str,
        kernel: Callable[..., Any] | str | None = None,
        inputs: Sequence[Node] | None = None,
        outputs: Sequence[Node] | None = None,
    ) -> str | None:
        """Replaces nodes by one operator `name`, whose definition they become; see `FusionOp` for the arguments.

        Returns None, or the reason why the graph stays as it is: a value is read outside the nodes but is no output, a
        value that they read is no input, or the new operator would depend on itself.
        """
        key = self._kernel_key(name, kernel) if callable(kernel) else kernel or ""
        wanted_inputs = [value_name(node) for node in inputs or ()]
        wanted_outputs = [value_name(node) for node in outputs or ()]
        made, reason = self._core.fuse(_operators(nodes), name, key, wanted_inputs, wanted_outputs)
        if reason is None:
            if callable(kernel):
                self.kernels[key] = kernel
            self._changed(made)
        return reason

    def replace(
        self, nodes: Sequence[Node], outputs: Sequence[Node], steps: list[Any], results: list[Any]
    ) -> str | None:
        """Replaces the values `outputs` of nodes by those of other operators; see `_core.Graph.replace`."""
        names = [value_name(node) for node in outputs]
        reason = self._core.replace(_operators(nodes), names, steps, results)
        if reason is None:
            self._changed(*names)
        return reason

    def start_pattern(self, name: str) -> PatternRun:
        """What a pattern does from now on goes into the log and into reports under this name."""
        return PatternRun(self, name)

    def _kernel_key(self, name: str, kernel: Callable[..., Any]) -> str:
        """A name of its own for each callable: two operators of one name may have different ones."""
        key, count = f"python:{name}", 1
        while self.kernels.get(key, kernel) is not kernel:
            count += 1
            key = f"python:{name}#{count}"
        return key

    def _changed(self, *names: str) -> None:
        self._nodes = None
        for name in names:
            self.origins.pop(name, None)  # a new node of that name is not what was imported

    def _keep_origins_of_opaque(self) -> None:
        """Passes give names of nodes to what they make of them, but never touch an operator that they do not know."""
        if self.origins:
            known = set(_core.operator_names())
            opaque = {node.name for node in self.nodes if str(node.target) not in known}
            self.origins = {name: origin for name, origin in self.origins.items() if name in opaque}
            self._nodes = None

    def _adapted(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        convert = self.to_kernel_array
        if convert is None:
            return lambda *arrays: resolved_all(kernel(*arrays))
        return lambda *arrays: resolved_all(kernel(*map(convert, arrays)))


class PatternRun:
    """One pattern on one graph, for the log and the report."""

    def __init__(self, graph: Graph, name: str) -> None:
        """Made by `Graph.start_pattern`."""
        self._graph = graph
        graph._log.start(graph._core, name)

    def matched(self, layer: int, replacement: str) -> None:
        """A place was rewritten."""
        self._graph._log.matched(layer, replacement)

    def missed(self, layer: int, node: str, constraint: str, actual: str, expected: str) -> None:
        """A place was not, and why."""
        self._graph._log.missed(layer, node, constraint, actual, expected)

    def finish(self) -> None:
        """The pattern has ended."""
        self._graph._log.finish(self._graph._core)


class CompiledGraph:
    """A compiled graph: `fast(x, y)` or `fast(x, y=y)`. Several threads may call it; calls wait for one another."""

    def __init__(self, core: _core.CompiledGraph, name: str = "graph") -> None:
        """Wraps a native compiled graph; users call `Graph.compile`."""
        self._core = core
        self._name = name
        self.inputs = [ValueInfo(*value) for value in core.inputs]
        self.outputs = [ValueInfo(*value) for value in core.outputs]

    def __call__(self, *arrays: Any, **named: Any) -> list[Tensor]:
        """Runs on arrays in the order of the graph's inputs, or by name; returns the outputs in the graph's order.

        Arrays are any CPU arrays with `__dlpack__` or the buffer protocol, of any strides, read in place and
        during the call only. Outputs are new memory; `numpy.asarray(out)` and `torch.from_dlpack(out)` copy nothing.
        Raises `atb.InvalidArgumentError` naming the input whose rank, dtype or shape does not fit.
        """
        return self._run(self._in_order(arrays, named))

    def run_cached(self, cache: _core.KVCache, slots: Sequence[int], *arrays: Any, **named: Any) -> list[Tensor]:
        """The same for a graph with cached attentions: that of scope i appends its tokens to `slots[i]` of the cache.

        A call that raises leaves the cache as it was. Raises `atb.InvalidArgumentError` where the cache does not fit
        the attention or the batch, `atb.ResourceExhaustedError` beyond its `max_tokens`.
        """
        return self._run(self._in_order(arrays, named), cache, list(slots))

    def run(self, arrays: Mapping[str, Any]) -> dict[str, Tensor]:
        """The same with a mapping from input names to arrays; returns a dict from output names to tensors."""
        if len({info.name for info in self.outputs}) < len(self.outputs):
            raise InvalidArgumentError("[graph] two outputs have one name; call the graph itself, which gives a list")
        outputs = self._run(self._in_order((), arrays))
        return {info.name: output for info, output in zip(self.outputs, outputs, strict=True)}

    def _run(self, arrays: list[Any], *cache: Any) -> list[Tensor]:
        arrays = [resolved(array) for array in arrays]
        entries = recorder()
        if entries is None:
            return self._core.run(arrays, *cache)
        outputs, profile = self._core.profile(arrays, *cache)
        entries.append(Profile.from_json(profile, self._name))
        return outputs

    def report(self, tokens: int = 512) -> Report:
        """What was fused and what was not; see `Graph.optimize`."""
        return Report.from_json(self._core.report_json(as_int(tokens, "tokens", "graph")), self._name)

    def __str__(self) -> str:
        """The text form of the graph that runs."""
        return str(self._core)

    def __repr__(self) -> str:
        return f"atb.CompiledGraph({_names(self.inputs)} -> {_names(self.outputs)}, threads={self._core.threads})"

    def _in_order(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = [info.name for info in self.inputs]
        if len(arrays) > len(names):
            raise InvalidArgumentError(f"[graph] {len(arrays)} inputs given; it takes {len(names)}: {', '.join(names)}")
        given = dict(zip(names, arrays, strict=False))
        for name, array in named.items():
            if name not in names:
                raise InvalidArgumentError(f"[graph] there is no input {name!r}; inputs are {', '.join(names)}")
            if name in given:
                raise InvalidArgumentError(f"[graph] input {name} is given twice")
            given[name] = array
        for name in names:
            if name not in given:
                raise InvalidArgumentError(f"[graph] input {name} is missing; inputs are {', '.join(names)}")
        return [given[name] for name in names]


def _operators(nodes: Sequence[Node]) -> list[str]:
    """Names of the operators among the nodes; results are their operator's, inputs and constants are nobody's."""
    owners = [node.args[0] if node.target is operator.getitem else node for node in nodes]
    return list(dict.fromkeys(node.name for node in owners if node.op == "call_function"))


def _names(values: Sequence[ValueInfo]) -> str:
    return ", ".join(f"{value.name}: {value.dtype}{value.shape}" for value in values)
