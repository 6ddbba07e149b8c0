# SPDX-License-Identifier: Apache-2.0
"""`Graph`: a graph as text with arrays for its constants, optimized and compiled to a callable on arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from atb import _core
from atb._core import Tensor
from atb.errors import InvalidArgumentError
from atb.generation import as_int


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

    @classmethod
    def parse(cls, text: str, constants: Mapping[str, Any] | None = None) -> Graph:
        """Reads a graph from its text form.

        constants: an array for each constant that the text gives no values of, by name without the `@`: any CPU array
            with `__dlpack__` or the buffer protocol, dense and of the declared dtype and shape. It is not copied, lives
            as long as the graph and what was compiled from it, and must not be changed meanwhile.
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

    def optimize(self, tokens: int = 512) -> dict[str, Any]:
        """Rewrites the graph into its fused form and tells what was fused and what was not.

        The report is the object that `atb explain --json` prints: kernels and bytes per layer (for a graph without
        layers: of the whole graph) where the symbol T is `tokens` and every other one is 1.
        """
        report: dict[str, Any] = json.loads(self._core.optimize_json(as_int(tokens, "tokens")))
        return report

    def compile(self, threads: int = 0, precision: str = "auto", device: str = "cpu") -> CompiledGraph:
        """Makes the graph callable; it is optimized on a copy, and this graph stays as it is.

        threads: workers; 0 takes what the affinity mask and the CPU quota allow.
        precision: "exact", "fast", or "auto" (fast only where a constant is quantized).
        Raises `atb.UnsupportedError` for a graph with state, `atb.FailedPreconditionError` if a constant has no data.
        """
        return CompiledGraph(self._core.compile(as_int(threads, "threads"), precision, device))


class CompiledGraph:
    """A compiled graph: `fast(x, y)` or `fast(x, y=y)`. Several threads may call it; calls wait for one another."""

    def __init__(self, core: _core.CompiledGraph) -> None:
        """Wraps a native compiled graph; users call `Graph.compile`."""
        self._core = core
        self.inputs = [ValueInfo(*value) for value in core.inputs]
        self.outputs = [ValueInfo(*value) for value in core.outputs]

    def __call__(self, *arrays: Any, **named: Any) -> list[Tensor]:
        """Runs on arrays in the order of the graph's inputs, or by name; returns the outputs in the graph's order.

        Arrays are any CPU arrays with `__dlpack__` or the buffer protocol, of any strides, read in place and
        during the call only. Outputs are new memory; `numpy.asarray(out)` and `torch.from_dlpack(out)` copy nothing.
        Raises `atb.InvalidArgumentError` naming the input whose rank, dtype or shape does not fit.
        """
        return self._core.run(self._in_order(arrays, named))

    def run(self, arrays: Mapping[str, Any]) -> dict[str, Tensor]:
        """The same with a mapping from input names to arrays; returns a dict from output names to tensors."""
        if len({info.name for info in self.outputs}) < len(self.outputs):
            raise InvalidArgumentError("[graph] two outputs have one name; call the graph itself, which gives a list")
        outputs = self._core.run(self._in_order((), arrays))
        return {info.name: output for info, output in zip(self.outputs, outputs, strict=True)}

    def report(self, tokens: int = 512) -> dict[str, Any]:
        """What was fused and what was not; see `Graph.optimize`."""
        report: dict[str, Any] = json.loads(self._core.report_json(as_int(tokens, "tokens")))
        return report

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


def _names(values: Sequence[ValueInfo]) -> str:
    return ", ".join(f"{value.name}: {value.dtype}{value.shape}" for value in values)
