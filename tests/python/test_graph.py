# SPDX-License-Identifier: Apache-2.0
"""Graphs run from Python against torch: numbers, shapes, threads, reports, and what is refused."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref

import atb
import numpy as np
import pytest
import torch
from forks import wait_for

pytestmark = pytest.mark.real

MLP = """
graph @mlp(%x: f32[T, {d}]) {{
  symbols T in [1, 4096]
  const @norm : f32[{d}]
  const @gate : f32[{h}, {d}]
  const @up : f32[{h}, {d}]
  const @down : f32[{d}, {h}]
  %n = rms_norm(%x, @norm) {{layer=0, eps=1e-05}} : f32[T, {d}]
  %g = linear(%n, @gate) {{layer=0}} : f32[T, {h}]
  %a = silu(%g) {{layer=0}} : f32[T, {h}]
  %u = linear(%n, @up) {{layer=0}} : f32[T, {h}]
  %m = mul(%a, %u) {{layer=0}} : f32[T, {h}]
  %d = linear(%m, @down) {{layer=0}} : f32[T, {d}]
  %y = add(%x, %d) {{layer=0}} : f32[T, {d}]
  return %y
}}
"""

ATTENTION = """
graph @attention(%q: f32[B, H, T, {d}], %k: f32[B, H, S, {d}], %v: f32[B, H, S, {d}], %mask: f32[T, S]) {{
  symbols B in [1, 8], H in [1, 8], S in [1, 4096], T in [1, 4096]
  const @scale : f32[] = {scale}
  %kt = transpose(%k) {{perm=[0, 1, 3, 2]}} : f32[B, H, {d}, S]
  %s = matmul(%q, %kt) : f32[B, H, T, S]
  %scaled = mul(%s, @scale) : f32[B, H, T, S]
  %masked = add(%scaled, %mask) : f32[B, H, T, S]
  %p = softmax(%masked) : f32[B, H, T, S]
  %o = matmul(%p, %v) : f32[B, H, T, {d}]
  return %o
}}
"""


def mlp(d: int, h: int) -> tuple[atb.Graph, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(d)
    shapes = {"norm": (d,), "gate": (h, d), "up": (h, d), "down": (d, h)}
    weights = {name: torch.randn(shape, generator=generator) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    return atb.Graph.parse(MLP.format(d=d, h=h), weights), weights


def mlp_by_torch(x: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    norm, gate, up, down = (weights[name].double() for name in ("norm", "gate", "up", "down"))
    x = x.double()
    n = torch.nn.functional.rms_norm(x, x.shape[-1:], norm, 1e-5)
    return x + (torch.nn.functional.silu(n @ gate.T) * (n @ up.T)) @ down.T


@pytest.mark.parametrize(("d", "h"), [(7, 5), (64, 96), (33, 130)])
def test_mlp(d: int, h: int) -> None:
    graph, weights = mlp(d, h)
    runs = [graph.compile(threads=threads) for threads in (1, 2, 3)]
    assert "fused_gate_up" in str(runs[0])
    for length in (1, 2, 33, 130):
        x = torch.randn(length, d, generator=torch.Generator().manual_seed(length))
        outputs = [torch.from_dlpack(run(x)[0]) for run in runs]
        torch.testing.assert_close(outputs[0].double(), mlp_by_torch(x, weights), rtol=1e-4, atol=1e-4)
        assert all(torch.equal(outputs[0], other) for other in outputs[1:])


@pytest.mark.parametrize("d", [8, 17])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 40), (33, 33), (5, 200)])
def test_attention_with_a_mask(d: int, queries: int, keys: int) -> None:
    graph = atb.Graph.parse(ATTENTION.format(d=d, scale=repr(float(np.float32(d**-0.5)))))
    generator = torch.Generator().manual_seed(queries)
    q = torch.randn(2, 3, queries, d, generator=generator)
    k, v = (torch.randn(2, 3, keys, d, generator=generator) for _ in range(2))
    mask = torch.where(torch.rand(queries, keys, generator=generator) < 0.3, -torch.inf, 0.0)
    mask[:, 0] = 0.0
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    runs = [graph.compile(threads=threads) for threads in (1, 2, 3)]
    outputs = [torch.from_dlpack(run(q, k, v, mask)[0]) for run in runs]
    torch.testing.assert_close(outputs[0], expected, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])


def test_attention_on_slices_of_packed_and_expanded_arrays() -> None:
    """Keys and values as modules have them: parts of one packed projection, one head expanded over several."""
    run = atb.Graph.parse(ATTENTION.format(d=8, scale="0.5")).compile()
    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(2, 9, 3, 3, 8, generator=generator)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    mask = torch.zeros(9, 9)
    dense = torch.from_dlpack(run(q.contiguous(), k.contiguous(), v.contiguous(), mask)[0])
    assert torch.equal(torch.from_dlpack(run(q, k, v, mask)[0]), dense)
    shared = k[:, :1].expand(2, 3, 9, 8)
    dense = torch.from_dlpack(run(q.contiguous(), shared.contiguous(), shared.contiguous(), mask)[0])
    assert torch.equal(torch.from_dlpack(run(q, shared, shared, mask[:1].expand(9, 9))[0]), dense)


def test_names_and_text() -> None:
    graph, _ = mlp(7, 5)
    assert graph.inputs == [atb.graph.ValueInfo("x", "f32", "[T, 7]")]
    assert graph.outputs == [atb.graph.ValueInfo("y", "f32", "[T, 7]")]
    assert str(atb.Graph.parse(str(graph))) == str(graph)
    assert repr(graph) == "atb.Graph('mlp': x: f32[T, 7] -> y: f32[T, 7])"
    run = graph.compile(threads=1)
    x = np.ones((2, 7), np.float32)
    by_name = run.run({"x": x})
    assert list(by_name) == ["y"]
    assert np.asarray(run(x=x)[0]).tolist() == by_name["y"].tolist() == run(x)[0].tolist()


def test_optimize_tells_what_was_fused() -> None:
    graph, _ = mlp(7, 5)
    before = str(graph)
    compiled = graph.compile()
    assert str(graph) == before
    report = graph.optimize(tokens=16)
    assert "fused_gate_up" in str(graph)
    matched = {pattern["name"]: pattern["layers_matched"] for pattern in report["patterns"]}
    assert matched["GateUp"] == 1
    assert report["kernels_per_layer"]["before"] > report["kernels_per_layer"]["after"]
    assert compiled.report(16) == report
    x = np.ones((3, 7), np.float32)
    assert graph.compile()(x)[0].tolist() == compiled(x)[0].tolist()


IN_PLACE = """
graph @g(%x: f32[T, 20]) {
  symbols T in [1, 9]
  const @packed : f32[20, 20]
  const @read : f32[20]
  %y = linear(%x, @packed) : f32[T, 20]
  %z = relu(%y) : f32[T, 20]
  %s = mul(%z, @read) : f32[T, 20]
  return %s
}
"""


def test_an_array_lives_as_long_as_somebody_reads_it() -> None:
    gone: list[str] = []
    arrays = {"packed": np.ones((20, 20), np.float32), "read": np.arange(20, dtype=np.float32)}
    for name in arrays:
        weakref.finalize(arrays[name], gone.append, name)
    graph = atb.Graph.parse(IN_PLACE, arrays)
    del arrays
    first, second = graph.compile(threads=1), graph.compile(threads=1)
    assert gone == []
    del graph
    assert gone == ["packed"]
    for run in (first, second):
        assert np.array_equal(np.asarray(run(np.ones((2, 20), np.float32))[0])[1], np.arange(20) * 20)
    del run, first, second
    assert gone == ["packed", "read"]


def test_calls_that_do_not_fit() -> None:
    graph, weights = mlp(7, 5)
    run = graph.compile()
    x = np.zeros((2, 7), np.float32)
    for arrays, named, message in [
        ((), {}, "input x is missing"),
        ((x, x), {}, "2 inputs given; it takes 1: x"),
        ((x,), {"x": x}, "input x is given twice"),
        ((), {"z": x}, "there is no input 'z'; inputs are x"),
        ((x.astype("f8"),), {}, r"input x: is f64\[2, 7\], expected f32\[T, 7\]"),
        ((x[:, :3],), {}, "axis 1 is 3, not 7"),
        ((x[:0],), {}, "T would be 0, allowed are 1 to 4096"),
        ((x[0],), {}, "it has 1 axes, not 2"),
    ]:
        with pytest.raises(atb.InvalidArgumentError, match=message):
            run(*arrays, **named)
    with pytest.raises(atb.InvalidArgumentError, match=r"^\[graph text\] line 1: "):
        atb.Graph.parse("grph @x")
    with pytest.raises(atb.NotFoundError, match="uses no constant named other"):
        atb.Graph.parse(str(graph), {"other": x})
    with pytest.raises(atb.InvalidArgumentError, match=r"constant up: is f32\[7, 5\], expected f32\[5, 7\]"):
        atb.Graph.parse(str(graph), {"up": weights["up"].T.contiguous()})
    with pytest.raises(atb.FailedPreconditionError, match=r"constant gate : f32\[5, 7\] has no data"):
        atb.Graph.parse(str(graph)).compile()
    with pytest.raises(atb.UnsupportedError, match="run as a LanguageModel"):
        atb.Graph.parse("graph @s(%kv: state) {\n  return %kv\n}\n").compile()
    for options in ({"precision": "half"}, {"threads": -1}, {"threads": 2**40}, {"device": "toaster"}):
        with pytest.raises(atb.InvalidArgumentError):
            graph.compile(**options)  # type: ignore[arg-type]


ROTARY = """
graph @rotary(%x: f32[T, 2, D], %table: f32[T, E]) {
  symbols D in [1, 10000], E in [1, 10000], T in [1, 9]
  %y = rotary(%x, %table, %table) : f32[T, 2, D]
  return %y
}
"""

GROUPS = """
graph @groups(%q: f32[1, T, H, 8], %k: f32[1, T, K, 8]) {
  symbols H in [0, 99], K in [0, 99], T in [1, 9]
  %y = flash_attention(%q, %k, %k) {scale=0.1} : f32[1, T, H, 8]
  return %y
}
"""


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("text", "arrays", "message"),
    [
        (ROTARY, (ones(3, 2, 4), ones(3, 3)), "rotate 6 of only 4 features of a head; here D = 4, E = 3, T = 3"),
        (GROUPS, (ones(1, 3, 2, 8), ones(1, 3, 3, 8)), "2 query heads are not a multiple of 3 kv heads; here H = 2"),
        (GROUPS, (ones(1, 3, 2, 8), ones(1, 3, 0, 8)), "there are 0 kv heads; at least 1 is needed; here H = 2"),
        (
            "graph @g(%x: f32[T]) { %y = iota() {shape=[T - 100]} : i32[T - 100] return %y }",
            (ones(3),),
            r"\[iota\] y: extent T - 100 is -97; here T = 3",
        ),
        (
            "graph @g(%x: f32[-9223372036854775803 - T]) { return %x }",
            (ones(5),),
            "no T makes axis 0, -T - 9223372036854775803, equal to 5",
        ),
    ],
    ids=["rotary", "groups", "no-kv-heads", "negative", "overflow"],
)
def test_rules_left_open_for_symbols_hold_in_each_call(text: str, arrays: tuple, message: str) -> None:
    with pytest.raises(atb.InvalidArgumentError, match=message):
        atb.Graph.parse(text).compile(threads=1)(*arrays)


def test_what_passes_the_rules_runs() -> None:
    rotary = atb.Graph.parse(ROTARY).compile(threads=1)
    assert np.asarray(rotary(ones(3, 2, 4), ones(3, 2))[0]).tolist() == [[[0, 0, 2, 2]] * 2] * 3
    groups = atb.Graph.parse(GROUPS).compile(threads=1)
    assert np.allclose(np.asarray(groups(ones(1, 3, 4, 8), ones(1, 3, 2, 8))[0]), 1)


@pytest.mark.parametrize("id_", [-1, 5])
def test_ids_outside_the_table_are_refused(id_: int) -> None:
    text = "graph @g(%i: i32[T]) { const @t : f32[5, 3] %y = embedding(%i, @t) : f32[T, 3] return %y }"
    fast = atb.Graph.parse(text, {"t": ones(5, 3)}).compile(threads=1)
    assert fast(np.array([0, 4], np.int32))[0].shape == (2, 3)
    with pytest.raises(atb.InvalidArgumentError, match="an id lies outside its table"):
        fast(np.array([0, id_], np.int32))


def test_f64_is_not_computed_in_f32() -> None:
    graph = atb.Graph.parse("graph @g(%x: f64[T]) { %y = add(%x, %x) : f64[T] return %y }")
    with pytest.raises(atb.UnsupportedError, match=r"\[add\] y: gives f64\[T\], but this build computes in f32"):
        graph.compile()


def test_a_device_that_computes_nothing_is_refused() -> None:
    graph = atb.Graph.parse("graph @g(%x: f32[T]) { %y = silu(%x) : f32[T] return %y }")
    with pytest.raises(atb.UnsupportedError, match="'null' computes nothing"):
        graph.compile(device="null")


def test_a_dict_of_outputs_loses_none() -> None:
    fast = atb.Graph.parse("graph @g(%x: f32[T]) { %y = silu(%x) : f32[T] return %x as a, %y as a }").compile()
    assert len(fast(ones(3))) == 2
    with pytest.raises(atb.InvalidArgumentError, match="two outputs have one name"):
        fast.run({"x": ones(3)})


def test_arrays_without_strides() -> None:
    fast = atb.Graph.parse("graph @g(%x: f32[A, B]) { %y = relu(%x) : f32[A, B] return %y }").compile(threads=1)
    array = (ctypes.c_float * 3 * 2)((1, -2, 3), (-4, 5, -6))
    assert fast(array)[0].tolist() == [[1, 0, 3], [0, 5, 0]]


def test_devices_that_lie() -> None:
    class Liar:
        def __dlpack__(self, **_: object) -> None: ...

        def __dlpack_device__(self) -> tuple[str, int]:
            return "a", 0

    fast = atb.Graph.parse("graph @g(%x: f32[T]) { %y = relu(%x) : f32[T] return %y }").compile(threads=1)
    with pytest.raises(atb.InvalidArgumentError, match="gives no pair of small integers"):
        fast(Liar())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_during_a_call_is_refused_at_once() -> None:
    fast = mlp(64, 96)[0].compile(threads=1)
    x = torch.ones(2048, 64)
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            fast(x)

    caller = threading.Thread(target=call)
    caller.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    fast(x)
                except atb.FailedPreconditionError:
                    status = 0
                finally:
                    os._exit(status)
            assert wait_for(child) == 0
    finally:
        stop.set()
        caller.join()
