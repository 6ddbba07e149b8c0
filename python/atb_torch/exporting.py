# SPDX-License-Identifier: Apache-2.0
"""From a module and a call to an exported program over tensors only, with dynamic sizes."""

from __future__ import annotations

import contextlib
import copy
import enum
import inspect
import numbers
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import atb
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from atb_torch.block_export import take_shapes, watch_caches
from atb_torch.errors import quiet, unsupported
from atb_torch.kept import keep_functions
from atb_torch.kv_cache import KVCache
from atb_torch.ones import unchanged


class Sizes(enum.Enum):
    """What an export leaves open of the sizes of a call."""

    ANY = "any"  # all; calls with token ids alone are exported at other sizes than their own
    OWN = "own"  # all that the module allows, seen at the call's own
    FIXED = "fixed"  # none: the program is for calls of these sizes


ROOT = "module"  # the attribute that holds the user's module, and so the head of every module path


@dataclass
class Leaf:
    """One tensor of a call: its name ("input_ids", "states.0") and the tensor."""

    name: str
    tensor: torch.Tensor


@dataclass
class Call:
    """Arguments of a call, taken apart: tensors, and everything else as `spec` and `constants`."""

    leaves: list[Leaf]
    spec: pytree.TreeSpec
    constants: tuple[Any, ...]  # what is no tensor, None in the tensors' places

    @property
    def key(self) -> Any:
        """Calls of equal keys differ in their tensors only."""
        return (str(self.spec), tuple(map(_constant_key, self.constants)))

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Arguments by parameter name, with other tensors."""
        return pytree.tree_unflatten(_filled(self.constants, tensors), self.spec)


class _TensorHere:
    """Stands for a tensor among the constants of a call."""


class _CacheHere:
    """Stands for the call's cache among the outputs."""


_BY_VALUE = (numbers.Number, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format)
_BY_IDENTITY = (type, enum.Enum, types.FunctionType, types.BuiltinFunctionType, torch._ops.OpOverload)


def _constant_key(value: Any) -> Any:
    """What tells a constant from others. Objects that may change, or hide tensors, cannot be told apart."""
    if isinstance(value, _TensorHere):
        return _TensorHere
    if value is None or isinstance(value, _BY_VALUE):
        return (type(value), repr(value))  # 1, 1.0 and True are equal, 0.0 and -0.0 too; their texts are not
    if isinstance(value, KVCache):  # not what it holds
        return (KVCache, value.dtype_name)
    if not isinstance(value, _BY_IDENTITY):
        unsupported(
            f"an argument holds a {type(value).__name__}; arguments may be tensors, numbers, text, functions, and "
            f"containers that torch.utils._pytree knows ({_HOW_TO_REGISTER})"
        )
    return value


_HOW_TO_REGISTER = "dataclasses: torch.export.register_dataclass"


