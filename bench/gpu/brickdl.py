"""The tables of BrickDL §4.5 on this GPU: what merging is worth, part by part.

    python bench/gpu/brickdl.py [--networks resnet50,nafnet,unet] [--rounds 9] [--seconds 500]

All variants of a network run in turns: layerwise (with cuDNN where it is there), and padded and memoized bricks with
2, 3, 4 and 6 layers merged, and with edges from 4 to 32. Per variant: milliseconds, how many times faster than
layerwise it is, tasks, and elements computed again; from the blocks' own events the time of a brick, and that between
two bricks of a block: taking the next, waiting for what it reads, publishing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import Clock, ResultTable, built, each, go_on, gpu, options, random_feeds, spoiled, why

from brickrt.compare.gpu_peers import ours
from brickrt.compare.interleave import Spread, ratios, turns
from brickrt.graph.onnx_import.source import load
from brickrt.runtime.events import TaskEvents
from brickrt.runtime.session.runtime import Runtime

LAYERS, BRICKS = (2, 3, 4, 6), (4, 8, 16, 32)
PAUSE = 0.01


def variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options of all variants of the tables."""
    yield "layerwise", {"strategy": "layerwise"}
    yield "auto", {"strategy": "auto"}
    for strategy in ("padded", "memoized"):
        yield from ((f"{strategy}, {n} layers", {"strategy": strategy, "max_layers": n}) for n in LAYERS)
        yield from ((f"{strategy}, bricks of {n}", {"strategy": strategy, "brick": n}) for n in BRICKS)


def per_brick(events: TaskEvents) -> dict[str, float]:
    """Microseconds: the mean task, and the mean gap between a block's tasks (taking, waiting, publishing).

    A GPU's clock may tick more coarsely than either, so single ones say little.
    """
    gaps = []
    for worker in np.unique(events.worker):
        mine = events.worker == worker
        gaps.append(np.maximum(events.start[mine][1:] - events.end[mine][:-1], 0))
    between = np.concatenate(gaps) if gaps else np.zeros(0)
    return {
        "task_us": float(np.mean(events.end - events.start)) / 1e3 if len(events) else 0.0,
        "between_us": float(np.mean(between)) / 1e3 if len(between) else 0.0,
    }


def ablate(name: str, rounds: int) -> dict[str, Any]:
    """Figures of all variants of a network, and why some failed."""
    model = built(name)
    source, feeds = load(model), random_feeds(model)
    made, failed, seen = {}, {}, {}
    for key, how in variants():
        try:
            runtime = Runtime(source, device="cuda", launch="persistent", **how)
            runtime.execute(feeds)
            seen[key] = _watched(source, feeds, how)
            made[key] = runtime
        except Exception as e:  # the driver, CuPy and cuDNN have errors of their own
            failed[key] = why(e)
    times = turns([ours(runtime, feeds, key) for key, runtime in made.items()], rounds, PAUSE)
    gains = ratios(times, "layerwise") if "layerwise" in times else {}
    rows = {}
    for key, runtime in made.items():
        gain = 1.0 if key == "layerwise" else 1 / gains[key].median if key in gains else None
        stats = runtime.stats
        rows[key] = {"ms": Spread.of(times[key]).to_dict(), "over_layerwise": gain} | seen[key]
        rows[key] |= {"tasks": stats.tasks, "recomputed": stats.recomputed}
    return {"network": name, "variants": rows, "failed": failed}


def _watched(source: Any, feeds: Any, how: dict[str, Any]) -> dict[str, float]:
    seen: list[TaskEvents] = []
    Runtime(source, device="cuda", launch="persistent", watch=seen.append, **how).execute(feeds)
    return per_brick(seen[0])


def show(row: dict[str, Any]) -> str:
    """Lines of text about what `ablate` found."""
    lines = [row["network"]]
    for key, v in row["variants"].items():
        figures = f"{v['ms']['median']:9.3f} ms  ×{v['over_layerwise'] or np.nan:.2f}  {v['tasks']:8} tasks"
        lines.append(f"  {key:24}{figures}  {v['task_us']:7.2f} µs a task, {v['between_us']:.2f} between")
    return "\n".join([*lines, *(f"  {key:24}failed: {text}" for key, text in row["failed"].items())])


def main() -> None:
    """Parses the command line, measures, and prints and writes what was found."""
    asked = options(__doc__, networks="resnet50,nafnet,unet").parse_args()
    table, clock = ResultTable("cuda-brickdl", gpu().spec, asked), Clock(asked.seconds)
    names = list(each(asked.networks))
    for k, name in enumerate(names[asked.skip :], asked.skip + 1):
        if clock.has_time(name):
            try:
                row = ablate(name, asked.rounds)
            except Exception as e:
                row = {"network": name, "variants": {}, "failed": {"all": why(e)}}
            table.add(row, show(row))
            if k < len(names) and spoiled():
                sys.exit(go_on(k, clock))


if __name__ == "__main__":
    main()
