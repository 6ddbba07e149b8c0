# SPDX-License-Identifier: Apache-2.0
"""Options of `compile` that choose between what is built and what is not yet."""

from __future__ import annotations

import warnings
from typing import Any

import atb
import torch
from atb import _core
from atb.errors import InvalidArgumentError, UnsupportedError
from atb.generation import as_int

_said: set[str] = set()


class ModelsOwn:
    """The default of an option of which None means something else."""

    def __repr__(self) -> str:
        return "<the model's own>"


MODELS_OWN = ModelsOwn()


def set_mode(module: torch.nn.Module, mode: str | None) -> None:
    """Puts a module into eval mode for "infer", refuses other modes; None leaves it as it is."""
    if mode is None:
        return
    if mode == "infer":
        if module.training and not isinstance(module, torch.fx.GraphModule):  # those are what they were traced as
            module.eval()
        return
    if mode == "train":
        raise UnsupportedError('[atb_torch] mode is "train": ATB has no backward pass; train in PyTorch, then compile')
    raise InvalidArgumentError(f'[atb_torch] mode is {mode!r}; the only mode is "infer"')


def as_level(opt_level: int) -> int:
    """The level, checked before anything is exported."""
    level = as_int(opt_level, "opt_level", "atb_torch")
    if level not in range(4):
        raise InvalidArgumentError(
            f"[atb_torch] opt_level is {level}; allowed are 0 (as written), 1 (canonical), 2 (fused) and 3 (planned)"
        )
    return level


def as_threads(threads: int, where: str = "atb_torch") -> int:
    """The number of workers, checked before anything is made."""
    count = as_int(threads, "threads", where)
    if count < 0:
        raise InvalidArgumentError(f"[{where}] threads is {count}; expected 0 (what the CPU quota allows) or more")
    return count


def check_optimizer(optimizer: Any) -> None:
    """`atb.InvalidArgumentError` for what is no `atb.GraphOptimizer`; None is none."""
    if optimizer is not None and not isinstance(optimizer, atb.GraphOptimizer):
        raise InvalidArgumentError(
            f"[atb_torch] optimizer is a {type(optimizer).__name__}; expected an atb.GraphOptimizer, or None"
        )


def note_unbuilt(enable_prefix_caching: bool, enable_speculative: bool) -> None:
    """Warns, once in a process for each, that what was asked for is not there; results are the same without."""
    if enable_prefix_caching:
        _say_once("enable_prefix_caching=True: prompts do not share prefixes yet; generate() runs without sharing")
    if enable_speculative:
        _say_once("enable_speculative=True: there is no speculative decoding yet; generate() runs a token a step")


def note_fixed_sizes(name: str, kept: int, reason: Exception) -> None:
    """Logs, once for each kind of module, that its programs serve one set of sizes each."""
    if _is_new(f"fixed sizes of {name}"):
        why = str(reason).removeprefix("[atb_torch] ")
        _core.log(
            "warning",
            "atb_torch",
            f"{name}: sizes cannot stay open, so each set of sizes gets a program of its own, made at its first call; "
            f"the {kept} last used are kept. With open sizes: {why}",
        )


def _is_new(text: str) -> bool:
    if text in _said:
        return False
    _said.add(text)
    return True


def _say_once(text: str) -> None:
    if not _is_new(text):
        return
    warnings.warn(f"[atb_torch] {text}", UserWarning, stacklevel=4)
