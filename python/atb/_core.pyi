# SPDX-License-Identifier: Apache-2.0
# Types of the native module. Generated from it: `make stubs` writes this file again.
from collections.abc import Mapping, Sequence
from typing import Any, overload


class Error(RuntimeError):
    pass

class InvalidArgument(Error, ValueError):
    pass

class NotFound(Error, LookupError):
    pass

class DataLoss(Error):
    pass

class Unsupported(Error, NotImplementedError):
    pass

class ResourceExhausted(Error, MemoryError):
    pass

class Cancelled(Error):
    pass

class FailedPrecondition(Error):
    pass

class Internal(Error):
    pass

class Tensor:
    """
    A dense, row-major array on the CPU. numpy.asarray, memoryview and torch.from_dlpack share its memory, which lives as long as one of them does.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str:
        """"f32", "bf16", "i64", ..."""

    @property
    def nbytes(self) -> int: ...

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule; with a version where max_version asks for 1.0 or later."""

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> Any: ...

    def tolist(self) -> Any:
        """Nested lists of numbers."""

    def __repr__(self) -> str: ...

class LentTensor:
    """
    What a kernel in Python is lent for one call: an array of any strides, to be read only. Its numbers are those of the call until the call ends; copy what is kept.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str:
        """"f32", "bf16", "i64", ..."""

    @property
    def nbytes(self) -> int: ...

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule; with a version where max_version asks for 1.0 or later."""

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> Any: ...

    def tolist(self) -> Any:
        """Nested lists of numbers."""

    def __repr__(self) -> str: ...

class KVCache:
    def __init__(self, slots: int, kv_heads: int, head_dim: int, max_tokens: int, dtype: str) -> None: ...

    @property
    def batch(self) -> int: ...

    def length(self, slot: int) -> int: ...

    @property
    def blocks_in_use(self) -> int: ...

    @property
    def shared_blocks(self) -> int: ...

    @property
    def pool_blocks_in_use(self) -> int: ...

    def truncate(self, tokens: int) -> None: ...

    def reset(self) -> None: ...

    def fork(self) -> KVCache: ...

