# SPDX-License-Identifier: Apache-2.0
"""The page of the C++ API, made of the public headers: each declaration with the comment above it."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include/atb"
# Read in this order; the others follow by name. export.h holds only a macro.
FIRST = ["atb.h", "language_model.h", "generation.h", "graph_op.h"]
LEFT_OUT = {"export.h"}
INTRODUCTION = """# C++ API

The engine without Python: token ids in and out, as text belongs to the Python package. An installed tree
(`cmake --install build/release --prefix PREFIX`) is used by

```cmake
find_package(atb REQUIRED)
target_link_libraries(my_program PRIVATE atb::atb)
```

`#include <atb/atb.h>` brings all of it but `atb/plugin.h`, which is C: kernels and plugins of one's own are made with
it ([fusions](patterns_user.md), [plugins of blocks](plugins.md)). Errors are exceptions of type `atb::Error`;
[errors](errors.md) lists the codes.
"""


def headers() -> list[pathlib.Path]:
    found = {path.name: path for path in sorted(HEADERS.glob("*.h")) if path.name not in LEFT_OUT}
    return [found.pop(name) for name in FIRST if name in found] + list(found.values())


def blocks(lines: list[str]) -> list[list[str]]:
    """Declarations at namespace level, each with its comment: what blank lines outside of braces separate."""
    result: list[list[str]] = [[]]
    depth = 0
    for line in lines:
        if not line.strip() and depth == 0:
            result.append([])
            continue
        result[-1].append(line)
        depth += line.count("{") - line.count("}")
    return [block for block in result if block]


def comment_text(lines: list[str]) -> str:
    """The text of `//` lines. Indented ones are an example."""
    text = [re.sub(r"^// ?", "", line) for line in lines]
    prose = "\n".join(line for line in text if not line.startswith("  "))
    example = "\n".join(line[2:] for line in text if line.startswith("  "))
    prose = re.sub(r"([<>*_\[\]$])", r"\\\1", prose)
    return prose.strip() + (f"\n\n```cpp\n{example}\n```" if example else "")


def title_of(declaration: list[str]) -> str | None:
    """LanguageModel of `class ATB_API LanguageModel {`, platform_info of a function."""
    line = re.sub(r"\b(?:ATB_API|typedef|ATB_PLUGIN_EXPORT)\b ?|\[\[\w+\]\] ?", "", declaration[0])
    if match := re.match(r"(?:class|struct|enum class) (\w+)[^;]*$", line):
        return match[1]
    if match := re.match(r"namespace (\w+) {|#define (\w+)", line):
        return f"atb::{match[1]}" if match[1] else match[2]
    match = re.search(r"(\w+)\(", line)
    return match[1] if match else None


def declarations(lines: list[str]) -> list[str]:
    """What a header has after its guard: all of namespace atb, or all but directives that say nothing in C."""
    if "namespace atb {" in lines:
        opened = lines.index("namespace atb {")
        return lines[opened + 1 : lines.index("}  // namespace atb")]
    told = re.compile(r"#(?:include|endif|ifdef|else|define ATB_PLUGIN_H_|define ATB_PLUGIN_EXPORT)")
    return [line for line in lines if not told.match(line)]


def section(header: pathlib.Path) -> str:
    lines = [line for line in header.read_text(encoding="utf-8").splitlines() if "SPDX-License" not in line]
    start = next(i for i, line in enumerate(lines) if line.startswith(("#pragma once", "#ifndef ATB_")))
    parts = [f"## atb/{header.name}", comment_text(lines[:start])]
    body = declarations(lines[start + 1 :])
    for block in blocks(body):
        size = next((i for i, line in enumerate(block) if not line.startswith("//")), len(block))
        declaration = block[size:]
        if not declaration or re.match(r"(class|struct) \w+;$|template", declaration[0]):
            continue
        if title := title_of(declaration):
            parts.append(f"### {title}")
        if size:
            parts.append(comment_text(block[:size]))
        parts.append("```cpp\n" + "\n".join(declaration) + "\n```")
    return "\n\n".join(part for part in parts if part)


def page() -> str:
    return INTRODUCTION + "\n" + "\n\n".join(section(header) for header in headers()) + "\n"


if __name__ == "__main__":
    print(page())
