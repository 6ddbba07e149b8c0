# SPDX-License-Identifier: Apache-2.0
"""Reports: what they print, the page that they write, and the exact lines of the log."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import atb
import numpy as np
import pytest
from atb import FusionOp, GraphOptimizer, Pattern, ops
from atb.report import Report
from typer.testing import CliRunner

pytestmark = pytest.mark.real

# A gated block that fuses in layer 0; in layer 1 the gate is read a second time.
TWO_LAYERS = """
graph @two_layers(%x: f32[T, 8]) {
  symbols T in [1, 4096]
  const @gate0 : f32[16, 8]
  const @up0 : f32[16, 8]
  const @gate1 : f32[16, 8]
  const @up1 : f32[16, 8]
  const @down : f32[8, 16]
  %l0.gate = linear(%x, @gate0) {layer=0} : f32[T, 16]
  %l0.act = silu(%l0.gate) {layer=0} : f32[T, 16]
  %l0.up = linear(%x, @up0) {layer=0} : f32[T, 16]
  %l0.mul = mul(%l0.act, %l0.up) {layer=0} : f32[T, 16]
  %l0.out = linear(%l0.mul, @down) {layer=0} : f32[T, 8]
  %l1.gate = linear(%l0.out, @gate1) {layer=1} : f32[T, 16]
  %l1.act = silu(%l1.gate) {layer=1} : f32[T, 16]
  %l1.up = linear(%l0.out, @up1) {layer=1} : f32[T, 16]
  %l1.mul = mul(%l1.act, %l1.up) {layer=1} : f32[T, 16]
  %l1.out = linear(%l1.mul, @down) {layer=1} : f32[T, 8]
  return %l1.out, %l1.gate
}
"""


def weights() -> dict[str, np.ndarray]:
    chance = np.random.default_rng(0)
    shapes = {"gate0": (16, 8), "up0": (16, 8), "gate1": (16, 8), "up1": (16, 8), "down": (8, 16)}
    return {name: chance.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def compiled() -> atb.CompiledGraph:
    return atb.Graph.parse(TWO_LAYERS, weights()).compile()


def test_a_report_is_a_dict_that_prints_a_table() -> None:
    report = compiled().report(tokens=16)
    assert report["kernels_per_layer"] == {"before": 5, "after": 3.5}
    assert json.loads(json.dumps(report)) == report and "sketch" not in report
    text = str(report)
    assert text.splitlines()[0] == "Fusion, one layer of 2, step of 16 tokens (cumulative)"
    row = next(line for line in text.splitlines() if line.startswith("│ GateUp"))
    assert [cell.strip() for cell in row.strip("│").split("│")][:3] == ["GateUp", "1 of 2", "3.5"]
    assert (
        "GateUp not matched at layer 1: l1.gate: gate read only inside the pattern, found a graph output,"
        " needs no other reader" in text.splitlines()
    )


def test_rows_of_the_users_patterns_come_first_and_before_counts_without_them() -> None:
    optimizer = GraphOptimizer().register_pattern(
        Pattern.from_functions(lambda x: ops.silu(x), lambda x: FusionOp("my_act", kernel=lambda a: a), name="Act")
    )
    report = optimizer.optimize(atb.Graph.parse(TWO_LAYERS, weights())).report(tokens=16)
    first, *others = report["patterns"]
    assert (first["name"], first["layers_matched"], first["kernels_per_layer"]) == ("Act", 2, 5)
    assert "GateUp" in [row["name"] for row in others]
    assert report["kernels_per_layer"] == {"before": 5, "after": 5}


class _Balanced(HTMLParser):
    """Fails where tags do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    report = compiled().report(tokens=16)
    report.html(path)
    text = path.read_text(encoding="utf-8")
    page = _Balanced()
    page.feed(text)
    assert page.open == [] and page.links == [] and "<script" not in text and "@import" not in text
    assert "GateUp" in text and "a graph output" in text and "two_layers" in text
    before, after = (ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert "viewBox" in before.attrib and before.attrib["role"] == "img"
    assert boxes(before) == ["l0.out", "linear", "linear", "linear", "mul", "silu"]
    assert boxes(after) == ["l0.out", "linear", "linear", "linear", "mul", "silu"]


def boxes(svg: ET.Element) -> list[str]:
    space = "{http://www.w3.org/2000/svg}"
    return sorted(group.find(f"{space}text").text or "" for group in svg.iter(f"{space}g"))  # type: ignore[union-attr]


def test_the_picture_shows_what_is_new() -> None:
    report = compiled().report()
    report.sketch = {
        "layer": 0,
        "before": [node("a", "linear", "x"), node("b", "silu", "a"), node("v", "reshape", "b", view=True)],
        "after": [node("b", "fused_thing", "x")],
    }
    from atb.report_html import page

    text = page(report)
    before, after = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert before.count('class="kernel"') == 2 and before.count('class="view"') == 1
    assert after.count('class="fused"') == 1 and before.count('class="edge"') == 3
    assert "Layer 0, before and after" in text and "Before: 2 kernels," in text and "After: 1 kernel," in text


def test_wires_go_around_boxes() -> None:
    from atb.layer_picture import HEIGHT, WIDTH, draw

    chain = [node("a", "mul", "x"), node("b", "mul", "a"), node("c", "mul", "b"), node("d", "add", "c", "x", "late")]
    svg = ET.fromstring(draw(chain, set(), "a layer"))
    space = "{http://www.w3.org/2000/svg}"
    rects = [tuple(float(rect.attrib[key]) for key in ("x", "y")) for rect in svg.iter(f"{space}rect")]
    lines = [  # straight pieces down through a row: x, from, to
        (float(x), float(top), float(bottom))
        for path in svg.iter(f"{space}path")
        for x, top, bottom in re.findall(r"([\d.]+) ([\d.]+)V([\d.]+)", path.attrib["d"])
    ]
    assert len(lines) == 3, "from x past a, b and c"
    for x, top, bottom in lines:
        assert not any(left <= x <= left + WIDTH and above < bottom and above + HEIGHT > top for left, above in rects)
    assert all(left >= 0 and left + WIDTH <= float(svg.attrib["width"]) for left, _ in rects)
    tops = dict(zip(boxes_in_order(svg), (top for _, top in rects), strict=True))
    assert tops["late"] == tops["c"] and tops["x"] < tops["a"], "from outside: above the first reader"


def node(name: str, op: str, *inputs: str, view: bool = False) -> dict[str, object]:
    return {"name": name, "op": op, "inputs": list(inputs), "bytes": 1000, "view": view}


def boxes_in_order(svg: ET.Element) -> list[str]:
    return [title.text or "" for title in svg.iter("{http://www.w3.org/2000/svg}title")]


def test_names_are_escaped() -> None:
    facts = dict(compiled().report())
    facts["not_matched"] = [
        {"pattern": "<P>", "layer": 0, "node": "a&b", "constraint": "c", "actual": "<i>", "expected": '"q"'}
    ]
    from atb.report_html import page

    text = page(Report(facts, title="<title>"))
    assert "&lt;P&gt;" in text and "a&amp;b" in text and "<i>" not in text and "<h1>&lt;title&gt;</h1>" in text


def test_misses_that_are_alike_share_a_row() -> None:
    facts = dict(compiled().report())
    facts["not_matched"] = [
        {"pattern": "P", "layer": layer, "node": f"n{layer}", "constraint": "c", "actual": actual, "expected": "e"}
        for layer, actual in [(-1, "x"), (0, "x"), (1, "x"), (2, "y"), (3, "x"), (5, "x"), (6, "x"), (7, "x")]
    ]
    from atb.report_html import page

    text = page(Report(facts))
    assert "<td>P</td><td>none, 0-1, 3, 5-7</td><td>n-1 and 6 more</td><td>c</td><td>x</td><td>e</td>" in text
    assert re.search(r"<td>P</td><td>2</td><td>n2</td><td>c</td><td>y</td>", text), "another reason: another row"


def test_explain_writes_the_page(tmp_path: Path) -> None:
    from atb.cli.app import app

    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 100,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "tie_word_embeddings": False, "hidden_act": "silu",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    path = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["explain", "--config", str(tmp_path / "config.json"), "--html", str(path)])
    assert result.exit_code == 0, result.stderr
    assert str(path) in result.stdout.replace("\n", "")
    text = path.read_text(encoding="utf-8")
    assert (
        "Layer 1, before and after" in text
        and "Before: 20 kernels" in text
        and "After: 8 kernels" in text
        and "QKV+RoPE" in text
    )
    again = CliRunner().invoke(app, ["explain", "--config", str(tmp_path / "config.json"), "--json"])
    assert "sketch" not in json.loads(again.stdout)


