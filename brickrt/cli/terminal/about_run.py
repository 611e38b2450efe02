"""What a report says of a run: title, figures, surroundings."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from brickrt.cli.layerwise_traffic import layerwise_traffic
from brickrt.cli.terminal.text import shapes_text
from brickrt.compare.machine import machine
from brickrt.compare.roofline import Roofline, roofline
from brickrt.dashboard.units import size_text
from brickrt.runtime.cpu.calibrate.calibration import measured
from brickrt.runtime.session.runtime import Runtime


def about_run(runtime: Runtime, told: dict[str, Any]) -> dict[str, Any]:
    """Title, figures and surroundings of a report; `told` is what `run --json` says."""
    plans = runtime.plans
    shapes = shapes_text({name: plan.graph.types[name].shape for plan in plans[:1] for name in plan.graph.inputs})
    return {
        "title": f"{runtime.source.name} on {runtime.device}" + (f": {shapes}" if shapes else ""),
        "summary": _summary(runtime, told),
        "environment": _environment(runtime),
    }


def _summary(runtime: Runtime, told: dict[str, Any]) -> dict[str, str]:
    stats, median = told["stats"], told["latency_ms"]["median"]
    bound = roofline(runtime.plan, measured(runtime.plan.plans[0].device), runtime.threads)
    cards = {
        f"latency, median of {told['runs']}": f"{median:.2f} ms",
        **_limit(runtime, bound, median),
        "peak memory": size_text(told["peak_bytes"]),
        "projected memory": size_text(told["projected_bytes"]),
        "tasks": str(stats["tasks"]),
        "complete first": str(stats["complete_first"]),
        "waits": str(stats["waits"]),
        "revisits": str(stats["revisits"]),
        "recomputed elements": str(stats["recomputed"]),
        "threads": str(runtime.threads),
    }
    found = layerwise_traffic(runtime.plan)
    if found is not None:
        for level, moved in found.level_bytes.items():
            cards[f"modelled beyond {level}; layerwise {size_text(found.layerwise_bytes[level])}"] = size_text(moved)
    if stats["host_nodes"]:
        cards[f"on the host, {len(stats['host_nodes'])} nodes"] = f"{stats['host_ms']:.2f} ms"
    return cards


def _limit(runtime: Runtime, bound: Roofline, median: float) -> dict[str, str]:
    """The least time beside the measured one; what the CPU's speeds say nothing about has none."""
    speed = {"GFLOP/s": f"{bound.operations / median / 1e6:.1f}"}
    if runtime.device != "cpu" or not bound.bound_ms:
        return speed
    least, over = f"{bound.bound_ms:.3g} ms", f"×{median / bound.bound_ms:.2f}"
    return {"least time of what runs": least, "latency over that": over} | speed


def _environment(runtime: Runtime) -> dict[str, str]:
    found = machine(runtime.plan.plans[0].device)
    libraries = ", ".join(f"{name} {version}" for name, version in found["libraries"].items())
    told = {name: str(found[name]) for name in ("brickrt", "commit", "cpu", "python", "system") if found[name]}
    command = shlex.join(["brickrt", *sys.argv[1:]])
    return told | {"libraries": libraries, "strategy": runtime.strategy, "command": command}
