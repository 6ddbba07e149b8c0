# SPDX-License-Identifier: Apache-2.0
"""Kernels in C++: where their header is, and how their libraries are loaded."""

from __future__ import annotations

import os
from pathlib import Path

from atb import _core


def get_include() -> str:
    """The folder to compile kernels with: `c++ -I <folder> ...` finds `atb/plugin.h`."""
    installed = Path(__file__).parent / "include"
    in_the_project = Path(__file__).parents[2] / "include"
    return str(installed if installed.is_dir() else in_the_project)


def load_library(path: str | os.PathLike[str]) -> list[str]:
    """Loads kernels from a shared library made with `atb/plugin.h`; returns their names.

    The library stays loaded as long as the process lives. Loading it again changes nothing.
    Raises `atb.NotFoundError` if it cannot be opened, `atb.InvalidArgumentError` if it is no plugin, is made for
    another version of the interface, or has a kernel whose name another library has taken.
    """
    return _core.load_library(os.fspath(path))
