# SPDX-License-Identifier: Apache-2.0
"""Patterns that users write: what they see, what they put in, what is refused, and the numbers that come out."""

from __future__ import annotations

import gc
import operator
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import atb
import numpy as np
import pytest
from atb import FusionOp, GraphOptimizer, Node, Pattern
from pattern_cases import CUSTOM, PLAIN, ByName, ByTarget, array, optimizer, refused

pytestmark = pytest.mark.real


def custom_by_hand(x: np.ndarray) -> np.ndarray:
    for _ in range(2):
        x = 2 * (x + np.tanh(x))
    return x


def tanh(x: Any) -> np.ndarray:
    return np.tanh(np.asarray(x))


# ---- nodes ------------------------------------------------------------


def test_nodes_read_as_those_of_torch_fx() -> None:
    graph = atb.Graph.parse(PLAIN)
    nodes = {node.name: node for node in graph.nodes}
    assert [(n.op, n.name) for n in graph.nodes][:4] == [
        ("placeholder", "x"), ("placeholder", "z"), ("get_attr", "w"), ("get_attr", "half"),
    ]  # fmt: skip
    assert nodes["b"].target == "mul" and nodes["b"].target != "add"
    assert nodes["b"].args == (nodes["a"], nodes["w"])
    assert list(nodes["b"].users) == [nodes["c"], nodes["e"]]
    assert nodes["c"].meta["val"] == ("f32", "[T, 6]") and nodes["c"].meta["layer"] == 0
    assert nodes["half"].meta["value"] == 0.5 and "value" not in nodes["w"].meta
    assert nodes["output"].op == "output" and nodes["output"].args == ((nodes["d"], nodes["e"]),)
    assert list(nodes["e"].users) == [nodes["output"]]
    assert [n.name for n in graph.find_nodes(op="call_function", target="mul")] == ["b", "d"]
    assert str(nodes["b"].target) == "mul" and nodes["b"].target in ("relu", "mul")


def test_attributes_and_absent_operands() -> None:
    graph = atb.Graph.parse(
        "graph @g(%x: f32[T, 4]) {\n  symbols T in [1, 9]\n  const @b : f32[4]\n"
        '  %n = layer_norm(%x, _, @b) {scope="net.norm", eps=0.5} : f32[T, 4]\n'
        "  %r = reshape(%n) {shape=[T, 2, 2]} : f32[T, 2, 2]\n  return %r\n}"
    )
    norm, reshape = (node for node in graph.nodes if node.op == "call_function")
    assert norm.args[1] is None and norm.kwargs["eps"] == 0.5 and norm.meta["scope"] == "net.norm"
    assert reshape.kwargs["shape"] == ["T", 2, 2]


def test_an_operator_with_several_results_is_followed_by_its_items() -> None:
    graph = atb.Graph.parse(
        "graph @g(%p: i32[T]) {\n  symbols T in [1, 9]\n  const @f : f32[2] = [1.0, 0.5]\n"
        "  %cos, %sin = rotary_table(%p, @f) : f32[T, 2], f32[T, 2]\n  %y = mul(%cos, %sin) : f32[T, 2]\n  return %y\n}"
    )
    nodes = {node.name: node for node in graph.nodes}
    table = nodes["cos"]
    assert table.target == "rotary_table" and table.meta["val"] == (("f32", "[T, 2]"), ("f32", "[T, 2]"))
    items = list(table.users)
    assert [item.target for item in items] == [operator.getitem] * 2
    assert [item.args[1] for item in items] == [0, 1] and nodes["y"].args == tuple(items)


def test_targets_equal_what_they_were_imported_as() -> None:
    class Packet:
        pass

    class Overload:
        overloadpacket = Packet()

    class Custom:
        _opoverload = Overload()

    def function() -> None: ...

    graph = atb.Graph.parse(CUSTOM)
    graph.origins["c0"] = Custom._opoverload
    graph.origins["c1"] = (Custom._opoverload, function)
    first, second = graph.find_nodes(op="call_function", target="my::act")
    assert first.target == Custom._opoverload and first.target == Overload.overloadpacket and first.target == Custom()
    assert Overload.overloadpacket == first.target
    assert first.target != function and second.target == function and first.target != Packet()


# ---- kernels in Python ------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_a_kernel_in_python_computes_an_operator_that_atb_does_not_know(threads: int) -> None:
    graph = atb.Graph.parse(CUSTOM)
    fast = optimizer(ByTarget("my::act", tanh)).optimize(graph, threads=threads)
    for rows in (1, 2, 33):
        x = array(rows, 4, rows)
        np.testing.assert_allclose(np.asarray(fast(x)[0]), custom_by_hand(x), rtol=2e-6, atol=1e-6)
    assert "my_fused_op" in str(fast) and "my_fused_op" not in str(graph), "the graph given stays as it was"


