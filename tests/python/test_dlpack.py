# SPDX-License-Identifier: Apache-2.0
"""Arrays in and out without copies: DLPack of both forms, buffers, lifetimes, strides, what is refused."""

from __future__ import annotations

import gc
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any

import atb
import numpy as np
import pytest
import torch

pytestmark = pytest.mark.real

LINEAR = """
graph @linear(%x: f32[T, 6]) {
  symbols T in [0, 1000]
  const @w : f32[5, 6]
  %y = linear(%x, @w) : f32[T, 5]
  return %y
}
"""
TYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}


def linear(weight: Any) -> atb.CompiledGraph:
    return atb.Graph.parse(LINEAR, {"w": weight}).compile(threads=2)


def same(dtype: str) -> atb.CompiledGraph:
    return atb.Graph.parse(f"graph @same(%x: {dtype}[T, 3]) {{\n  symbols T in [0, 9]\n  return %x\n}}\n").compile()


@pytest.fixture(scope="module")
def weight() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)


class OldCapsules:
    """An exporter from before versions: __dlpack__ takes no arguments."""

    def __init__(self, array: Any) -> None:
        self.array, self.exports = array, 0

    def __dlpack__(self) -> Any:
        self.exports += 1
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("dtype", TYPES)
def test_every_dtype_goes_through(dtype: str) -> None:
    x = torch.arange(-4, 5).reshape(3, 3).to(TYPES[dtype])
    (out,) = same(dtype)(x)
    assert (out.dtype, out.shape, out.nbytes) == (dtype, (3, 3), x.element_size() * 9)
    back = torch.from_dlpack(out)
    assert back.dtype == x.dtype
    assert torch.equal(back, x)
    if dtype == "bf16":
        for read in (memoryview, np.asarray, lambda tensor: tensor.tolist()):
            with pytest.raises(BufferError, match="import it by DLPack"):
                read(out)
    else:
        assert np.array_equal(np.asarray(out), x.numpy())
        assert np.array_equal(np.from_dlpack(out), x.numpy())
        assert out.tolist() == x.tolist()


