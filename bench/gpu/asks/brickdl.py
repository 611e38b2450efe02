"""The tables of BrickDL §4.5 on this GPU: what merging is worth, part by part.

    python -m bench.gpu.asks.brickdl [--networks resnet50,nafnet:2048,unet] [--variants …] [--rounds 9]

All variants of a network run in turns: layerwise (with cuDNN where it is there), auto, fused, and padded and memoized
bricks as planned, with 2, 3, 4 and 6 layers merged, and with edges from 4 to 32. Per variant: milliseconds, how many
times faster than layerwise it is, tasks, and elements computed again; from the blocks' own events the time of a brick,
and that between two bricks of a block: taking the next, waiting for what it reads, publishing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from bench.gpu.support.common import among, asked_networks, built, engine, random_feeds
from bench.gpu.support.items import Item, options, run, why
from bench.gpu.support.programs import Programs
from brickrt.compare.gpu_peers import ours
from brickrt.compare.interleave import Spread, ratios, turns
from brickrt.graph.onnx_import.source import load
from brickrt.plan.options import PlanOptions
from brickrt.runtime.events import TaskEvents
from brickrt.runtime.session.runtime import Runtime

LAYERS, BRICKS = (2, 3, 4, 6), (4, 8, 16, 32)
PAUSE = 0.01


def variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options of all variants of the tables."""
    yield "layerwise", {"strategy": "layerwise"}
    yield "auto", {"strategy": "auto"}
    yield "fused", {"strategy": "fused"}
    for strategy in ("padded", "memoized"):
        yield strategy, {"strategy": strategy}
        yield from ((f"{strategy} {n} layers", {"strategy": strategy, "max_layers": n}) for n in LAYERS)
        yield from ((f"{strategy} bricks of {n}", {"strategy": strategy, "brick": n}) for n in BRICKS)


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


def ablate(name: str, size: int | None, asked: argparse.Namespace) -> dict[str, Any]:
    """Figures of all variants of a network, and why some failed."""
    model = built(name, 1, size)
    named = dict(variants())
    wanted = {key: named[key] for key in among(asked.variants, named, "variant")}
    if asked.device != "cuda":
        return {"tasks": {key: _tasks(asked.device, model, how) for key, how in wanted.items()}}
    source, feeds = load(model), random_feeds(model)
    made, failed, seen = {}, {}, {}
    for key, how in wanted.items():
        try:
            runtime = Runtime(source, device="cuda", launch="persistent", **how)
            runtime.execute(feeds)
            seen[key] = _watched(source, feeds, how)
            made[key] = runtime
        except Exception as e:  # the driver, CuPy and cuDNN have errors of their own
            failed[key] = why(e)
    times = turns([ours(runtime, feeds, key) for key, runtime in made.items()], asked.rounds, PAUSE)
    gains = ratios(times, "layerwise") if "layerwise" in times else {}
    rows = {}
    for key, runtime in made.items():
        gain = 1.0 if key == "layerwise" else 1 / gains[key].median if key in gains else None
        stats = runtime.stats
        rows[key] = {"ms": Spread.of(times[key]).to_dict(), "over_layerwise": gain} | seen[key]
        rows[key] |= {"tasks": stats.tasks, "recomputed": stats.recomputed}
    return {"variants": rows, "failed": failed, "good": not failed}


def _tasks(device: str, model: Any, how: dict[str, Any]) -> int:
    """The tasks of a variant, whose program is built for a device that does nothing."""
    programs = Programs(engine(device, "persistent"), model)
    return len(programs.program(programs.plan(PlanOptions(**how))).tasks)


def _watched(source: Any, feeds: Any, how: dict[str, Any]) -> dict[str, float]:
    seen: list[TaskEvents] = []
    Runtime(source, device="cuda", launch="persistent", watch=seen.append, **how).execute(feeds)
    return per_brick(seen[0])


def main() -> int:
    """Measures the networks that the command line names."""
    parser = options(__doc__)
    parser.add_argument("--networks", default="resnet50,nafnet,unet")
    parser.add_argument("--variants", default=",".join(key for key, _ in variants()))
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    networks = asked_networks(asked.networks)
    items = [Item(f"{name} {size or 'own size'}", partial(ablate, name, size, asked)) for name, size in networks]
    return run(items, asked)


if __name__ == "__main__":
    sys.exit(main())