LOGGED = """
import atb, json, sys
import numpy as np
from atb import FusionOp, GraphOptimizer, Pattern, ops
sys.path.insert(0, sys.argv[1])
from test_reports import TWO_LAYERS, weights
optimizer = GraphOptimizer(log_level=sys.argv[2])
optimizer.register_pattern(Pattern.from_functions(
    lambda x: ops.silu(x), lambda x: ops.relu(x), lambda x: x.name == "l1.gate" or "not the last layer", name="Act"))
optimizer.optimize(atb.Graph.parse(TWO_LAYERS, weights()))
"""


def logged(level: str) -> list[str]:
    here = str(Path(__file__).parent)
    run = subprocess.run([sys.executable, "-c", LOGGED, here, level], capture_output=True, text=True, check=True)
    return run.stderr.splitlines()


def test_the_log_of_a_debug_run_has_these_lines() -> None:
    lines = logged("debug")
    assert lines[:3] == [
        "[GraphOptimizer] Pattern Act matched at layer 1",
        "[GraphOptimizer] Replaced with relu",
        "[GraphOptimizer] Pattern Act not matched at layer 0: l0.act: check, found not the last layer,"
        " needs a place that check accepts",
    ]
    assert "[GraphOptimizer] Pattern GateUp matched at layer 0" in lines
    assert lines[lines.index("[GraphOptimizer] Pattern GateUp matched at layer 0") + 1] == (
        "[GraphOptimizer] Replaced with FusedGateUp"
    )
    assert (
        "[GraphOptimizer] Pattern GateUp not matched at layer 1: l1.gate: gate read only inside the pattern,"
        " found a graph output, needs no other reader" in lines
    )
    assert all(line.startswith("[GraphOptimizer] ") for line in lines)


def test_info_has_the_matches_alone_and_warning_nothing() -> None:
    lines = logged("info")
    assert any("matched at layer" in line for line in lines) and not any("not matched" in line for line in lines)
    assert logged("warning") == []


def test_the_log_of_a_model_names_the_four_fusions(tmp_path: Path) -> None:
    code = "import atb, sys; atb._core.set_log_level('debug'); atb._core.explain_json(sys.argv[1], 16, 'auto')"
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "vocab_size": 100,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "tie_word_embeddings": False, "hidden_act": "silu",
    }))  # fmt: skip
    run = subprocess.run([sys.executable, "-c", code, str(config)], capture_output=True, text=True, check=True)
    lines = run.stderr.splitlines()
    for pattern, replacement in (
        ("QKV+RoPE", "MergedMatMul+RotaryEmbedding"),
        ("SDPA", "FlashAttention"),
        ("GateUp", "FusedGateUp"),
        ("AddNorm", "FusedAddNorm"),
    ):
        at = lines.index(f"[GraphOptimizer] Pattern {pattern} matched at layer 0")
        assert lines[at + 1] == f"[GraphOptimizer] Replaced with {replacement}"
