# SPDX-License-Identifier: Apache-2.0
"""Plugins of a `GraphOp`: own code at a point of a block, in Python between two launches or in C++ inside one."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import atb
import torch
from atb import _core
from atb.errors import FailedPreconditionError, InvalidArgumentError

from atb_torch.block_call import BlockCall

_order = itertools.count()  # of registrations, over all blocks
_calls = threading.local()  # `.now`: the context of the call that runs in this thread


class PluginError(RuntimeError):
    """A plugin raised an exception whose text could not be given the point's name; that one is its cause."""


@dataclass(frozen=True)
class PluginContext:
    """Where a plugin is called from."""

    point: str
    """As it was registered, "pre_attention"."""
    layer: int | None
    """Which layer of the model this is: the block's `layer` if that was set, else its slot in the cache, else None."""
    positions: torch.Tensor
    """Of the call's tokens, [tokens] or [batch, tokens]: those of the call, else counted on from the cache's length."""
    lengths: torch.Tensor
    """Keys of each sequence, [batch]: in the cache and of the call, or those that a mask [batch, keys] shows."""


class Plugin:
    """Code of one's own in a block: overrides `preprocess`, `postprocess`, or both.

    Both get new tensors, which they may keep or write to, and return as many of the same shapes and dtypes: one
    tensor where the item has one, else a tuple. They run without gradients, on the thread that called the block.
    """

    enabled: bool = True
    """False: calls from now on go as if it were not registered."""

    def preprocess(self, inputs: Any) -> Any:
        """Returns what the item reads instead of `inputs`. Called at `pre_X` points only."""
        return inputs

    def postprocess(self, outputs: Any) -> Any:
        """Returns what comes after the item instead of its `outputs`."""
        return outputs

    @property
    def context(self) -> PluginContext:
        """Where it is called from; `atb.FailedPreconditionError` outside of a call."""
        now: PluginContext | None = getattr(_calls, "now", None)
        if now is None:
            raise FailedPreconditionError(
                "[plugin] there is a context only while preprocess or postprocess run; keep what is needed later"
            )
        return now


class LibraryPlugin:
    """Kernels in C++ that run inside the launch; made by `load_plugin`."""

    def __init__(self, path: str, at_pre: tuple[str, str], at_post: tuple[str, str]) -> None:
        """at_pre, at_post: kernels before and after the item at `pre_X` and at `post_X` points; "" for none."""
        self.path = path
        self.at_pre = at_pre
        self.at_post = at_post
        self.enabled = True
        """False: calls from now on go as if it were not registered."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A process that reads it from a file has the kernels too."""
        self.__dict__.update(state)
        atb.load_library(self.path)

    def __repr__(self) -> str:
        return f"LibraryPlugin({self.path!r}, at_pre={self.at_pre}, at_post={self.at_post})"


def load_plugin(
    path: str | os.PathLike[str], *, preprocess: str | None = None, postprocess: str | None = None
) -> LibraryPlugin:
    """A plugin in C++: kernels of a shared library made with `atb/plugin.h`, for `GraphOp.register_plugin`.

    preprocess, postprocess: names of its kernels. By default those that end in "preprocess" and "postprocess"; the only
        kernel of a library, whatever its name, is preprocess at `pre_X` points and postprocess at `post_X` points.
    A kernel takes the inputs or outputs of the point's item as they come, of any strides, and gives as many of the same
    shapes and dtypes; attention's are (q, k, v) as [batch, heads, tokens, head_dim]. `atb_call::context` has what
    `Plugin.context` has.
    Raises what `atb.load_library` raises, and `atb.InvalidArgumentError` where the library has no such kernel.
    """
    where = os.path.abspath(os.fspath(path))
    at_pre, at_post = _core.load_plugin(where, preprocess or "", postprocess or "")
    return LibraryPlugin(where, at_pre, at_post)


@dataclass(eq=False)
class Registration:
    """A plugin at a point."""

    point: str
    plugin: Plugin | LibraryPlugin
    order: int
    removed: bool = False


Active = tuple[tuple[str, Registration], ...]  # of a call: prefix of the nested block, "" for its own; and what it has


# Point, kernel before, kernel after, prefix, whether the kernels are told of the call by the core, and their layer.
Described = tuple[str, str, str, str, bool, int]


