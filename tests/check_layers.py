# SPDX-License-Identifier: Apache-2.0
"""Includes point one way: a layer of src/ includes only itself and what CMakeLists.txt makes it depend on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from house.files import ROOT, main

# Inner loops are reached through operators; what reports the CPU target (devices, api) may ask for it.
KERNEL_USERS = {"kernels", "ops", "devices", "api"}
# Folders that are no layer of CMakeLists.txt: the extension module sees all layers and the public headers.
SEES_ALL = "bindings"
# Public headers, which include nothing but each other, and the layer that implements each.
PUBLIC = {
    "atb/export.h": "core",
    "atb/error.h": "core",
    "atb/log.h": "core",
    "atb/generation.h": "runtime",
    "atb/plugin.h": "ops",
}
PUBLIC_DEFAULT = "api"
# Third-party headers whose own documentation spells them with quotes.
FOREIGN = {"hwy"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


@cache
def allowed_layers() -> dict[str, set[str]]:
    """Layer -> layers it may include, from the atb_layer(NAME DEPENDS ...) lines, lowest first."""
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    allowed: dict[str, set[str]] = {}
    for name, rest in re.findall(r"^atb_layer\((\w+)([^)]*)\)", text, re.MULTILINE):
        depends = re.search(r"DEPENDS ([a-z ]+)", rest)
        below = set(depends[1].split()) if depends else set()
        allowed[name] = {name}.union(*({layer} | allowed[layer] for layer in below))
    for name, layers in allowed.items():
        if name not in KERNEL_USERS:
            layers.discard("kernels")
    allowed[SEES_ALL] = {SEES_ALL, *allowed}
    return allowed


def layer_of(header: str) -> str:
    """The layer that an include belongs to: its folder, or who implements a public header."""
    folder = header.split("/")[0]
    return PUBLIC.get(header, PUBLIC_DEFAULT) if folder == "atb" else folder


def check(name: str, lines: list[str]) -> Iterator[str]:
    parts = name.split("/")
    if not name.endswith((".h", ".cc")) or parts[0] not in ("src", "include") or len(parts) < 3:
        return
    layer = parts[1]
    if parts[0] == "src" and layer not in allowed_layers():
        yield f"{name}: src/{layer} is no layer of CMakeLists.txt ({', '.join(allowed_layers())})"
        return
    public = parts[0] == "include"
    allowed = {"atb"} if public else allowed_layers()[layer] | FOREIGN
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match and (match[1].split("/")[0] if public else layer_of(match[1])) not in allowed:
            yield f'{name}:{number}: {layer} includes "{match[1]}"; it may include {", ".join(sorted(allowed))}'


if __name__ == "__main__":
    main(check)
