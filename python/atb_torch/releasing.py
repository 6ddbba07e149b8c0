# SPDX-License-Identifier: Apache-2.0
"""Giving up a module's parameters, once ATB has packed them or is about to."""

from __future__ import annotations

import gc

import torch


def release_parameters(*modules: torch.nn.Module) -> None:
    """Replaces the parameters of modules by ones without data; those that are shared stay shared.

    What export leaves behind holds parameters too, in reference cycles, so those are collected.
    """
    empty: dict[int, torch.nn.Parameter] = {}
    for part in (part for module in modules for part in module.modules()):
        for name, parameter in part._parameters.items():
            if parameter is not None and not parameter.is_meta:
                without_data = torch.nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False)
                part._parameters[name] = empty.setdefault(id(parameter), without_data)
    gc.collect()