def in_library(active: Active) -> bool:
    """Whether a plugin in C++ is among them: what it is told of the layer is part of the program."""
    return any(isinstance(one.plugin, LibraryPlugin) for _, one in active)


def describe_plugins(
    active: Active, kernels: dict[str, Callable[..., Any]], layer: int | None = None
) -> list[Described]:
    """Plugins as the core takes them. Those in Python go into `kernels`.

    layer: what their context says; those in Python have that of the call first.
    """
    described = []
    for within, one in active:
        names = list(_steps(one.point, one.plugin))
        for i, step in enumerate(names):
            if step and isinstance(one.plugin, Plugin):
                names[i] = f"plugin:{len(kernels)}:{step}"
                kernels[names[i]] = _host_kernel(one.point, one.plugin, step, layer)
        told = isinstance(one.plugin, LibraryPlugin)
        described.append((one.point, names[0], names[1], within, told, -1 if layer is None else layer))
    return described


class PluginHandle:
    """A registration, which `remove()` ends."""

    def __init__(self, plugins: Plugins, registration: Registration) -> None:
        """Made by `GraphOp.register_plugin`."""
        self._plugins = plugins
        self._registration = registration

    def remove(self) -> None:
        """Calls from now on go without the plugin. A second time does nothing."""
        self._plugins.remove(self._registration)


class Plugins:
    """The plugins of one block in order of registration."""

    def __init__(self) -> None:
        """Of a block that has none yet."""
        self._all: list[Registration] = []

    def add(self, point: str, plugin: Any, points: Sequence[str]) -> PluginHandle:
        """Registers a plugin at one of `points`; `atb.InvalidArgumentError` for what could never run."""
        if point not in points:
            raise InvalidArgumentError(f"[plugin] {point!r} is no point of this block; points are {', '.join(points)}")
        if not isinstance(plugin, (Plugin, LibraryPlugin)):
            raise InvalidArgumentError(
                f"[plugin] {point}: a {_kind(plugin)} is no plugin; derive from atb_torch.Plugin, or use load_plugin()"
            )
        if _steps(point, plugin) == ("", ""):
            allowed = "preprocess or postprocess" if point.startswith("pre_") else "postprocess, which is all it calls"
            raise InvalidArgumentError(f"[plugin] {point}: {_kind(plugin)} would do nothing; it needs {allowed}")
        made = Registration(point, plugin, next(_order))
        self._all.append(made)
        return PluginHandle(self, made)

    def remove(self, registration: Registration) -> None:
        """Does nothing for one that is not there."""
        registration.removed = True
        if registration in self._all:
            self._all.remove(registration)

    def enabled(self) -> list[Registration]:
        """Those that take part in a call."""
        if getattr(_calls, "without", False):
            return []
        return [one for one in tuple(self._all) if one.plugin.enabled]


def _kind(plugin: Any) -> str:
    return plugin.__name__ + " class" if isinstance(plugin, type) else type(plugin).__name__


def _steps(point: str, plugin: Plugin | LibraryPlugin) -> tuple[str, str]:
    """What runs before and after the item: methods of a plugin in Python, or kernels in C++; "" for nothing."""
    wraps = point.startswith("pre_")
    if isinstance(plugin, LibraryPlugin):
        return plugin.at_pre if wraps else plugin.at_post
    steps = [name if _overrides(plugin, name) else "" for name in ("preprocess", "postprocess")]
    return (steps[0] if wraps else "", steps[1])


def _overrides(plugin: Plugin, method: str) -> bool:
    return getattr(getattr(plugin, method), "__func__", None) is not getattr(Plugin, method)


# --- Calls


def context_of(call: BlockCall, layer: int | None, past: int) -> PluginContext:
    """The context of a call whose sequences have `past` tokens in a cache."""
    given = {name: tensor for (name, _, _), tensor in zip(call.inputs, call.tensors, strict=True)}
    positions = given.get("positions")
    positions = torch.arange(past, past + call.tokens) if positions is None else positions.clone()
    x, mask = given["x"], given.get("attention_mask")
    keys = past + given.get("key", given.get("value", x)).shape[1]
    if mask is not None and mask.dim() == 2 and mask.dtype is torch.bool:
        lengths = mask.expand(x.shape[0], keys).sum(-1)
    else:
        lengths = torch.full((x.shape[0],), keys)
    return PluginContext("", layer, positions, lengths)


