# SPDX-License-Identifier: Apache-2.0
"""What `atb bench --profile` prints: where the time of the steps went."""

from __future__ import annotations

from typing import Any

from atb.cli import common

_COLUMNS = ["node", "operator", "count", "ms", "us each", "share", "wait ms", "workers ms"]


def print_profile(profile: dict[str, Any]) -> None:
    """One table a phase; its columns `ms` and `share` sum up to the wall time of the phase.

    They are seen from the calling thread, which is worker 0. `wait ms` is its part of "waiting for parts" that went to
    a node, `workers ms` the time of all workers together.
    """
    for phase in ("prefill", "decode"):
        if phase in profile:
            _print_phase(phase, profile[phase])
    if profile["dropped_events"]:
        common.print_line(
            f"the trace was full: {profile['dropped_events']:,} events are missing; only whole steps are counted"
        )


def _print_phase(name: str, phase: dict[str, Any]) -> None:
    waits, elsewhere, wakeups = phase["waits"], phase["elsewhere"], phase["wakeups"]
    rows = [_node_row(node) for node in phase["nodes"]]
    rows.append(
        (
            "waiting for parts",
            "",
            f"{waits['count']:,}",
            f"{waits['total_ms']:,.2f}",
            "",
            f"{waits['share']:.1%}",
            "",
            f"{waits['worker_ms']:,.2f}",
        )
    )
    rows.append(("elsewhere", "", "", f"{elsewhere['total_ms']:,.2f}", "", f"{elsewhere['share']:.1%}", "", ""))
    rows.append(("sum", "", "", f"{phase['total_ms']:,.2f}", "", "100.0%", "", ""))
    each = phase["total_ms"] / phase["steps"]
    title = f"{name}: {phase['steps']:,} steps of {each:,.3f} ms, {phase['tokens']:,} tokens"
    common.print_table(title, _COLUMNS, rows)
    common.print_line(
        f"elsewhere: {elsewhere['sampling_ms']:,.2f} ms sampling, "
        f"{elsewhere['planning_and_launch_ms']:,.2f} ms planning and launching, "
        f"{elsewhere['between_steps_ms']:,.2f} ms between steps"
    )
    common.print_line(
        f"wake-ups: {wakeups['count']:,}, {wakeups['from_park']:,} of them from park; "
        f"{wakeups['mean_us']:,.1f} us from launch to start"
    )


def _node_row(node: dict[str, Any]) -> tuple[str, ...]:
    return (
        node["name"].removeprefix("layers.*."),
        node["op"],
        f"{node['count']:,}",
        f"{node['total_ms']:,.2f}",
        f"{node['mean_us']:,.1f}",
        f"{node['share']:.1%}",
        f"{node['wait_ms']:,.2f}",
        f"{node['worker_ms']:,.2f}",
    )
