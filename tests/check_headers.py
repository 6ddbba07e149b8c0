# SPDX-License-Identifier: Apache-2.0
"""Every source file names its licence first; C++ and Python files then say what they are.

A .cc file may leave that to the header of the same name beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from house.files import ROOT, main

LICENCE = "SPDX-License-Identifier: Apache-2.0"
SUFFIXES = (".h", ".cc", ".py", ".pyi", ".cmake", ".sh", ".toml")
NAMES = ("CMakeLists.txt", "Makefile", ".clang-tidy", ".ci/run")
DESCRIBED = {".h": ("//",), ".cc": ("//",), ".py": ('"""', 'r"""', "#")}


def check(name: str, lines: list[str]) -> Iterator[str]:
    if not name.endswith((*SUFFIXES, *NAMES)):
        return
    first = 1 if lines and lines[0].startswith("#!") else 0
    if len(lines) <= first or LICENCE not in lines[first]:
        yield f"{name}:{first + 1}: does not start with `{LICENCE}`"
        return
    suffix = name[name.rfind(".") :]
    if suffix == ".cc" and (ROOT / name).with_suffix(".h").exists():
        return
    body = [line for line in lines[first + 1 :] if line.strip()]
    if suffix in DESCRIBED and body and not body[0].startswith(DESCRIBED[suffix]):
        yield f"{name}:{first + 2}: the licence line is not followed by a line that says what this file is"


if __name__ == "__main__":
    main(check)
