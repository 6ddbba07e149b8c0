# SPDX-License-Identifier: Apache-2.0
"""Writes python/atb/_core.pyi, the types of the native module, from the module as built; `make stubs` calls it."""

from __future__ import annotations

import sys
from pathlib import Path

HEADER = """# SPDX-License-Identifier: Apache-2.0
# Types of the native module. Generated from it: `make stubs` writes this file again.
"""
STUBS = Path(__file__).parents[1] / "python" / "atb" / "_core.pyi"


def make_stubs() -> str:
    """The text of the stubs of the module that is installed."""
    from atb import _core
    from nanobind.stubgen import StubGen

    generator = StubGen(_core)
    generator.put(_core)
    return HEADER + generator.get()


if __name__ == "__main__":
    sys.path.insert(0, str(STUBS.parents[1]))
    STUBS.write_text(make_stubs(), encoding="utf-8")
    print(f"[stubs] wrote {STUBS}")