@contextmanager
def running(active: Active, make_context: Callable[[], PluginContext]) -> Iterator[None]:
    """The context of a call while its graph runs; a launch that fails names the points of plugins inside it."""
    in_python = any(isinstance(one.plugin, Plugin) for _, one in active)
    inside = [one.point for _, one in active if isinstance(one.plugin, LibraryPlugin)]
    try:
        with calling(make_context() if in_python else None):
            yield
    except InvalidArgumentError as error:
        if not inside or "the results are discarded" not in str(error):
            raise
        raise InvalidArgumentError(f"[plugin] {', '.join(inside)}: a kernel may have failed: {error}") from error


@contextmanager
def without_plugins() -> Iterator[None]:
    """Blocks that are called or exported meanwhile, on this thread, go as if nothing were registered."""
    before, _calls.without = getattr(_calls, "without", False), True
    try:
        yield
    finally:
        _calls.without = before


@contextmanager
def calling(context: PluginContext | None) -> Iterator[None]:
    """The context of calls in this thread until the end; calls inside calls have theirs."""
    before = getattr(_calls, "now", None)
    _calls.now = context
    try:
        yield
    finally:
        _calls.now = before


@contextmanager
def continuing(past: int) -> Iterator[None]:
    """Runs of graphs in this thread, with several blocks in them, whose sequences have `past` tokens in a cache."""
    before = getattr(_calls, "past", 0)
    _calls.past = past
    try:
        with calling(None):
            yield
    finally:
        _calls.past = before


def _host_kernel(point: str, plugin: Plugin, step: str, layer: int | None) -> Callable[..., Any]:
    def kernel(*tensors: torch.Tensor) -> Any:
        # What is lent lives in memory that the engine uses again, and may be somebody else's input.
        own = tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors)
        now: PluginContext = getattr(_calls, "now", None) or _context_of_shape(own[0].shape)
        now = replace(now, point=point, layer=layer if now.layer is None else now.layer)
        try:
            with torch.no_grad(), calling(now):
                results = getattr(plugin, step)(own if len(own) > 1 else own[0])
            return _checked(results, own, step)
        except Exception as error:
            _raise_from(f"[plugin] {point}", error)

    return kernel


def _context_of_shape(shape: Sequence[int]) -> PluginContext:
    """Where no block was called: of [batch, tokens, ...], or [batch, heads, tokens, head_dim]."""
    past, tokens = getattr(_calls, "past", 0), shape[2 if len(shape) == 4 else 1]
    return PluginContext("", None, torch.arange(past, past + tokens), torch.full((shape[0],), past + tokens))


def _checked(results: Any, own: Sequence[torch.Tensor], step: str) -> Sequence[torch.Tensor]:
    given = list(results) if isinstance(results, (tuple, list)) else [results]
    if results is None or len(given) != len(own):
        count = "nothing" if results is None else f"{len(given)} results"
        raise InvalidArgumentError(f"{step} returns {count}, expected {_described(own)}")
    if not all(
        isinstance(one, torch.Tensor) and one.shape == like.shape and one.dtype == like.dtype
        for one, like in zip(given, own, strict=True)
    ):
        raise InvalidArgumentError(f"{step} returns {_described(given)}, expected {_described(own)}")
    return [one.detach().cpu() for one in given]


def _described(values: Sequence[Any]) -> str:
    return ", ".join(
        f"{str(one.dtype).removeprefix('torch.')} {list(one.shape)}" if isinstance(one, torch.Tensor) else _kind(one)
        for one in values
    )


def _raise_from(where: str, error: Exception) -> NoReturn:
    """The same exception with the point's name before its text, where its text can be set."""
    if where in str(error):
        raise error  # from a call inside this one
    if not error.args or (len(error.args) == 1 and isinstance(error.args[0], str)):
        error.args = (": ".join([where, *error.args]),)
    if where in str(error):
        raise error
    raise PluginError(f"{where}: {type(error).__name__}: {error}") from error
