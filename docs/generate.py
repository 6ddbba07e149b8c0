# SPDX-License-Identifier: Apache-2.0
"""Pages made of what a build has: one an operator, pattern and model family, from the JSON of `op-matrix --json`.

build/release/tools/op-matrix --json > matrix.json
docs/generate.py matrix.json --out build/docs/source
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent

Item = dict[str, Any]

LEVELS = {
    "plain": "Plain: front doors emit it.",
    "fused": "Fused: made by a pattern.",
    "state": "Reads or writes the key/value cache.",
    "view": "View: no kernel, no bytes.",
}


def slug(name: str) -> str:
    """A file name: "QKV+RoPE" is qkv_rope."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def cell(value: object) -> str:
    return str(value).replace("|", r"\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; a line that says so where there are no rows."""
    lines = [f"| {' | '.join(cell(value) for value in row)} |" for row in rows]
    if not lines:
        return "None.\n"
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines]) + "\n"


def code(name: object) -> str:
    return f"`{name}`"


def verbatim(text: str) -> str:
    """Prose of a schema, which is plain text: what Markdown would read as markup is escaped."""
    return re.sub(r"([\\`*_\[\]<>$])", r"\\\1", text)


def runs_on_cpu(op: Item) -> str:
    if op["view"]:
        return "nothing to do"
    if op["cpu_kernel"]:
        return "kernel"
    return "decomposition" if op["decomposition"] else "plain loops"


def signature(op: Item) -> str:
    """As graph text spells a call: `%normed, %sum = fused_add_norm(%residual, %x, %w, %bias?) {eps, kind}`."""
    inputs = [f"%{i['name']}{'...' if i['variadic'] else '?' if i['optional'] else ''}" for i in op["inputs"]]
    outputs = ", ".join(f"%{output['name']}" for output in op["outputs"])
    attrs = ", ".join(attr["name"] for attr in op["attrs"])
    return f"{outputs} = {op['name']}({', '.join(inputs)})" + (f" {{{attrs}}}" if attrs else "")


def input_note(spec: Item) -> str:
    if spec["variadic"]:
        return "any number"
    return "optional" if spec["optional"] else "required"


def output_note(spec: Item) -> str:
    if spec["view_of"] is not None:
        return f"shares the storage of `{spec['view_of']}`"
    if spec["in_place_of"] is not None:
        return f"may be written over `{spec['in_place_of']}`"
    return ""


def default_of(attr: Item) -> str:
    if attr["required"]:
        return "required"
    return code(json.dumps(attr["default"]))


def calls_section(op: Item) -> str:
    """What runs each of the operator's test cases, target by target."""
    calls = op.get("calls") or []
    if not calls:
        return ""
    targets = list(calls[0]["runs"])
    rows = []
    for call in calls:
        inputs = ", ".join(str(form) if form else "-" for form in call["inputs"])
        runs = [code(call["runs"][target]) for target in targets]
        rows.append((code(call["case"]), inputs, call["precision"], call["tolerance"], *runs))
    head = ["case", "operands", "precision", "tolerance", *targets]
    return f"""
## What is tested

Each form of the call is checked against the reference in f64, within this tolerance of the largest value, on each SIMD
target; the last columns name the code that runs.

{table(head, rows)}"""


def operator_page(op: Item) -> str:
    reference = "plain loops in f32 and f64" if op["reference"] else "the decomposition, interpreted"
    runs = [
        ("reference", reference),
        ("decomposition", "into plain operators" if op["decomposition"] else "none"),
        ("on the CPU", runs_on_cpu(op)),
    ]
    attributes = [(code(a["name"]), a["kind"], default_of(a), verbatim(a["doc"])) for a in op["attrs"]]
    return f"""# {op["name"]}

{verbatim(op["doc"])}

```
{signature(op)}
```

{LEVELS[op["level"]]}

## Inputs

{table(["input", ""], [(code(i["name"]), input_note(i)) for i in op["inputs"]])}
## Outputs

{table(["output", ""], [(code(o["name"]), output_note(o)) for o in op["outputs"]])}
## Attributes

{table(["attribute", "kind", "default", "meaning"], attributes)}
## How it runs

{table(["what", "how"], runs)}{calls_section(op)}"""


def pattern_page(pattern: Item) -> str:
    forms = "\n".join(pattern["doc"])
    constraints = "\n".join(f"- {verbatim(text)}" for text in pattern["constraints"]) or "- none beyond the form"
    return f"""# {pattern["name"]}

Becomes {verbatim(pattern["replacement"])}. Applied on the {pattern["when"]}, by benefit: {pattern["benefit"]}.

## From

Names without parentheses stand for any value; `?` marks what may be absent.

```
{forms}
```

## Needs

What is read outside the pattern must be among what the replacement provides, and

{constraints}

`atb explain` names the one that stopped a match, with what was found and what is needed.
"""