@pytest.mark.parametrize("shape", [(), (4,), (0, 3), (3, 0), (2, 3, 2)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i64", "bool"])
def test_lists_without_numpy(dtype: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(12)[: math.prod(shape)].reshape(shape).to(TYPES[dtype])
    axes = ", ".join("ABC"[: len(shape)])
    symbols = "symbols " + ", ".join(f"{axis} in [0, 9]" for axis in "ABC"[: len(shape)]) if shape else ""
    (out,) = atb.Graph.parse(f"graph @g(%x: {dtype}[{axes}]) {{ {symbols} return %x }}").compile(threads=1)(x)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert out.tolist() == x.tolist()


def test_outputs_share_their_memory(weight: np.ndarray) -> None:
    (out,) = linear(weight)(np.ones((4, 6), np.float32))
    array = np.asarray(out)
    assert address(array) == torch.from_dlpack(out).data_ptr() == address(np.from_dlpack(out))
    array[0, 0] = 7
    assert torch.from_dlpack(out)[0, 0] == memoryview(out)[0, 0] == 7
    assert repr(out) == "atb.Tensor(f32[4, 5])"
    assert out.__dlpack_device__() == (1, 0)
    assert '"dltensor"' in repr(out.__dlpack__())
    assert '"dltensor_versioned"' in repr(out.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(out.__dlpack__(max_version=(0, 8)))
    with pytest.raises(BufferError):
        out.__dlpack__(dl_device=(2, 0))


def test_outputs_outlive_everything(weight: np.ndarray) -> None:
    run = linear(weight)
    x = np.ones((4, 6), np.float32)
    expected = np.asarray(run(x)[0]).copy()
    views = [np.asarray(run(x)[0]), torch.from_dlpack(run(x)[0]).numpy(), np.frombuffer(run(x)[0], np.float32)]
    capsule = run(x)[0].__dlpack__()
    del run, capsule
    gc.collect()
    for view in views:
        assert np.array_equal(view.reshape(4, 5), expected)


def test_constants_are_held_and_not_copied(weight: np.ndarray) -> None:
    class Array(np.ndarray):
        pass

    held = weight.copy().view(Array)
    watch, references = weakref.ref(held), sys.getrefcount(held)
    graph = atb.Graph.parse("graph @c(%x: f32[1]) {\n  const @w : f32[5, 6]\n  return @w\n}\n", {"w": held})
    assert sys.getrefcount(held) > references
    held[0, 0] = 42  # seen by the graph only if it has no copy
    run = graph.compile()
    del held, graph
    gc.collect()
    assert watch() is not None
    assert np.asarray(run(np.zeros(1, np.float32))[0])[0, 0] == 42
    del run
    gc.collect()
    assert watch() is None


def test_inputs_are_lent_for_the_call_only(weight: np.ndarray) -> None:
    run = linear(weight)
    x = np.ones((4, 6), np.float32)
    references = sys.getrefcount(x)
    before = np.asarray(run(x)[0]).copy()
    assert sys.getrefcount(x) == references
    x *= 2
    assert np.array_equal(np.asarray(run(x)[0]), 2 * before)


STRIDED: dict[str, Callable[[np.ndarray], Any]] = {
    "as it is": lambda x: x,
    "torch": torch.from_numpy,
    "without versions": OldCapsules,
    "buffer": memoryview,
    "atb": lambda x: same_f32(x),
    "columns apart": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "column-major": np.asfortranarray,
    "transposed torch": lambda x: torch.from_numpy(np.ascontiguousarray(x.T)).T,
    "rows apart": lambda x: np.repeat(x, 3, axis=0)[::3],
    "part of a row": lambda x: np.pad(x, ((1, 0), (2, 3)))[1:, 2:-3],
    "rows reversed": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "columns reversed": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "both reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "misaligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.float32, offset=1).reshape(x.shape),
    "read-only": lambda x: frozen(x),
}


def frozen(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


def same_f32(x: np.ndarray) -> atb.Tensor:
    text = "graph @same(%x: f32[T, 6]) {\n  symbols T in [0, 1000]\n  return %x\n}\n"
    return atb.Graph.parse(text).compile()(x)[0]


@pytest.mark.parametrize("kind", STRIDED)
def test_arrays_of_every_kind(kind: str, weight: np.ndarray) -> None:
    x = np.random.default_rng(1).standard_normal((9, 6)).astype(np.float32)
    run = linear(weight)
    assert np.array_equal(np.asarray(run(STRIDED[kind](x))[0]), np.asarray(run(x)[0]))


def test_expanded_and_empty_arrays(weight: np.ndarray) -> None:
    run = linear(weight)
    row = np.random.default_rng(2).standard_normal((1, 6)).astype(np.float32)
    expected = np.asarray(run(np.ascontiguousarray(np.broadcast_to(row, (4, 6))))[0])
    assert np.array_equal(np.asarray(run(np.broadcast_to(row, (4, 6)))[0]), expected)
    assert np.array_equal(np.asarray(run(torch.from_numpy(row).expand(4, 6))[0]), expected)
    constant = torch.tensor(0.5).expand(4, 6)
    assert np.array_equal(np.asarray(run(constant)[0]), np.asarray(run(constant.contiguous())[0]))
    for empty in (np.zeros((0, 6), np.float32), torch.zeros(0, 6)):
        (out,) = run(empty)
        assert out.shape == np.asarray(out).shape == tuple(torch.from_dlpack(out).shape) == (0, 5)


class Elsewhere:
    """An array on an accelerator: it must be refused before it is asked for its memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("asked for memory of an accelerator")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (Elsewhere(), "is on a CUDA device; ATB reads arrays of the CPU"),
        (torch.zeros(2, 6, device="meta"), "on a device that DLPack does not know"),
        (torch.zeros(2, 6, requires_grad=True), "requires gradients"),
        (torch.zeros(2, 6, dtype=torch.complex64), "dtype complex64; supported are f32"),
        (np.zeros((2, 6), np.uint16), "dtype uint16; supported are f32"),
        (np.zeros((2, 6), "datetime64[s]"), r"ndarray of dtype datetime64\[s\] gives no array of numbers"),
        (np.zeros((2, 6), ">f4"), "gives no array of numbers"),
        (torch.zeros(2, 6).to_sparse(), "gives no array of numbers"),
        (np.zeros((1,) * 9, np.float32), "9 axes, at most 8"),
        ([[1.0] * 6], "a list gives no array of numbers"),
        (None, "a NoneType gives no array of numbers"),
        ("text", "a str gives no array of numbers"),
    ],
)
def test_what_is_refused(array: Any, message: str, weight: np.ndarray) -> None:
    with pytest.raises(atb.Error, match=rf"^\[graph\] input x: .*{message}"):
        linear(weight)(array)


def test_constants_that_are_refused(weight: np.ndarray) -> None:
    misaligned = np.frombuffer(b"." + weight.tobytes(), np.float32, offset=1).reshape(5, 6)
    for array, message in [
        (np.asfortranarray(weight), "is strided"),
        (misaligned, "is not aligned"),
        (Elsewhere(), "CUDA"),
    ]:
        with pytest.raises(atb.Error, match=rf"^\[graph\] constant w: .*{message}"):
            linear(array)
    parameter = torch.nn.Parameter(torch.from_numpy(weight))
    x = np.ones((2, 6), np.float32)
    assert np.array_equal(np.asarray(linear(parameter)(x)[0]), np.asarray(linear(weight)(x)[0]))
