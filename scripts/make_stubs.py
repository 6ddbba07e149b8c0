# SPDX-License-Identifier: Apache-2.0
"""Writes python/atb/_core.pyi, the types of the native module, from the module as built; `make stubs` calls it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

HEADER = """# SPDX-License-Identifier: Apache-2.0
# Types of the native module. Generated from it: `make stubs` writes this file again.
"""
STUBS = Path(__file__).parents[1] / "python" / "atb" / "_core.pyi"


def make_stubs() -> str:
    """The text of the stubs of the module that is installed."""
    from atb import _core
    from nanobind.stubgen import StubGen

    with own_names(_core):
        generator = StubGen(_core)
        generator.put(_core)
        return HEADER + generator.get()


@contextlib.contextmanager
def own_names(module: ModuleType) -> Iterator[None]:
    """Gives exceptions the names that the module itself has for them; `atb.errors` calls them as users do."""
    exceptions = {k: v for k, v in vars(module).items() if isinstance(v, type) and issubclass(v, BaseException)}
    kept = [(cls, cls.__module__, cls.__qualname__) for cls in exceptions.values()]
    for name, cls in exceptions.items():
        cls.__module__, cls.__name__, cls.__qualname__ = module.__name__, name, name
    try:
        yield
    finally:
        for cls, home, name in kept:
            cls.__module__, cls.__name__, cls.__qualname__ = home, name, name


if __name__ == "__main__":
    sys.path.insert(0, str(STUBS.parents[1]))
    STUBS.write_text(make_stubs(), encoding="utf-8")
    print(f"[stubs] wrote {STUBS}")