def _filled(values: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
    """`values` with tensors in the places that are theirs."""
    rest = iter(tensors)
    return [next(rest) if isinstance(value, _TensorHere) else value for value in values]


def take_apart(arguments: Mapping[str, Any]) -> Call:
    """Splits arguments, by parameter name, into tensors and the rest."""
    paths, spec = pytree.tree_flatten_with_path(dict(arguments))
    leaves = [Leaf(_path_name(path), value) for path, value in paths if isinstance(value, torch.Tensor)]
    constants = tuple(_TensorHere() if isinstance(value, torch.Tensor) else value for _, value in paths)
    return Call(leaves, spec, constants)


def _path_name(path: Sequence[Any]) -> str:
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    return ".".join(parts)


def bind_arguments(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call of `model.forward` by parameter name; absent ones stay absent.

    Positional arguments of `*args` are named "args.0", ...; TypeError as the module itself would raise it.
    """
    signature = inspect.signature(model.forward)
    bound = signature.bind(*args, **kwargs)
    arguments: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(value)
        else:
            arguments[name] = value
    return arguments


def call_module(model: torch.nn.Module, arguments: Mapping[str, Any]) -> Any:
    """`model` with arguments that `bind_arguments` named."""
    parameters = inspect.signature(model.forward).parameters
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    # Exported programs take positional arguments by position only, and so does what stands before *args. Hooks that
    # take no keywords see nothing else.
    in_order = (
        isinstance(model, torch.fx.GraphModule)
        or any(kind is inspect.Parameter.VAR_POSITIONAL and name in arguments for name, kind in kinds.items())
        or any(hook not in model._forward_pre_hooks_with_kwargs for hook in model._forward_pre_hooks)
        or any(hook not in model._forward_hooks_with_kwargs for hook in model._forward_hooks)
    )
    kwargs = dict(arguments)
    args: list[Any] = []
    for name, kind in kinds.items():
        if name not in kwargs:
            break
        if kind is inspect.Parameter.VAR_POSITIONAL:
            args += kwargs.pop(name)
        elif kind is inspect.Parameter.POSITIONAL_ONLY or (
            in_order and kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ):
            args.append(kwargs.pop(name))
    return model(*args, **kwargs)


@dataclass
class Outputs:
    """How a module's outputs are put together from tensors. Export puts back what a module assigns, but not in here."""

    spec: pytree.TreeSpec | None = None
    constants: list[Any] = field(default_factory=list)

    def rebuild(self, tensors: Sequence[torch.Tensor], cache: KVCache | None = None) -> Any:
        assert self.spec is not None
        constants = [cache if isinstance(value, _CacheHere) else value for value in self.constants]
        return pytree.tree_unflatten(_filled(constants, tensors), self.spec)


_NUMBERS = (bool, int, float)


def _numbers_of(part: torch.nn.Module) -> dict[str, Any]:
    return {name: value for name, value in part.__dict__.items() if type(value) in _NUMBERS}


@contextlib.contextmanager
def _assigned_in_place(model: torch.nn.Module) -> Iterator[None]:
    """Makes a write of each assignment to a buffer: export loses assignments, as `self.state = self.state + x`.

    Refuses those that a graph cannot keep: of buffers of other types, and of numbers, as `self.count += 1`.
    """
    before = [(path, part, dict(part._buffers), _numbers_of(part)) for path, part in model.named_modules()]
    yield
    for path, part, buffers, counted in before:
        for name, number in counted.items():
            new = part.__dict__.get(name)
            if type(new) in _NUMBERS and new != number:
                part.__dict__[name] = number
                where = f"{path}.{name}".lstrip(".")
                unsupported(
                    f"the module assigns {new} to its attribute {where}, which was {number}, and a graph keeps no "
                    "numbers from call to call; make it a buffer (or, if it is set but once, call the module before)"
                )
        for name, old in buffers.items():
            new = part._buffers.get(name)
            if new is old:
                continue
            part._buffers[name] = old
            if old is None or new is None or old.shape != new.shape or old.dtype != new.dtype:
                where = f"{path}.{name}".lstrip(".")
                unsupported(f"the module assigns another shape or dtype to its buffer {where}; its type must stay")
            old.copy_(new)


class Entry(torch.nn.Module):
    """The module as a function from tensors to tensors; remembers how its outputs are put together."""

    def __init__(self, model: torch.nn.Module, call: Call) -> None:
        super().__init__()
        self.module = model
        self._call = call
        self.outputs = Outputs()

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        with _assigned_in_place(self.module):
            results = call_module(self.module, self._call.rebuild(tensors))
        flat, self.outputs.spec = pytree.tree_flatten(results)
        for value in flat:
            if isinstance(value, torch.SymInt):
                unsupported("an output is a size of the inputs; return the tensor, whose shape tells it")
            if not isinstance(value, (torch.Tensor, int, float, bool, str, KVCache, type(None))):
                unsupported(
                    f"an output is a {type(value).__name__}; outputs may be tensors, numbers, None, and containers "
                    f"that torch.utils._pytree knows ({_HOW_TO_REGISTER})"
                )
        self.outputs.constants = [_placeholder(value) for value in flat]
        return [value for value in flat if isinstance(value, torch.Tensor)]


def _placeholder(value: Any) -> Any:
    """What stands for an output that is another one at each call; others stand for themselves."""
    if isinstance(value, torch.Tensor):
        return _TensorHere()
    return _CacheHere() if isinstance(value, KVCache) else value


@dataclass
class Exported:
    """An exported program, the names of its tensor inputs in order, and where its parameters and buffers live."""

    program: torch.export.ExportedProgram
    inputs: list[str]
    examples: list[torch.Tensor] = field(default_factory=list)  # as they were exported
    entry: Entry | None = None
    outputs: Outputs = field(default_factory=Outputs)
    caches: list[KVCache] = field(default_factory=list)  # that declared blocks were called with


def export(model: torch.nn.Module, call: Call, sizes: Sizes = Sizes.ANY) -> Exported:
    """Exports a call. Sizes are dynamic where the module allows it, except those that are 0 or 1 in the example.

    sizes: by ANY, token-like tensors alone get other sizes first, so that those are dynamic too.
    """
    model = keep_functions(model, [leaf.tensor for leaf in call.leaves])
    take_shapes(model, lambda: call_module(model, call.rebuild([leaf.tensor for leaf in call.leaves])))
    entry = Entry(model, call)
    tensors, dynamic = _dynamic(call.leaves, sizes)
    try:
        with torch.no_grad(), quiet(), _one_path(), watch_caches() as seen:
            try:
                program = _exported(entry, tensors, dynamic)
            except torch._dynamo.exc.UserError:  # as of a length that a table of positions limits
                if sizes is Sizes.FIXED:
                    raise
                seen.clear()
                program = _exported(entry, tensors, _found_out(tensors))
    except atb.Error:
        raise
    except Exception as error:
        reason = _first_line(error)
        if re.search(r"\bs\d+\b", reason):
            reason = _reason_at_sizes(entry, call) or reason
        raise atb.UnsupportedError(f"[atb_torch] torch.export cannot export the module: {reason}") from error
    names, caches = [leaf.name for leaf in call.leaves], [cache for _, cache in seen]
    return Exported(program, names, tensors, entry, copy.copy(entry.outputs), caches)


def _exported(
    entry: Entry, tensors: Sequence[torch.Tensor], dynamic: Sequence[dict[int, Any]]
) -> torch.export.ExportedProgram:
    return torch.export.export(
        entry, tuple(tensors), dynamic_shapes=(tuple(dynamic),) if tensors else None, strict=False
    )


@contextlib.contextmanager
def _one_path() -> Iterator[None]:
    """Without the other path that encoders of PyTorch take where no gradients are wanted: its nested tensors have no
    sizes to trace."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _reason_at_sizes(entry: Entry, call: Call) -> str | None:
    """What the module itself says of the sizes of a call, where export speaks of symbols; None if it runs."""
    try:
        with quiet(), unchanged(entry), torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
            entry(*(torch.empty(leaf.tensor.shape, dtype=leaf.tensor.dtype) for leaf in call.leaves))
    except Exception as error:
        return _first_line(error)
    return None


_TOKEN_LIKE = ("input_ids", "attention_mask", "position_ids", "token_type_ids")


def is_token_like(leaf: Leaf) -> bool:
    """[B, T] integers (or booleans) that every decoder takes, which share their sizes."""
    return leaf.name in _TOKEN_LIKE and leaf.tensor.dim() == 2 and not leaf.tensor.is_floating_point()


def ways_to_export(call: Call, first: Sizes) -> list[Sizes]:
    """What may be tried one after another, from `first` on, each leaving less open than the one before."""
    ways = [first]
    if first is Sizes.ANY and _is_token_like(call.leaves):
        ways.append(Sizes.OWN)
    if first is not Sizes.FIXED and any(size > 1 for leaf in call.leaves for size in leaf.tensor.shape):
        ways.append(Sizes.FIXED)
    return ways


def _is_token_like(leaves: Sequence[Leaf]) -> bool:
    return len({leaf.tensor.shape for leaf in leaves}) == 1 and all(is_token_like(leaf) for leaf in leaves)


def _dynamic(leaves: Sequence[Leaf], sizes: Sizes) -> tuple[list[torch.Tensor], list[dict[int, Any]]]:
    """Example tensors and their dynamic axes.

    Where all tensors are token-like and of one shape, they get sizes that are neither 0 nor 1, and share B and T.
    """
    if sizes is Sizes.ANY and _is_token_like(leaves):
        axes = {0: torch.export.Dim("B", min=1), 1: torch.export.Dim("T", min=1)}
        return [torch.ones(2, 7, dtype=leaf.tensor.dtype) for leaf in leaves], [dict(axes) for _ in leaves]
    tensors = [leaf.tensor.detach() for leaf in leaves]
    return tensors, [{} for _ in tensors] if sizes is Sizes.FIXED else _found_out(tensors)


def _found_out(tensors: Sequence[torch.Tensor]) -> list[dict[int, Any]]:
    """Axes that export finds out about: which are fixed, equal or limited becomes guards."""
    auto = torch.export.Dim.AUTO
    return [{axis: auto for axis, size in enumerate(tensor.shape) if size > 1} for tensor in tensors]
