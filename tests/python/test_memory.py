# SPDX-License-Identifier: Apache-2.0
"""Memory: the peak of one `atb generate`, its start time, and that many calls leave nothing behind."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import atb
import pytest

pytestmark = pytest.mark.real
MB = 1e6


def generate(model: Path, *flags: object) -> dict[str, object]:
    environment = os.environ | {"PYTHONPATH": str(Path(atb.__file__).parents[1])}
    command = [sys.executable, "-m", "atb", "generate", model, "--json", *flags]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    value: dict[str, object] = json.loads(result.stdout)
    return value


def test_peak_memory(smollm2: Path) -> None:
    """At most the file, the keys and values of 2,048 positions, and 100 MB."""
    with atb.LLM(smollm2, context=2048) as llm:
        kv = llm.info()["kv_bytes_per_token"] * 2048
    prompt = "word " * 1900
    value = generate(smollm2, "--prompt", prompt, "--max-new-tokens", 64, "--context", 2048)
    peak = value["timing"]["peak_rss_mb"] * 2**20  # type: ignore[index]
    assert peak <= smollm2.stat().st_size + kv + 100 * MB


def test_first_token_soon(smollm2: Path) -> None:
    """Process start to first token. On a busy machine the processor time counts: it bounds the time on an idle one."""
    times = []
    for _ in range(5):
        start, used = time.perf_counter(), children_cpu_s()
        generate(smollm2, "--prompt", "The capital of France is", "--max-new-tokens", 1)
        times.append(min(time.perf_counter() - start, children_cpu_s() - used))
        if times[-1] < 1.5:
            return
    pytest.fail(f"first token after {min(times):.2f} s, expected under 1.5 s")


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


_MANY_CALLS = """
import random, sys
import atb
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])
chance = random.Random(0)
seen = []
with atb.LLM(sys.argv[1], context=512) as llm:
    for _ in range(100):
        lengths = [chance.randint(1, 200) for _ in range(chance.randint(1, 3))]
        prompts = [[chance.randrange(49152) for _ in range(length)] for length in lengths]
        llm.generate(prompts, max_new_tokens=chance.randint(1, 4), ignore_eos=True)
        seen.append(rss())
    assert llm.stats()["kv_blocks_in_use"] == 0
print(seen[49], max(seen[50:]))
"""


def test_many_calls_leave_memory_flat(smollm2: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(atb.__file__).parents[1])}
    command = [sys.executable, "-c", _MANY_CALLS, str(smollm2)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert result.returncode == 0, result.stderr
    middle, highest = map(int, result.stdout.split())
    assert highest <= 1.05 * middle


def test_closing_gives_memory_back(smollm2: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_and_close() -> None:
        with atb.LLM(smollm2, context=256) as llm:
            llm.generate([[random.Random(0).randrange(1000)]], max_new_tokens=1)

    open_and_close()
    before = resident()
    for _ in range(3):
        open_and_close()
    assert resident() - before < 30 * MB
