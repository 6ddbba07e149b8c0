# SPDX-License-Identifier: Apache-2.0
"""Measures what independent nodes side by side bring: `.venv/bin/python bench/stages.py [--threads N]`.

Graphs of branches that start at one value and are added up, each compiled at level 2 (one node after another) and at
level 3 (the branches side by side in one stage), and run in turns; the fastest run of each counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import atb
import numpy as np


def branches(count: int, width: int, depth: int = 1) -> tuple[str, dict[str, np.ndarray]]:
    """Text and constants of a graph: `count` branches of a norm and `depth` linears on x [T, width], added up."""
    chance = np.random.default_rng(0)
    constants, lines = {}, []
    for index in range(count):
        constants[f"gain{index}"] = chance.standard_normal(width, np.float32)
        lines.append(f"const @gain{index} : f32[{width}]")
        lines.append(f"%norm{index} = rms_norm(%x, @gain{index}) {{eps=1e-05}} : f32[T, {width}]")
        flow = f"%norm{index}"
        for step in range(depth):
            name = f"{index}_{step}"
            constants[f"w{name}"] = chance.standard_normal((width, width), np.float32) / np.float32(width**0.5)
            lines.append(f"const @w{name} : f32[{width}, {width}]")
            lines.append(f"%linear{name} = linear({flow}, @w{name}) : f32[T, {width}]")
            flow = f"%branch{name}"
            lines.append(f"{flow} = {('silu', 'relu', 'gelu')[index % 3]}(%linear{name}) : f32[T, {width}]")
    total = f"%branch0_{depth - 1}"
    for index in range(1, count):
        lines.append(f"%sum{index} = add({total}, %branch{index}_{depth - 1}) : f32[T, {width}]")
        total = f"%sum{index}"
    body = "\n  ".join(sorted(lines, key=lambda line: not line.startswith("const")))
    text = f"graph @branches(%x: f32[T, {width}]) {{\n  symbols T in [1, 65536]\n  {body}\n  return {total}\n}}\n"
    return text, constants


def fastest(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    """Seconds of the fastest of `rounds` runs of each, in turns."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for index, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def row(name: str, shape: tuple[int, int, int], tokens: int, rounds: int, threads: int) -> str:
    """One row of the table, of (branches, width, depth). Raises if the two levels differ in a bit."""
    text, constants = branches(*shape)
    width = shape[1]
    graph = atb.Graph.parse(text, constants)
    x = np.random.default_rng(1).standard_normal((tokens, width), np.float32)
    one_by_one, side_by_side = (graph.compile(threads=threads, opt_level=level) for level in (2, 3))
    if not np.array_equal(np.asarray(one_by_one(x)[0]), np.asarray(side_by_side(x)[0])):
        raise SystemExit(f"{name}: results differ")
    before, after = fastest([lambda: one_by_one(x), lambda: side_by_side(x)], rounds)
    stages = [compiled.report()["stages"]["total"] for compiled in (one_by_one, side_by_side)]
    return f"| {name} | {stages[0]} | {stages[1]} | {before * 1e6:.0f} | {after * 1e6:.0f} | {before / after:.2f} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()
    print("| graph | stages one by one | side by side | us one by one | us side by side | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(row("8 branches of 8 linears, 1 x 96", (8, 96, 8), 1, options.rounds, options.threads))
    print(row("8 branches of 8 linears, 4 x 64", (8, 64, 8), 4, options.rounds, options.threads))
    print(row("4 branches of a linear, 512 x 1024", (4, 1024, 1), 512, max(options.rounds // 100, 3), options.threads))


if __name__ == "__main__":
    main()
