# SPDX-License-Identifier: Apache-2.0
"""B58: the pool follows the affinity mask and the CPU quota, not the host, and waiting does not collapse.

Threads are counted, never timed; the parsing of quota files is tested with given files beside the code (core tests).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import atb
import pytest
import reference

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here"),
]

_COUNT = """
import os, sys
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: int(sys.argv[2])]))
import atb
from atb import _core
engines = [atb.LLM(sys.argv[1]) for _ in range(int(sys.argv[3]))]
names = lambda: [open(f"/proc/self/task/{t}/comm").read() for t in os.listdir("/proc/self/task")]
workers = sum(name.startswith("atb-") for name in names())
outputs = [llm.generate([[1, 2, 3]], max_new_tokens=8, ignore_eos=True)[0].token_ids for llm in engines]
assert all(output == outputs[0] for output in outputs)
print(_core.available_cpus(), max(llm.info()["threads"] for llm in engines), workers)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.save(reference.wide_llama(reference.llama_config()), tmp_path_factory.mktemp("b58"))


def counts(model: Path, cpus: int, engines: int) -> tuple[int, int, int]:
    """CPUs seen, threads of the largest team, and worker threads of all engines, in a process bound to `cpus`."""
    environment = os.environ | {"PYTHONPATH": str(Path(atb.__file__).parents[1])}
    command = [sys.executable, "-c", _COUNT, str(model), str(cpus), str(engines)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    seen, threads, workers = map(int, result.stdout.split())
    return seen, threads, workers


@pytest.mark.parametrize("cpus", [1, 2])
def test_the_pool_is_no_larger_than_the_affinity_mask(model: Path, cpus: int) -> None:
    seen, threads, workers = counts(model, cpus, engines=1)
    assert seen <= cpus
    assert threads <= cpus
    assert workers == threads - 1  # the caller works too


def test_four_engines_in_one_process_finish(model: Path) -> None:
    _, threads, workers = counts(model, cpus=2, engines=4)
    assert threads <= 2
    assert workers == 4 * (threads - 1)


def test_more_threads_than_cpus_finish_with_the_same_result(model: Path) -> None:
    def generate(threads: int) -> list[int]:
        with atb.LLM(model, threads=threads) as llm:
            return llm.generate([list(range(1, 40))], max_new_tokens=16, ignore_eos=True)[0].token_ids

    assert generate(16) == generate(1) == generate(2)
