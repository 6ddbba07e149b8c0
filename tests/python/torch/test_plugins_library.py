# SPDX-License-Identifier: Apache-2.0
"""Plugins in C++ at the points of a GraphOp: the example, mistakes of libraries and of kernels."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import atb as core  # noqa: E402
import atb_torch as atb  # noqa: E402
from block_reference import attention, error, linear, randomize  # noqa: E402

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).parents[3] / "examples/cpp/block_plugin/qk_norm.cc"
HIDDEN, HEADS = 32, 4

# Kernels over one input: twice it, it plus one, and one that fails for numbers above 1000.
SIMPLE = """
#include <atb/plugin.h>
static int64_t count(const atb_tensor* x) {
  int64_t n = 1;
  for (int32_t i = 0; i < x->rank; ++i) n *= x->shape[i];
  return n;
}
static int32_t apply(const atb_call* call, float scale, float shift) {
  const float* x = static_cast<const float*>(call->inputs[0].data);
  float* y = static_cast<float*>(call->outputs[0].data);
  for (int64_t i = 0; i < count(&call->outputs[0]); ++i) {
    if (x[i] > 1000) return 1;
    y[i] = x[i] * scale + shift;
  }
  return 0;
}
[[maybe_unused]] static int32_t twice(const atb_call* call, int64_t, int64_t) { return apply(call, 2, 0); }
[[maybe_unused]] static int32_t plus(const atb_call* call, int64_t, int64_t) { return apply(call, 1, 1); }
static const atb_kernel kernels[] = {KERNELS};
static const atb_plugin plugin = {ATB_PLUGIN_ABI, sizeof(kernels) / sizeof(kernels[0]), kernels};
ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &plugin; }
"""


def build(source: Path, folder: Path) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = folder / f"lib{source.stem}.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{core.get_include()}", str(source)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


def simple(folder: Path, name: str, **kernels: str) -> Path:
    """A library with kernels of these names, each with one of the functions of SIMPLE."""
    source = folder / f"{name}.cc"
    table = ", ".join(f'{{"{kernel}", 0, 0, {function}}}' for kernel, function in kernels.items())
    source.write_text(SIMPLE.replace("KERNELS", table))
    return build(source, folder)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(EXAMPLE, tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernels = {"pair.preprocess": "twice", "pair.postprocess": "plus"}
    return simple(tmp_path_factory.mktemp("plugin"), "pair", **kernels)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 11, HIDDEN, generator=torch.Generator().manual_seed(3))


def linear_block(x: torch.Tensor) -> tuple[atb.GraphOp, dict[str, torch.Tensor]]:
    block = atb.GraphOp([atb.Linear("p", out_features=HIDDEN)])
    block(x)
    return block, randomize(block)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_example_runs_inside_the_launch(example: Path, threads: int, x: torch.Tensor) -> None:
    block = atb.GraphOp(
        [
            atb.Linear("p", out_features=(4 + 2 * 2) * 8),
            atb.FlashAttention("attn", num_heads=4, num_kv_heads=2, causal=True),
        ],
        threads=threads,
    )
    block(x)
    state = randomize(block)
    plain = block(x)
    plugin = atb.load_plugin(example)
    block.register_plugin("pre_attention", plugin)

    def expected(x: torch.Tensor) -> torch.Tensor:
        def normed(t: torch.Tensor) -> torch.Tensor:
            return t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-6)

        parts = linear(state, "p", x).split((32, 16, 16), -1)
        return attention(*parts, 4, 2, causal=True, rotate=normed)

    assert error(block(x), expected(x)) < 1e-4
    assert error(plain, expected(x)) > 1e-2
    assert 'kernel="qk_norm"' in str(block.compiled)
    long = torch.randn(3, 150, HIDDEN)
    assert error(block(long), expected(long)) < 1e-4
    plugin.enabled = False
    assert torch.equal(block(x), plain)


def test_the_example_and_the_same_in_python_give_equal_bits_elsewhere(example: Path, x: torch.Tensor) -> None:
    block = atb.GraphOp([atb.Linear(out_features=3 * HIDDEN), atb.FlashAttention("attn", num_heads=HEADS)])
    block(x)
    randomize(block)
    seen = []

    class See(atb.Plugin):
        def preprocess(self, inputs):  # type: ignore[no-untyped-def]
            seen.append(inputs)
            return inputs

    block.register_plugin("pre_attn", See())
    block.register_plugin("pre_attn", atb.load_plugin(example))
    block.register_plugin("pre_attn", See())
    block(x)
    before, after = seen
    assert torch.equal(before[2], after[2])
    for one, other in zip(before[:2], after[:2], strict=True):
        assert error(other, one * torch.rsqrt(one.pow(2).mean(-1, keepdim=True) + 1e-6)) < 1e-5


def test_a_pair_of_kernels_wraps_an_item(pair: Path, x: torch.Tensor) -> None:
    block, state = linear_block(x)
    handle = block.register_plugin("pre_p", atb.load_plugin(pair))
    assert error(block(x), linear(state, "p", 2 * x) + 1) < 1e-4
    handle.remove()
    block.register_plugin("post_p", atb.load_plugin(pair))
    assert error(block(x), linear(state, "p", x) + 1) < 1e-4


def test_a_lone_kernel_runs_where_the_point_is(tmp_path: Path, x: torch.Tensor) -> None:
    block, state = linear_block(x)
    plugin = atb.load_plugin(simple(tmp_path, "lone", lone_kernel="twice"))
    handle = block.register_plugin("pre_p", plugin)
    assert error(block(x), linear(state, "p", 2 * x)) < 1e-4
    handle.remove()
    block.register_plugin("post_p", plugin)
    assert error(block(x), 2 * linear(state, "p", x)) < 1e-4


def test_kernels_by_name(tmp_path: Path, x: torch.Tensor) -> None:
    block, state = linear_block(x)
    library = simple(tmp_path, "named", named_a="twice", named_b="plus")
    with pytest.raises(core.InvalidArgumentError, match=r"has the kernels named_a, named_b; say which is preprocess="):
        atb.load_plugin(library)
    with pytest.raises(core.InvalidArgumentError, match=r"has no kernel 'named_c'; it has named_a, named_b"):
        atb.load_plugin(library, preprocess="named_c")
    block.register_plugin("pre_p", atb.load_plugin(library, postprocess="named_a", preprocess="named_b"))
    assert error(block(x), 2 * linear(state, "p", x + 1)) < 1e-4
    only_before = atb.load_plugin(library, preprocess="named_a")
    with pytest.raises(core.InvalidArgumentError, match=r"post_p: LibraryPlugin would do nothing"):
        block.register_plugin("post_p", only_before)


def test_a_plugin_is_loaded_again_with_a_saved_block(pair: Path) -> None:
    plugin = pickle.loads(pickle.dumps(atb.load_plugin(pair)))
    assert plugin.path == str(pair) and plugin.enabled


def test_what_a_kernel_does_not_take_is_refused_with_the_point(example: Path, x: torch.Tensor) -> None:
    block, _ = linear_block(x)
    block.register_plugin("pre_p", atb.load_plugin(example))
    with pytest.raises(
        core.UnsupportedError, match=r"pre_p \(p\): kernel qk_norm does not take it: it takes \(q, k, v\)"
    ):
        block(x)


def test_a_kernel_that_fails_names_the_point_and_the_next_call_works(pair: Path, x: torch.Tensor) -> None:
    block, _ = linear_block(x)
    block.register_plugin("pre_p", atb.load_plugin(pair))
    right = block(x)
    with pytest.raises(core.InvalidArgumentError, match=r"\[plugin\] pre_p: a kernel may have failed: .*discarded"):
        block(x + 2000)
    assert torch.equal(block(x), right)


def test_a_library_that_is_not_there() -> None:
    with pytest.raises(core.NotFoundError, match=r"libnone.so cannot be loaded"):
        atb.load_plugin("libnone.so")