def config_keys(family: str, argument: str) -> list[str]:
    """The keys that the family's file reads from `const <argument>& config`, in the order of their reading."""
    path = ROOT / "src/models" / f"{family}.cc"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    keys: list[str] = []
    for function in re.split(r"\n}\n", text):
        if f"const {argument}& config" in function:
            keys += re.findall(
                r'config\.(?:size|size_or|positive|positive_or|flag_or|text_or|ids_or|has)\("([^"]+)"', function
            )
    return list(dict.fromkeys(keys))


def model_page(model: Item) -> str:
    served = [
        ("`architectures` of config.json", model["hf_architectures"]),
        ("`model_type` of config.json", model["hf_model_types"]),
        ("`general.architecture` of GGUF", model["gguf_architectures"]),
    ]
    keys = [
        ("config.json", config_keys(model["name"], "ConfigJson")),
        ("GGUF, after the architecture's prefix", config_keys(model["name"], "GgufConfig")),
    ]
    names = [(code(w["name"]), code(w["hf"]), code(w["gguf"])) for w in model["weights"]]
    return f"""# {model["name"]}

## Names served

{table(["where", "names"], [(where, ", ".join(code(n) for n in names)) for where, names in served])}
## Configuration

Keys that are read, beside those of rotary positions. Keys that would change the mathematics in a way that this family
does not have are refused.

{table(["file", "keys"], [(where, ", ".join(code(k) for k in found)) for where, found in keys if found])}
## Weights

Prefixes of layers (`model.layers.N.`, `blk.N.`) and `.weight`, `.bias` are left out.

{table(["in graphs", "Hugging Face", "GGUF"], names)}"""


def index_page(title: str, text: str, summary: str, names: Iterable[str]) -> str:
    entries = "\n".join(slug(name) for name in names)
    return f"""# {title}

{text}

{summary}
```{{toctree}}
:hidden:

{entries}
```
"""


def link(name: str) -> str:
    return f"[{name}]({slug(name)}.md)"


def pages(matrix: Item) -> dict[str, str]:
    """Path below the documentation's folder -> text."""
    operators, patterns, models = matrix["operators"], matrix["patterns"], matrix["models"]
    made = {f"operators/{slug(op['name'])}.md": operator_page(op) for op in operators}
    made |= {f"patterns/{slug(pattern['name'])}.md": pattern_page(pattern) for pattern in patterns}
    made |= {f"models/{slug(model['name'])}.md": model_page(model) for model in models}
    made["operators/index.md"] = index_page(
        "Operators",
        "All operators of this build. `plain` ones are what front doors emit; the others come from passes.",
        table(
            ["operator", "level", "on the CPU", "out"],
            [(link(op["name"]), op["level"], runs_on_cpu(op), verbatim(op["doc"].split(". ")[0])) for op in operators],
        ),
        [op["name"] for op in operators],
    )
    made["patterns/index.md"] = index_page(
        "Patterns",
        "The fusions, by benefit: first those of the canonical graph, then those of the fused graph, then those of the "
        "step graph.",
        table(
            ["pattern", "becomes", "applied on the"],
            [(link(p["name"]), verbatim(p["replacement"]), p["when"]) for p in patterns],
        ),
        [pattern["name"] for pattern in patterns],
    )
    made["models/index.md"] = index_page(
        "Model families",
        "What this build reads.",
        table(
            ["family", "Hugging Face", "GGUF"],
            [(link(m["name"]), ", ".join(m["hf_architectures"]), ", ".join(m["gguf_architectures"])) for m in models],
        ),
        [model["name"] for model in models],
    )
    made["encodings.md"] = (
        "# Encodings\n\nBlock formats of weights that this build reads, beside f32, f16 and bf16.\n\n"
        + table(
            ["encoding", "values a block", "bytes a block", "bits a value"],
            [(code(e["name"]), e["block_elems"], e["block_bytes"], e["bits_per_value"]) for e in matrix["encodings"]],
        )
    )
    made["passes.md"] = (
        "# Passes\n\nBy their names in `atb-opt --pass`; [graphs as text](graph.md) shows how to run them.\n\n"
        + table(["pass", "what it does"], [(code(p["name"]), verbatim(p["doc"])) for p in matrix["passes"]])
        + "\n## Devices\n\n"
        + table(["device", "here"], [(code(d["name"]), verbatim(d["description"])) for d in matrix["devices"]])
    )
    return made


def write(matrix: Item, out: pathlib.Path) -> list[str]:
    made = pages(matrix)
    for name, text in made.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text, encoding="utf-8")
    return sorted(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrix", type=pathlib.Path, help="JSON of op-matrix")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the documentation's source folder")
    args = parser.parse_args()
    for name in write(json.loads(args.matrix.read_text(encoding="utf-8")), args.out):
        print(name)


if __name__ == "__main__":
    main()
