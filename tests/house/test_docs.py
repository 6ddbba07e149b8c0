# SPDX-License-Identifier: Apache-2.0
"""The documentation agrees with the code: layers, links, and a page for all that a build has."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "docs"))

import cpp_api  # noqa: E402
import generate  # noqa: E402
import make_docs  # noqa: E402

EXAMPLES = sorted((ROOT / "examples").rglob("README.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *EXAMPLES]
LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
# Folders of pages that `make docs` generates.
GENERATED = re.compile(r"^(operators|patterns|models)/\w+\.md$|^(encodings|passes|cpp_api|contributing|changelog)\.md$")


def broken_links(path: pathlib.Path, text: str) -> list[str]:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    targets = (target.partition("#")[0] for target in LINK.findall(prose))
    local = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    generated = path.parent == ROOT / "docs"
    return [t for t in local if not (path.parent / t).exists() and not (generated and GENERATED.match(t))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: pathlib.Path) -> None:
    assert broken_links(path, path.read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found() -> None:
    assert broken_links(ROOT / "README.md", "see [it](docs/nothing.md), `[no](link)`") == ["docs/nothing.md"]


# Commands as a shell reads them: what `make demo` made has to be called by its path.
BARE = re.compile(r"(?:^|[`(&|;]|\$\()\s*((?:python3?|pip3?|atb) [^`\n]+)", re.MULTILINE)
# Named by the command alone, as a reader of a table would: `atb explain MODEL`.
NAMED = re.compile(r"atb (?:generate|explain|bench|inspect|perplexity|doctor|COMMAND)\b|pip install \.")


def bare_commands(text: str) -> list[str]:
    """Commands that find no Python, or one without ATB, where `make demo` has made .venv."""
    fences = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    shell = [body for language, body in fences.findall(text) if language in ("", "sh", "bash")]
    inline = [f"`{one}`" for one in re.findall(r"`([^`\n]+)`", fences.sub("", text)) if not NAMED.match(one)]
    return [command for part in (*shell, *inline) for command in BARE.findall(part)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_run_after_make_demo(path: pathlib.Path) -> None:
    assert bare_commands(path.read_text(encoding="utf-8")) == []


def test_comments_of_examples_show_commands_that_run() -> None:
    for path in sorted((ROOT / "examples").rglob("*.cc")):
        comments = "\n".join(re.findall(r"^// ?(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert bare_commands(f"```\n{comments}\n```") == [], path
        for source in re.findall(r"[\w./]+\.cc\b", comments):
            assert (ROOT / source).is_file(), f"{path}: {source} is no path from the root"


def test_a_bare_command_is_found() -> None:
    shell = "c++ \"$(python -c 'x')\"\natb explain MODEL\n.venv/bin/atb doctor\n"
    text = f"```\n{shell}```\n`pip install numpy`, `atb explain`"
    assert bare_commands(text) == ["python -c 'x')\"", "atb explain MODEL", "pip install numpy"]


def layers_of_cmake() -> dict[str, list[str]]:
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    layers = {}
    for name, rest in re.findall(r"^atb_layer\((\w+)([^)]*)\)", text, re.MULTILINE):
        depends = re.search(r"DEPENDS ([a-z ]+)", rest)
        layers[name] = depends[1].split() if depends else []
    return layers


def test_the_layers_of_contributing_are_those_of_cmake() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|$", text, re.MULTILINE)
    assert {name: re.findall(r"`(\w+)`", below) for name, below in rows} == layers_of_cmake()
    diagram = text[text.index("## Layers") : text.index("A layer includes only")]
    assert {name for name in layers_of_cmake() if name in re.findall(r"\w+", diagram)} == set(layers_of_cmake())


def test_decisions_are_listed() -> None:
    index = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    records = sorted((ROOT / "docs/adr").glob("0*.md"))
    assert [path.name for path in records] == re.findall(r"\((\d{4}-[a-z0-9-]+\.md)\)", index)
    for number, path in enumerate(records, 1):
        title = path.read_text(encoding="utf-8").splitlines()[0]
        assert title.startswith(f"# {number}. ")
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


def tiny_matrix() -> dict[str, Any]:
    """What op-matrix prints, cut down to one of each."""
    attr = {"name": "eps", "kind": "real", "required": False, "default": 0.5, "doc": "added under the root"}
    return {
        "operators": [
            {
                "name": "soft_sign",
                "doc": "out = x / (1 + |x|), x[T, N].",
                "level": "fused",
                "fused": True,
                "state": False,
                "view": False,
                "inputs": [{"name": "x", "optional": False, "variadic": False}],
                "outputs": [{"name": "out", "view_of": None, "in_place_of": "x"}],
                "attrs": [attr],
                "cpu_kernel": False,
                "decomposition": True,
                "reference": False,
            }
        ],
        "patterns": [
            {
                "name": "A+B",
                "replacement": "C",
                "benefit": 10,
                "when": "canonical graph",
                "doc": ["mul(x, silu(y))"],
                "constraints": ["one x"],
            }
        ],
        "models": [
            {
                "name": "llama",
                "hf_architectures": ["LlamaForCausalLM"],
                "hf_model_types": ["llama"],
                "gguf_architectures": ["llama"],
                "weights": [{"name": "q", "hf": "self_attn.q_proj", "gguf": "attn_q"}],
            }
        ],
        "encodings": [{"name": "q8_0", "block_elems": 32, "block_bytes": 34, "bits_per_value": 8.5, "encoder": True}],
        "passes": [{"name": "dce", "doc": "removes what no output needs"}],
        "devices": [{"name": "cpu", "description": "CPU"}],
    }


def test_pages_say_what_the_schema_says() -> None:
    pages = generate.pages(tiny_matrix())
    operator = pages["operators/soft_sign.md"]
    for text in ("out = x / (1 + |x|), x\\[T, N\\].", "%out = soft_sign(%x) {eps}", "`0.5`", "may be written over `x`"):
        assert text in operator
    assert "| on the CPU | decomposition |" in operator
    assert "mul(x, silu(y))" in pages["patterns/a_b.md"]
    assert "- one x" in pages["patterns/a_b.md"]
    family = pages["models/llama.md"]
    for text in ("LlamaForCausalLM", "`self_attn.q_proj`", "`hidden_size`", "`embedding_length`"):
        assert text in family
    assert "q8_0" in pages["encodings.md"]


def test_the_cpp_page_has_every_public_header() -> None:
    page = cpp_api.page()
    for header in cpp_api.headers():
        assert f"## atb/{header.name}" in page
    for name in ("LanguageModel", "SamplingParams", "platform_info"):
        assert f"### {name}" in page


def declared(header: pathlib.Path) -> list[str]:
    """Lines of a public header that a reader needs: all but comments, directives and the namespace."""
    lines = header.read_text(encoding="utf-8").splitlines()
    told = re.compile(r"\s*(?://|$)|#(?!define ATB_PLUGIN_ABI)|(?:class|struct) \w+;|(?:}  // )?namespace atb\b")
    return [line for line in lines if not told.match(line)]


def test_the_cpp_page_has_every_declaration() -> None:
    page = cpp_api.page()
    for header in sorted((ROOT / "include/atb").glob("*.h")):
        if header.name != "export.h":
            assert [line for line in declared(header) if line not in page] == [], header.name
    for name in ("GraphOp", "GraphItem", "atb::items", "atb_kernel", "atb_plugin_describe"):
        assert f"### {name}\n" in page


def names_of(package: str) -> list[str]:
    """What a package exports."""
    tree = ast.parse((ROOT / "python" / package / "__init__.py").read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    [listed] = [node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__"]
    return list(ast.literal_eval(listed))


@pytest.mark.parametrize(("package", "page"), [("atb", "python_api.md"), ("atb_torch", "torch_api.md")])
def test_the_python_pages_have_every_name(package: str, page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [name for name in names_of(package) if not re.search(rf"\b(?:{package}\.)?{name}\b", text)] == []
    directives = re.findall(rf"^\.\. auto\w+:: {package}\.(\w+)$", text, re.MULTILINE)
    assert set(directives) <= set(names_of(package))


def missing_pages(matrix: dict[str, Any], source: pathlib.Path) -> list[str]:
    kinds = ("operators", "patterns", "models")
    wanted = [f"{kind}/{generate.slug(item['name'])}.md" for kind in kinds for item in matrix[kind]]
    return [name for name in wanted if not (source / name).is_file()]


def test_everything_registered_has_a_page(tmp_path: pathlib.Path) -> None:
    program = pathlib.Path(os.environ.get("ATB_BUILD", ROOT / "build/release")) / "tools/op-matrix"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    matrix = json.loads(subprocess.run([program, "--json"], capture_output=True, text=True, check=True).stdout)
    make_docs.make_source(matrix, tmp_path / "source")
    assert missing_pages(matrix, tmp_path / "source") == []
    for name in ("linear", "rms_norm", "flash_attention_kv"):
        (tmp_path / f"source/operators/{name}.md").unlink()
    assert len(missing_pages(matrix, tmp_path / "source")) == 3


@pytest.mark.slow
def test_sphinx_builds_without_a_warning(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("myst_parser")
    listing = tmp_path / "matrix.sh"
    (tmp_path / "matrix.json").write_text(json.dumps(tiny_matrix()))
    listing.write_text(f"#!/bin/sh\ncat '{tmp_path}/matrix.json'\n")
    listing.chmod(0o755)
    command = [sys.executable, "docs/make_docs.py", "--matrix", str(listing), "--out", str(tmp_path / "docs")]
    subprocess.run(command, cwd=ROOT, check=True)
    assert (tmp_path / "docs/html/operators/soft_sign.html").is_file()
