# SPDX-License-Identifier: Apache-2.0
"""`atb.native` on torch tensors: the same steps of attention, whose results are tensors too. No gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from atb import native
from atb.native import Blocks, Partial

from atb_torch.checks import check_tensor, plain

__all__ = list(native.__all__)


def _plain(value: Any) -> Any:
    """Tensors as they are computed on, wherever they stand. Raises `atb.UnsupportedError` as `compile` does: for those
    that require gradients while gradients are on, float64 ones, and such that are elsewhere."""
    if isinstance(value, torch.Tensor):
        check_tensor("a tensor", value, gradients=True)
        return plain(value)
    return type(value)(*map(_plain, value)) if isinstance(value, (Blocks, Partial)) else value


def _tensors(result: Any) -> Any:
    if isinstance(result, (Blocks, Partial)):
        return type(result)(*map(_tensors, result))
    if isinstance(result, tuple):
        return tuple(map(_tensors, result))
    return result if isinstance(result, torch.Tensor) else torch.from_dlpack(result)


def _on_tensors(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def run(*args: Any, **options: Any) -> Any:
        return _tensors(step(*map(_plain, args), **{name: _plain(value) for name, value in options.items()}))

    return run


qkv_load = _on_tensors(native.qkv_load)
block_attention = _on_tensors(native.block_attention)
online_softmax = _on_tensors(native.online_softmax)
output_merge = _on_tensors(native.output_merge)
partial_attention = _on_tensors(native.partial_attention)
merge = _on_tensors(native.merge)
finish = _on_tensors(native.finish)
flash_attention = _on_tensors(native.flash_attention)
