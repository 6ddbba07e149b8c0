# SPDX-License-Identifier: Apache-2.0
"""Kernels in C++: the example built by the system's compiler and loaded, and libraries that are no plugins."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import atb
import numpy as np
import pytest
from atb import FusionOp, GraphOptimizer, Node, Pattern

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/cpp/fused_op/scaled_add.cc"

GRAPH = """
graph @g(%x: f32[B, T, 6], %y: f32[B, T, 6]) {
  symbols B in [1, 8], T in [0, 1000]
  const @two : f32[] = 2.0
  %sum = add(%x, %y) {layer=0} : f32[B, T, 6]
  %out = mul(%sum, @two) {layer=0} : f32[B, T, 6]
  %last = relu(%out) : f32[B, T, 6]
  return %last
}
"""


def build(source: Path, folder: Path) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = folder / f"lib{source.stem}.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{atb.get_include()}", str(source)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = build(EXAMPLE, tmp_path_factory.mktemp("plugin"))
    assert atb.load_library(str(library)) == ["scaled_add"]
    return library


def scaled_add() -> Pattern:
    return Pattern.from_functions(
        lambda x, y: (x + y) * 2, lambda x, y: FusionOp("my_scaled_add", kernel="scaled_add"), name="ScaledAdd"
    )


def arrays(batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(length)
    x, y = (chance.standard_normal((batch, length, 6)).astype(np.float32) for _ in range(2))
    return x, y


@pytest.mark.parametrize("threads", [1, 3])
def test_a_kernel_in_cpp_computes_the_matched_nodes(example: Path, threads: int) -> None:
    fast = GraphOptimizer().register_pattern(scaled_add()).optimize(atb.Graph.parse(GRAPH), threads=threads)
    assert 'kernel="scaled_add"' in str(fast)
    for batch, length in ((1, 0), (1, 1), (2, 7), (3, 301)):
        x, y = arrays(batch, length)
        np.testing.assert_array_equal(np.asarray(fast(x, y)[0]), np.maximum(2 * (x + y), 0))


def test_it_takes_inputs_of_any_strides(example: Path) -> None:
    fast = GraphOptimizer().register_pattern(scaled_add()).optimize(atb.Graph.parse(GRAPH))
    x, y = (np.ascontiguousarray(a.T).T for a in arrays(2, 7))
    y = y[:, ::-1]
    np.testing.assert_array_equal(np.asarray(fast(x, y)[0]), np.maximum(2 * (x + y), 0))


def test_loading_it_again_changes_nothing(example: Path) -> None:
    assert atb.load_library(str(example)) == ["scaled_add"]


def test_an_operator_that_atb_does_not_know_finds_its_kernel_by_name(example: Path) -> None:
    graph = atb.Graph.parse(
        "graph @g(%x: f32[T, 4]) {\n  symbols T in [1, 9]\n"
        '  %y = external(%x, %x) {target="scaled_add", types="f32[T, 4]"} : f32[T, 4]\n  return %y\n}'
    )
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(np.asarray(graph.compile()(x)[0]), 4 * x)


def test_what_a_kernel_does_not_take_is_refused_when_compiling(example: Path) -> None:
    class OneInput(Pattern):
        def match(self, graph: atb.Graph) -> list[Node] | None:
            found = graph.find_nodes(op="call_function", target="relu")
            return found or None

        def replace(self, matched_nodes: Sequence[Node]) -> FusionOp:
            return FusionOp("my_relu", kernel="scaled_add")

    with pytest.raises(atb.UnsupportedError, match=r"my_relu .*scaled_add does not take it: it takes two inputs"):
        GraphOptimizer().register_pattern(OneInput()).optimize(atb.Graph.parse(GRAPH))


def test_a_kernel_that_fails_ends_the_call_and_not_the_process(tmp_path: Path) -> None:
    source = tmp_path / "failing.cc"
    source.write_text(
        "#include <atb/plugin.h>\n#include <stdexcept>\n"
        "static int32_t run(const atb_call* call, int64_t, int64_t) {\n"
        "  const float first = *static_cast<const float*>(call->inputs[0].data);\n"
        '  if (first > 1) throw std::runtime_error("no");\n'
        "  *static_cast<float*>(call->outputs[0].data) = first;\n  return first < 0 ? 3 : 0;\n}\n"
        'static const atb_kernel kernels[] = {{"test_failing", 0, 0, run}};\n'
        "static const atb_plugin plugin = {ATB_PLUGIN_ABI, 1, kernels};\n"
        "ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &plugin; }\n"
    )
    atb.load_library(str(build(source, tmp_path)))
    graph = atb.Graph.parse(
        'graph @g(%x: f32[1]) {\n  %y = external(%x) {target="test_failing", types="f32[1]"} : f32[1]\n  return %y\n}'
    )
    fast = graph.compile()
    for wrong in (-1.0, 2.0):
        with pytest.raises(atb.InvalidArgumentError, match="the results are discarded"):
            fast(np.array([wrong], np.float32))
    assert fast(np.array([0.5], np.float32))[0].tolist() == [0.5]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "has no function atb_plugin_describe"),
        ("ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return 0; }", "gives nothing"),
        (
            "static const atb_plugin p = {99, 0, 0};\n"
            "ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &p; }",
            "made for version 99 of the interface, this build takes 1 to 2",
        ),
        (
            "static const atb_plugin p = {ATB_PLUGIN_ABI, 0, 0};\n"
            "ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &p; }",
            "has no kernels",
        ),
        (
            'static const atb_kernel k[] = {{"nameless", 0, 0, 0}};\n'
            "static const atb_plugin p = {ATB_PLUGIN_ABI, 1, k};\n"
            "ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &p; }",
            "kernel 0 has no name or no run function",
        ),
    ],
)
def test_libraries_that_are_no_plugins(tmp_path: Path, body: str, message: str) -> None:
    source = tmp_path / "wrong.cc"
    source.write_text(f"#include <atb/plugin.h>\n{body}\n")
    with pytest.raises(atb.InvalidArgumentError, match=message):
        atb.load_library(str(build(source, tmp_path)))


def test_another_library_may_not_take_a_name(example: Path, tmp_path: Path) -> None:
    source = tmp_path / "twin.cc"
    source.write_text(EXAMPLE.read_text(encoding="utf-8"))
    with pytest.raises(atb.InvalidArgumentError, match="another library has a kernel scaled_add already"):
        atb.load_library(str(build(source, tmp_path)))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(atb.NotFoundError, match="cannot be loaded"):
        atb.load_library(str(tmp_path / "libnothing.so"))


def test_the_header_is_plain_c(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = tmp_path / "plain.c"
    source.write_text('#include <atb/plugin.h>\nconst atb_kernel k = {"k", 0, 0, 0};\n')
    command = [compiler, "-std=c99", "-Wall", "-Werror", "-c", f"-I{ROOT / 'include'}", str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "plain.o")], check=True)
