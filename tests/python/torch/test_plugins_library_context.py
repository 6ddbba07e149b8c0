# SPDX-License-Identifier: Apache-2.0
"""What plugins in C++ are told of a call: the same as those in Python; libraries of the interface's first version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import atb as core  # noqa: E402
import atb_torch as atb  # noqa: E402
from block_reference import error, randomize  # noqa: E402
from test_plugins_library import SIMPLE, build, linear_block  # noqa: E402

pytestmark = pytest.mark.real

HEADER = Path(core.get_include()) / "atb/plugin.h"
EXAMPLE = Path(__file__).parents[3] / "examples/cpp/block_plugin/scalable_softmax.cc"
HIDDEN, HEADS = 32, 4

# Writes what it is told over the first features of each token.
TELL = """
#include <atb/plugin.h>
#include <cstring>
static int32_t run(const atb_call* call, int64_t, int64_t) {
  const atb_context* c = call->context;
  if (c == nullptr || c->size < static_cast<int64_t>(sizeof(atb_context))) return 1;
  const atb_tensor& x = call->outputs[0];
  for (int64_t b = 0; b < x.shape[0]; ++b) {
    for (int64_t t = 0; t < x.shape[1]; ++t) {
      float* y = static_cast<float*>(x.data) + b * x.strides[0] + t * x.strides[1];
      y[0] = static_cast<float>(c->positions[b * c->tokens + t]);
      y[1] = static_cast<float>(c->lengths[b]);
      y[2] = static_cast<float>(c->layer);
      y[3] = static_cast<float>(c->batch * 1000 + c->tokens);
      y[4] = std::strcmp(c->point, "post_p") == 0 ? 1.0f : 0.0f;
    }
  }
  return 0;
}
static const atb_kernel kernels[] = {{"tell.postprocess", 0, 0, run}};
static const atb_plugin plugin = {ATB_PLUGIN_ABI, 1, kernels};
ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &plugin; }
"""


@pytest.fixture(scope="module")
def teller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("plugin") / "tell.cc"
    source.write_text(TELL)
    return build(source, source.parent)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(EXAMPLE, tmp_path_factory.mktemp("plugin"))


class Remember(atb.Plugin):
    """The same in Python."""

    def __init__(self) -> None:
        self.seen: Any = None

    def postprocess(self, outputs: Any) -> Any:
        self.seen = self.context
        return outputs


def told_block(teller: Path, **options: Any) -> tuple[atb.GraphOp, Remember]:
    block = atb.GraphOp(
        [
            atb.Linear("qkv", out_features=3 * HIDDEN),
            atb.FlashAttention("attn", num_heads=HEADS, causal=True, kv_cache=True, **options),
            atb.Linear("p", out_features=HIDDEN),
        ]
    )
    remember = Remember()
    block.register_plugin("post_p", remember)
    block.register_plugin("post_p", atb.load_plugin(teller))
    return block, remember


def expect_told(output: torch.Tensor, remember: Remember) -> None:
    """The kernel was told what the plugin in Python was."""
    seen, batch, tokens = remember.seen, *output.shape[:2]
    assert torch.equal(output[..., 0], seen.positions.float().expand(batch, tokens))
    assert torch.equal(output[..., 1], seen.lengths.float()[:, None].expand(batch, tokens))
    assert (output[..., 2] == (-1 if seen.layer is None else seen.layer)).all()
    assert (output[..., 3] == batch * 1000 + tokens).all()
    assert (output[..., 4] == 1).all()


def hidden(batch: int, tokens: int) -> torch.Tensor:
    return torch.randn(batch, tokens, HIDDEN, generator=torch.Generator().manual_seed(3))


def test_without_a_cache(teller: Path) -> None:
    block, remember = told_block(teller)
    x = hidden(3, 7)
    expect_told(block(x)[0], remember)
    mask = torch.arange(7) < torch.tensor([[7], [4], [2]])
    output, _ = block(x, attention_mask=mask)
    expect_told(output, remember)
    assert output[:, 0, 1].tolist() == [7, 4, 2]
    expect_told(block(x, attention_mask=mask.long(), positions=torch.arange(7) * 3)[0], remember)
    expect_told(block(x, positions=(torch.arange(7) * torch.tensor([[1], [2], [5]])).int())[0], remember)
    block.layer = 6
    output, _ = block(x, attention_mask=torch.zeros(3, 7, 7))  # floats are no padding
    expect_told(output, remember)
    assert output[0, 0, 1:3].tolist() == [7, 6]
    expect_told(block(x[0])[0][None], remember)  # without a batch axis


@pytest.mark.parametrize("rope", [None, True], ids=["plain", "rope"])
def test_with_a_cache(teller: Path, rope: Any) -> None:
    block, remember = told_block(teller, rope=rope)
    first = atb.GraphOp([atb.FlashAttention(num_heads=HEADS, causal=True, kv_cache=True), atb.ResidualAdd()])
    cache = atb.KVCache(num_layers=2, num_heads=HEADS, head_dim=HIDDEN // HEADS, max_tokens=64)
    x, held = hidden(2, 9), 0
    with pytest.warns(UserWarning, match="no projection"):
        first(x, kv_cache=cache)
    for tokens in (4, 1, 4):
        part = x[:, held : held + tokens]
        output, _ = block(part, kv_cache=cache)
        expect_told(output, remember)
        assert output[0, 0, :3].tolist() == [held, held + tokens, 1]  # the second slot
        held += tokens
    mask = torch.arange(10) >= torch.tensor([[0], [5]])
    output, _ = block(x[:, :1], attention_mask=mask, positions=torch.tensor([[9], [4]]), kv_cache=cache)
    expect_told(output, remember)
    assert output[:, 0, :2].tolist() == [[9, 10], [4, 5]]
    alone = atb.KVCache(num_layers=1, num_heads=HEADS, head_dim=HIDDEN // HEADS, max_tokens=64)
    expect_told(block(x, kv_cache=alone)[0], remember)
    assert remember.seen.layer == 0  # of this cache


def test_other_streams_of_keys(teller: Path) -> None:
    block = atb.GraphOp([atb.Linear("qkv", out_features=3 * HIDDEN), atb.FlashAttention("p", num_heads=HEADS)])
    remember = Remember()
    block.register_plugin("post_p", remember)
    block.register_plugin("post_p", atb.load_plugin(teller))
    output = block(hidden(2, 3), hidden(2, 8), hidden(2, 8))
    expect_told(output, remember)
    assert output[0, 0, 1] == 8


def test_in_a_compiled_model(teller: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([told_block(teller, rope=True)[0] for _ in range(2)])
            self.kv_cache = atb.KVCache(num_layers=2, num_heads=HEADS, head_dim=HIDDEN // HEADS, max_tokens=64)

        def forward(self, x: torch.Tensor) -> Any:
            outputs = []
            for layer in self.layers:
                y, self.kv_cache = layer(x, kv_cache=self.kv_cache)
                outputs.append(y)
            return outputs

    model = Model().eval()
    compiled = atb.compile(model)
    with torch.no_grad():
        for held, tokens in ((0, 5), (5, 3), (8, 2)):
            for layer, output in enumerate(compiled(hidden(2, tokens))):
                assert output[1, -1, :3].tolist() == [held + tokens - 1, held + tokens, layer]


def test_the_example_scales_queries_by_their_position(example: Path) -> None:
    class Scalable(atb.Plugin):
        def preprocess(self, inputs: Any) -> Any:
            q, k, v = inputs
            return q * (0.43 * torch.log(self.context.positions + 1.0))[..., None], k, v

    def made(plugin: Any) -> atb.GraphOp:
        block = atb.GraphOp(
            [
                atb.Linear("qkv", out_features=3 * HIDDEN),
                atb.FlashAttention("attn", num_heads=HEADS, causal=True, kv_cache=True),
            ],
            threads=2,
        )
        block(hidden(1, 2))
        randomize(block)
        if plugin is not None:
            block.register_plugin("pre_attention", plugin)
        return block

    x, block = hidden(2, 12), made(atb.load_plugin(example))
    whole, _ = block(x)
    assert error(whole, made(Scalable())(x)[0]) < 1e-4
    assert error(made(None)(x)[0], whole) > 0.01
    cache = atb.KVCache(num_layers=1, num_heads=HEADS, head_dim=HIDDEN // HEADS, max_tokens=64)
    pieces = [block(part, kv_cache=cache)[0] for part in x.split([5, 1, 6], dim=1)]
    assert torch.equal(torch.cat(pieces, dim=1), whole)


def test_a_kernel_without_a_block_has_no_context(teller: Path) -> None:
    core.load_library(str(teller))
    custom = atb.GraphOp([atb.Custom("tell", "tell.postprocess", out_features=HIDDEN)])
    with pytest.raises(core.InvalidArgumentError):
        custom(hidden(1, 3))


# --- Versions of the interface


def library_of_version(folder: Path, name: str, version: int, function: str = "twice") -> Path:
    """A library made with the header of another version: the first has no context."""
    text = HEADER.read_text()
    assert "#define ATB_PLUGIN_ABI 2\n" in text
    text = text.replace("#define ATB_PLUGIN_ABI 2\n", f"#define ATB_PLUGIN_ABI {version}\n")
    if version == 1:
        lines = [line for line in text.splitlines() if "const atb_context* context;" not in line]
        assert len(lines) == len(text.splitlines()) - 1
        text = "\n".join(lines)
    (folder / "old.h").write_text(text)
    source = folder / f"{name}.cc"
    kernels = f'{{"{name}", 0, 0, {function}}}'
    source.write_text(SIMPLE.replace("<atb/plugin.h>", '"old.h"').replace("KERNELS", kernels))
    return build(source, folder)


def test_libraries_of_the_first_version_still_run(tmp_path: Path) -> None:
    x = hidden(2, 5)
    block, _ = linear_block(x)
    plain = block(x)
    block.register_plugin("post_p", atb.load_plugin(library_of_version(tmp_path, "first_version", 1)))
    assert torch.equal(block(x), 2 * plain)


@pytest.mark.parametrize("version", [0, 3])
def test_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    library = library_of_version(tmp_path, f"version_{version}", version)
    expected = rf"made for version {version} of the interface, this build takes 1 to 2: compile it again"
    with pytest.raises(core.InvalidArgumentError, match=expected):
        atb.load_plugin(library)