def test_the_matched_nodes_become_the_definition() -> None:
    graph = atb.Graph.parse(PLAIN)
    reason = graph.fuse([node for node in graph.nodes if node.name in "abc"], "mine")
    assert reason is None
    (made,) = graph.find_nodes(op="call_function", target="mine")
    assert [node.name for node in made.args] == ["x", "w", "z"]  # in the order in which they are read
    items = [user.meta["value_name"] for user in made.users]
    assert items == ["b", "c"]  # what is read outside, in the order in which it is made
    assert "silu" in made.kwargs["body"] and made.meta["layer"] == 0
    x, z = array(5, 6), array(5, 6, 1)
    expected = atb.Graph.parse(PLAIN).compile()(x, z)
    for got, want in zip(graph.compile()(x, z), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    assert "external" not in str(graph.compile()), "without a kernel the definition runs, optimized"


def test_numbers_stay_in_the_definition_unless_they_are_listed() -> None:
    graph = atb.Graph.parse(PLAIN)
    nodes = {node.name: node for node in graph.nodes}
    assert graph.fuse([nodes["d"]], "halved") is None
    (made,) = graph.find_nodes(op="call_function", target="halved")
    assert [node.name for node in made.args] == ["c"]
    graph = atb.Graph.parse(PLAIN)
    nodes = {node.name: node for node in graph.nodes}
    seen: list[Any] = []

    def kernel(half: Any, c: Any) -> np.ndarray:
        seen.append((half.shape, half.dtype, float(np.asarray(half))))
        return np.asarray(half) * np.asarray(c)

    assert graph.fuse([nodes["d"]], "halved", kernel, inputs=[nodes["half"], nodes["c"]]) is None
    x, z = array(5, 6), array(5, 6, 1)
    expected = atb.Graph.parse(PLAIN).compile()(x, z)
    np.testing.assert_array_equal(np.asarray(graph.compile()(x, z)[0]), np.asarray(expected[0]))
    assert seen == [((), "f32", 0.5)]


def test_arrays_are_lent_and_read_only() -> None:
    seen: dict[str, Any] = {}

    def kernel(x: Any) -> np.ndarray:
        view = np.asarray(x)
        seen["type"], seen["repr"] = type(x).__name__, repr(x)
        with pytest.raises(ValueError):
            view[0, 0] = 1
        seen["thread"] = threading.get_ident()
        return np.tanh(view)

    fast = optimizer(ByTarget("my::act", kernel)).optimize(atb.Graph.parse(CUSTOM), threads=2)
    fast(array(3, 4))
    assert seen == {"type": "LentTensor", "repr": "atb.LentTensor(f32[3, 4])", "thread": threading.get_ident()}


def test_a_kernel_may_hold_on_to_what_it_was_lent_without_harm() -> None:
    held: list[np.ndarray] = []

    def kernel(x: Any) -> np.ndarray:
        held.append(np.asarray(x))
        return np.tanh(held[-1])

    fast = optimizer(ByTarget("my::act", kernel)).optimize(atb.Graph.parse(CUSTOM))
    for rows in (2, 60, 3):
        fast(array(rows, 4))
    del fast
    gc.collect()
    assert all(np.isfinite(view).all() for view in held)  # memory that is still there


def test_strided_inputs_reach_kernels_as_they_are() -> None:
    graph = atb.Graph.parse(
        "graph @g(%x: f32[A, B]) {\n  symbols A in [1, 9], B in [1, 9]\n"
        "  %t = transpose(%x) {perm=[1, 0]} : f32[B, A]\n"
        '  %y = external(%t) {target="f", types="f32[B, A]"} : f32[B, A]\n  return %y\n}'
    )
    fast = optimizer(ByTarget("f", lambda t: np.asarray(t) + 1)).optimize(graph)
    x = array(8, 10)[::2, 1:]
    np.testing.assert_array_equal(np.asarray(fast(x)[0]), x.T + 1)


def test_torch_tensors_and_lists_of_results() -> None:
    torch = pytest.importorskip("torch")
    graph = atb.Graph.parse(
        "graph @g(%x: f32[T, 4]) {\n  symbols T in [1, 9]\n"
        '  %a, %b = external(%x) {target="f", types="f32[T, 4], i64[T]"} : f32[T, 4], i64[T]\n  return %a, %b\n}'
    )
    graph.to_kernel_array = torch.from_dlpack
    fast = optimizer(ByTarget("f", lambda x: [x * 2, x.argmax(-1)])).optimize(graph)
    x = torch.randn(5, 4)
    doubled, largest = fast(x)
    assert torch.equal(torch.from_dlpack(doubled), x * 2)
    assert torch.equal(torch.from_dlpack(largest), x.argmax(-1))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: None, "a NoneType gives no array of numbers"),
        (lambda x: (np.asarray(x), np.asarray(x)), "gives 2 results, expected 1"),
        (lambda x: [], "gives 0 results, expected 1"),
        (lambda x: np.asarray(x)[:1], r"is f32\[1, 4\], expected f32\[3, 4\]"),
        (lambda x: np.asarray(x).astype(np.float64), r"is f64\[3, 4\], expected f32\[3, 4\]"),
        (lambda x: np.asarray(x).T, r"is f32\[4, 3\], expected f32\[3, 4\]"),
    ],
)
def test_results_are_checked(result: Any, message: str) -> None:
    fast = optimizer(ByTarget("my::act", result)).optimize(atb.Graph.parse(CUSTOM))
    with pytest.raises(atb.InvalidArgumentError, match=rf"\[kernel\] my_fused_op \(c0\).*{message}"):
        fast(array(3, 4))


