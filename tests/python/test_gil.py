# SPDX-License-Identifier: Apache-2.0
"""The GIL is released while native code runs: other Python threads go on, and several may call one graph."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import atb
import numpy as np
import pytest
import reference
from atb import _core
from reference import tokens

pytestmark = pytest.mark.real

SQUARES = """
graph @squares(%x: f32[T, 256]) {
  symbols T in [1, 100000]
  const @w : f32[256, 256]
  %a = linear(%x, @w) : f32[T, 256]
  return %a
}
"""


@pytest.fixture(scope="module")
def graph() -> atb.Graph:
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    return atb.Graph.parse(SQUARES, {"w": weight})


@pytest.fixture
def patient_interpreter() -> Iterator[None]:
    """Nobody takes the GIL away: only a call that gives it up lets others go on."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def goes_on_during(call: Callable[[], Any]) -> bool:
    """Whether a Python thread that waits for nothing but the GIL comes to its turn within `call`, repeated."""
    order: list[str] = []
    started, gate = threading.Event(), threading.Lock()

    def other() -> None:
        started.set()
        with gate:
            order.append("other")

    with gate:
        thread = threading.Thread(target=other)
        thread.start()
        started.wait()
    for _ in range(1000):  # a short call may end before the system wakes the other thread
        call()
        if order:
            break
    order.append("call")
    thread.join()
    return order == ["other", "call"]


def test_a_call_that_keeps_the_gil_is_seen(patient_interpreter: None) -> None:
    assert not goes_on_during(lambda: sum(range(10_000)))


def test_graphs_release_it(patient_interpreter: None, graph: atb.Graph) -> None:
    run = graph.compile(threads=1)
    x = np.ones((20_000, 256), np.float32)
    assert goes_on_during(lambda: run._core.run([x]))
    assert goes_on_during(lambda: graph.compile(threads=1))


def test_models_release_it(patient_interpreter: None, tmp_path: Path) -> None:
    folder = str(reference.save(reference.wide_llama(reference.llama_config()), tmp_path / "model"))
    engine = _core.Engine(folder, threads=1)
    ids = tokens(200)
    assert goes_on_during(lambda: _core.Engine(folder, threads=1))
    assert goes_on_during(lambda: engine.logits([ids]))
    assert goes_on_during(lambda: engine.log_likelihood(ids, 1))
    request = engine.submit(ids, 1000, ignore_eos=True)
    assert goes_on_during(lambda: engine.next(request))
    assert goes_on_during(lambda: _core.explain_json(folder, 16, "auto"))
    assert goes_on_during(lambda: _core.inspect_json(folder))
    assert goes_on_during(lambda: _core.roofline(1, 1 << 20))


def test_two_callers_get_what_they_get_alone(graph: atb.Graph) -> None:
    run = graph.compile(threads=2)
    inputs = [np.random.default_rng(i).standard_normal((50 + i, 256)).astype(np.float32) for i in range(8)]
    alone = [np.asarray(run(x)[0]) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            together = list(pool.map(lambda x: np.asarray(run(x)[0]), inputs))
            assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