class Graph:
    @staticmethod
    def parse(text: str, constants: dict[str, Any]) -> Graph: ...

    def bind(self, name: str, array: Any) -> None:
        """
        Gives a constant its numbers: the array's own memory, which must not be changed while the graph lives.
        """

    def __str__(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> list[tuple[str, str, str]]: ...

    @property
    def outputs(self) -> list[tuple[str, str, str]]: ...

    def copy(self) -> Graph: ...

    def optimize_json(self, tokens: int, earlier: PatternLog) -> str:
        """Rewrites the graph; the JSON of `atb explain`."""

    def prove_incremental(self) -> None:
        """
        Raises UnsupportedError, naming the operator, where a decoder cannot run token by token with a cache.
        """

    def compile(self, threads: int, precision: str, device: str, kernels: dict[str, Any], earlier: PatternLog, cached: list[str] = [], kv_dtype: str = 'f32', opt_level: int = 3) -> CompiledGraph: ...

    def nodes(self) -> list[tuple[Any, ...]]:
        """
        (kind, name, target, names of inputs, attributes, (name, dtype, shape) of outputs, layer, scope) a node.
        """

    def fuse(self, nodes: list[str], target: str, kernel: str, inputs: list[str], outputs: list[str]) -> tuple[str, str | None]:
        """
        Replaces nodes by one external node: its name, or the reason why not. Empty lists: what enters and leaves.
        """

    def replace(self, nodes: list[str], outputs: list[str], steps: list[tuple[str, list[Any], dict[str, Any]]], results: list[Any]) -> str | None:
        """
        Replaces the outputs of nodes by the results of operators (name, operands, attributes): the reason why not, or None. An operand is a name, (step, output), a number, or None.
        """

class PatternLog:
    """What patterns in Python do to a graph, for its report and the log."""

    @overload
    def __init__(self) -> None: ...

    @overload
    def __init__(self, arg: PatternLog, /) -> None: ...

    def start(self, graph: Graph, pattern: str) -> None: ...

    def matched(self, layer: int, replacement: str) -> None: ...

    def missed(self, layer: int, node: str, constraint: str, actual: str, expected: str) -> None: ...

    def finish(self, graph: Graph) -> None: ...

class CompiledGraph:
    def run(self, arrays: list[Any], cache: KVCache | None = None, slots: list[int] = []) -> list[Tensor]: ...

    def profile(self, arrays: list[Any], cache: KVCache | None = None, slots: list[int] = []) -> tuple[list[Tensor], str]:
        """
        As `run`, with what happened in the call as JSON: launches, nodes, waits.
        """

    @property
    def cached_scopes(self) -> list[str]: ...

    def __str__(self) -> str: ...

    def report_json(self, tokens: int) -> str: ...

    @property
    def inputs(self) -> list[tuple[str, str, str]]: ...

    @property
    def outputs(self) -> list[tuple[str, str, str]]: ...

    @property
    def threads(self) -> int: ...

    @property
    def plans(self) -> int: ...

class BuilderValue:
    """A value of a graph under construction."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int | str, ...]: ...

    @property
    def is_constant(self) -> bool: ...

class GraphBuilder:
    """Makes a graph node by node; dims are ints or text over symbols."""

    def __init__(self, name: str) -> None: ...

    def add_symbol(self, name: str, lo: int, hi: int) -> None: ...

    def add_input(self, name: str, dtype: str, shape: Sequence[int | str]) -> BuilderValue: ...

    def add_constant(self, name: str, array: Any) -> BuilderValue:
        """
        The array's own memory, which must not be changed while the graph lives.
        """

    def node(self, op: str, inputs: Sequence[BuilderValue | None], attrs: dict[str, Any], name: str = '', layer: int = -1, scope: str = '') -> list[BuilderValue]: ...

    def splice(self, body: Graph, inputs: Sequence[BuilderValue], constants: Mapping[str, BuilderValue], layer: int = -1, scope: str = '') -> list[BuilderValue]:
        """
        Puts a graph over symbols of its own into this one: its outputs. Constants that are not given come along.
        """

    def set_outputs(self, values: Sequence[BuilderValue], names: Sequence[str]) -> None: ...

    def finish(self) -> Graph:
        """The verified graph; the builder cannot be used afterwards."""

class Block:
    """
    A declared block: a list of items, each a dict of kind, name, attrs, branches.
    """

    def __init__(self, items: list[dict[str, Any]]) -> None: ...

    def build(self, inputs: list[tuple[str, str, list[int | str]]], dtype: str, plugins: list[tuple[str, str, str, str, bool, int]] = [], shapes: dict[str, list[int]] = {}) -> tuple[Graph, list[tuple[str, list[int], str, float]], list[tuple[str, int, int]], list[str]]:
        """
        For inputs (name, dtype, shape over B, T, S) and the parameters' dtype: the plain graph with absent constants; the parameters, each with its initialization; cached attentions (scope, kv heads, head size); warnings. plugins: point, name of a kernel before its item, of one after it, prefix of the nested block that it is a point of, whether the kernels are told of the call (atb_context), as which layer. shapes: of parameters that have theirs; the first item that needs another one is named.
        """

    @property
    def plugin_points(self) -> list[str]:
        """pre_X and post_X for the items' names and kinds."""

    @property
    def parameter_names(self) -> list[str]: ...

    @property
    def cached(self) -> bool:
        """Whether an attention keeps a cache."""

    def has(self, kind: str) -> bool: ...

def item_kinds() -> list[tuple[str, str, str]]:
    """Kind, group and description of every item."""

class Engine:
    def __init__(self, path: str, device: str = 'cpu', dtype: str = 'auto', precision: str = 'auto', threads: int = 0, prefill_chunk: int = 0, context: int = 0, kv_tokens: int = 0, opt_level: int = 3) -> None: ...

    @staticmethod
    def from_graph(graph: Graph, context_length: int, bos_ids: Sequence[int], eos_ids: Sequence[int], device: str = 'cpu', precision: str = 'auto', threads: int = 0, prefill_chunk: int = 0, kv_tokens: int = 0, release: bool = False, opt_level: int = 3) -> Engine: ...

    def submit(self, prompt_ids: Sequence[int], max_new_tokens: int, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, stop_token_ids: Sequence[int] | None = None, ignore_eos: bool = False, stream: int = 0) -> int: ...

    def next(self, request: int) -> tuple[list[int], str | None]: ...

    def cancel(self, request: int) -> None: ...

    def release(self, request: int) -> None: ...

    def timing(self, request: int) -> dict[str, Any]: ...

    def logits(self, sequences: Sequence[Sequence[int]]) -> list[Tensor]: ...

    def log_likelihood(self, ids: Sequence[int], begin: int) -> float: ...

    def stats(self) -> dict[str, Any]: ...

    def info(self) -> dict[str, Any]: ...

    def __str__(self) -> str:
        """The text form of the graph that runs."""

    def report_json(self, tokens: int = 1) -> str: ...

    def start_trace(self) -> None: ...

    def write_trace(self, path: str) -> None: ...

def gguf_metadata(path: str) -> dict[str, Any]:
    """All metadata of a GGUF file as Python objects."""

def resolve_model_path(name: str) -> str: ...

def inspect_json(path: str) -> str: ...

def operator_names() -> list[str]:
    """Names of all operators of this build."""

def load_library(path: str) -> list[str]:
    """Loads kernels from a shared library (atb/plugin.h); their names."""

def load_plugin(path: str, preprocess: str, postprocess: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """
    Loads a library of kernels for blocks: those before and after an item at points pre_X and at points post_X.
    """

def explain_json(path_or_config: str, tokens: int, dtype: str) -> str: ...

def profile_json(engine: Engine, each_node: bool = False) -> str:
    """The trace that `engine` records, summed by node, as JSON."""

class Sampler:
    """Chooses the tokens of one request, as the engine does."""

    def __init__(self, max_new_tokens: int, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0) -> None: ...

    def sample(self, logits: Any, index: int) -> int:
        """
        Token number `index` of the request's output, from f32 logits [vocabulary].
        """

def version() -> str: ...

def platform_info() -> dict[str, Any]:
    """
    What this process may use of the machine; None where there is no limit.
    """

def set_log_level(name: str) -> None: ...

def log(level: str, where: str, text: str) -> None:
    """A line "[where] text" of the log."""

def peak_rss_mb() -> float:
    """Largest resident size of this process so far, in MiB."""

def available_cpus() -> int: ...

def roofline(threads: int, bytes: int) -> dict[str, float]:
    """
    Read bandwidth over a working set of `bytes` and f32 multiply-add peak.
    """