def test_an_exception_reaches_the_caller_and_the_next_call_is_right() -> None:
    class Trouble(Exception):
        pass

    failing = [True]

    def kernel(x: Any) -> np.ndarray:
        if failing[0]:
            raise Trouble("in the kernel")
        return tanh(x)

    fast = optimizer(ByTarget("my::act", kernel)).optimize(atb.Graph.parse(CUSTOM), threads=2)
    x = array(3, 4)
    with pytest.raises(Trouble, match="in the kernel"):
        fast(x)
    failing[0] = False
    np.testing.assert_allclose(np.asarray(fast(x)[0]), custom_by_hand(x), rtol=2e-6, atol=1e-6)


def test_a_kernel_that_calls_its_own_graph_is_an_error() -> None:
    calls: list[str] = []

    def kernel(x: Any) -> np.ndarray:
        for use in (lambda: fast(array(1, 4)), lambda: fast._core.plans):
            with pytest.raises(atb.FailedPreconditionError, match="called by a kernel of its own call"):
                use()
            calls.append("refused")
        return tanh(x)

    fast = optimizer(ByTarget("my::act", kernel)).optimize(atb.Graph.parse(CUSTOM))
    fast(array(3, 4))
    assert calls == ["refused"] * 4


def test_several_threads_may_call_a_graph_with_kernels_in_python() -> None:
    fast = optimizer(ByTarget("my::act", tanh)).optimize(atb.Graph.parse(CUSTOM), threads=2)
    wrong: list[int] = []

    def call(seed: int) -> None:
        x = array(7, 4, seed)
        for _ in range(20):
            if not np.allclose(np.asarray(fast(x)[0]), custom_by_hand(x), rtol=1e-5, atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_kernels_live_as_long_as_what_was_compiled() -> None:
    class Kernel:
        def __call__(self, x: Any) -> np.ndarray:
            return tanh(x)

    kernel = Kernel()
    gone = weakref.ref(kernel)
    fast = optimizer(ByTarget("my::act", kernel)).optimize(atb.Graph.parse(CUSTOM))
    del kernel
    gc.collect()
    fast(array(2, 4))
    del fast
    gc.collect()
    assert gone() is None


def test_callables_of_one_name_stay_apart() -> None:
    class Each(ByTarget):
        def replace(self, matched_nodes: Sequence[Node]) -> FusionOp:
            layer = matched_nodes[0].meta["layer"]
            return FusionOp("act", kernel=lambda x: np.asarray(x) + layer)

    fast = optimizer(Each("my::act")).optimize(atb.Graph.parse(CUSTOM))
    x = array(2, 4)
    np.testing.assert_allclose(np.asarray(fast(x)[0]), 16 * x + 2, rtol=1e-5, atol=1e-5)


# ---- what is refused ------------------------------------------------------------


def test_operators_without_a_kernel_are_an_error_at_the_end_and_all_are_listed() -> None:
    graph = atb.Graph.parse(CUSTOM.replace("my::act", "my::other", 1))
    with pytest.raises(atb.UnsupportedError) as error:
        graph.compile()
    assert "my::other (layers.0.act), my::act (layers.1.act)" in str(error.value)
    with pytest.raises(atb.UnsupportedError) as error:
        optimizer(ByTarget("my::act", tanh)).optimize(graph)
    assert "my::other (layers.0.act)" in str(error.value) and "my::act" not in str(error.value)


def test_a_kernel_that_was_not_loaded_is_named() -> None:
    with pytest.raises(atb.FailedPreconditionError, match=r"my_fused_op \(layers\.0\.act\) needs no_such_kernel"):
        optimizer(ByTarget("my::act", "no_such_kernel")).optimize(atb.Graph.parse(CUSTOM))


def test_a_value_read_outside_must_be_an_output() -> None:
    graph = atb.Graph.parse(PLAIN)
    nodes = {node.name: node for node in graph.nodes}
    op = FusionOp("mine", kernel=tanh, outputs=[nodes["c"]])
    assert refused(graph, ByName(["a", "b", "c"], op)) == "%b is read by e, outside the match, but is no output"
    graph = atb.Graph.parse(PLAIN)
    nodes = {node.name: node for node in graph.nodes}
    op = FusionOp("mine", kernel=tanh, outputs=[nodes["c"]])
    assert "%d is returned by the graph" in refused(graph, ByName(["c", "d"], op))


def test_a_value_that_is_read_must_be_an_input() -> None:
    graph = atb.Graph.parse(PLAIN)
    nodes = {node.name: node for node in graph.nodes}
    op = FusionOp("mine", kernel=tanh, inputs=[nodes["x"]])
    assert refused(graph, ByName(["a", "b"], op)) == "%w is read, but is no input"


def test_a_match_with_a_node_between_is_a_cycle() -> None:
    assert "would depend on itself" in refused(atb.Graph.parse(PLAIN), ByName(["a", "c"]))


def test_wrong_inputs_and_outputs_are_the_callers_mistakes() -> None:
    graph = atb.Graph.parse(PLAIN)
    nodes = {node.name: node for node in graph.nodes}
    for op, message in (
        (FusionOp("mine", outputs=[nodes["d"]]), "output %d is made by none of the matched nodes"),
        (FusionOp("mine", inputs=[nodes["a"], nodes["w"]]), "input %a is made by the matched nodes themselves"),
    ):
        with pytest.raises(atb.InvalidArgumentError, match=message):
            optimizer(ByName(["a", "b"], op)).apply(graph)
    with pytest.raises(atb.InvalidArgumentError, match="a match holds no nodes"):
        optimizer(ByName(["x", "w"])).apply(graph)


def test_other_places_are_tried_after_a_refusal() -> None:
    class Add(ByTarget):
        def replace(self, matched_nodes: Sequence[Node]) -> FusionOp:
            wrong = matched_nodes[0].meta["layer"] == 0
            return FusionOp("mine", kernel=tanh, inputs=[matched_nodes[0].args[0]] if wrong else None)

    graph = atb.Graph.parse(CUSTOM)
    optimizer(Add("add")).apply(graph)
    assert [node.name for node in graph.find_nodes(op="call_function", target="mine")] == ["s1"]


def test_a_pattern_that_never_stops_is_stopped_and_named() -> None:
    class Endless(ByTarget):
        pass

    with pytest.raises(atb.InvalidArgumentError, match=r"pattern Endless does not stop: \d+ rewrites"):
        optimizer(Endless("my::act", tanh, name="my::act")).apply(atb.Graph.parse(CUSTOM))


@pytest.mark.parametrize("found", [[], "c0", [3], 7])
def test_match_must_give_nodes(found: Any) -> None:
    class Wrong(Pattern):
        def match(self, graph: atb.Graph) -> Any:
            return found

    with pytest.raises(atb.InvalidArgumentError, match=r"Wrong\.match gave .*; expected a list of nodes"):
        optimizer(Wrong()).apply(atb.Graph.parse(CUSTOM))


def test_replace_must_give_an_operator() -> None:
    class Wrong(ByTarget):
        def replace(self, matched_nodes: Sequence[Node]) -> Any:
            return "my_fused_op"

    with pytest.raises(atb.InvalidArgumentError, match=r"Wrong\.replace gave a str; expected an atb\.FusionOp"):
        optimizer(Wrong("my::act")).apply(atb.Graph.parse(CUSTOM))


def test_wrong_patterns_operators_and_models_are_refused() -> None:
    with pytest.raises(atb.InvalidArgumentError, match=r"a pattern is a type; .*register an instance"):
        GraphOptimizer().register_pattern(ByTarget)  # type: ignore[arg-type]
    with pytest.raises(atb.InvalidArgumentError, match="there is a pattern 'ByTarget' already"):
        optimizer(ByTarget("a"), ByTarget("b"))
    with pytest.raises(atb.InvalidArgumentError, match="kernel is a int"):
        FusionOp("mine", kernel=3)  # type: ignore[arg-type]
    with pytest.raises(atb.InvalidArgumentError, match="name is ''"):
        FusionOp("")
    with pytest.raises(atb.InvalidArgumentError, match=r"a model is a dict; expected an atb\.Graph"):
        GraphOptimizer().optimize({})


def test_script_modules_are_refused() -> None:
    torch = pytest.importorskip("torch")
    scripted = torch.jit.script(torch.nn.Linear(2, 2))
    with pytest.raises(atb.UnsupportedError, match="only FX graphs can be optimized; pass the original module"):
        GraphOptimizer().optimize(scripted, (torch.zeros(1, 2),))
