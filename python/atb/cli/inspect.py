# SPDX-License-Identifier: Apache-2.0
"""`atb inspect`: what a model file holds."""

from __future__ import annotations

import json as json_module
from typing import Any

from atb import _core
from atb.cli import common


@common.command
def run(model: common.Model, json: common.Json = False, debug: common.Debug = False) -> None:
    """Show family, config, tensors, types, sizes, tokenizer and context length."""
    facts = json_module.loads(_core.inspect_json(_core.resolve_model_path(model)))
    if json:
        common.print_json(facts)
        return
    tensors = facts.pop("tensors", [])
    rows = [(name, _shown(value)) for name, value in _flat("", facts)]
    common.print_table(model, ["fact", "value"], rows)
    columns = list(tensors[0]) if tensors else []
    common.print_table(f"{len(tensors)} tensors", columns, [[_shown(t.get(c)) for c in columns] for t in tensors])


def _flat(prefix: str, value: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, item in value.items():
        rows += _flat(f"{prefix}{key}.", item) if isinstance(item, dict) else [(prefix + key, item)]
    return rows


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " x ".join(map(str, value)) if all(isinstance(v, int) for v in value) else ", ".join(map(str, value))
    return "" if value is None else str(value)
