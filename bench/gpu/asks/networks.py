"""Whole networks on a GPU, in turns with PyTorch (eager, under a CUDA graph in both layouts, compiled) and XLA.

    python -m bench.gpu.asks.networks [--networks resnet50,nafnet:2048] [--batches 1,8] [--precisions fp32] [--peers …]

Per row: milliseconds and the peers' time over ours (median, min, max; above 1 brickrt is faster), and how far the
outputs lie apart as a share of the largest: far more than rounding explains is BAD. `nafnet:2048` is NAFNet on images
of 2048².
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from bench.gpu.support.common import (
    MORE_NETWORKS,
    PAPER_NETWORKS,
    TOLERANCE,
    among,
    asked_networks,
    built,
    each,
    engine,
    random_feeds,
)
from bench.gpu.support.items import Item, options, run
from bench.gpu.support.programs import Programs
from brickrt.compare.difference import difference
from brickrt.compare.gpu_peers import PEERS, as_numpy, make_peers, ours
from brickrt.compare.interleave import Spread, ratios, turns
from brickrt.compare.peers import OURS
from brickrt.plan.options import PlanOptions
from brickrt.runtime.program_protocol import LAUNCHES
from brickrt.runtime.session.runtime import Runtime

PEER_TOLERANCE_FACTOR = 10  # over the tolerance against the reference: peers round too
PAUSE = 0.01  # seconds between turns: a GPU is idle as soon as a turn has ended


def measure(
    name: str, size: int | None, batch: int, precision: Any, launch: Any, asked: argparse.Namespace
) -> dict[str, Any]:
    """A row: brickrt and its peers on one network."""
    model = built(name, batch, size)
    feeds = random_feeds(model)
    row = {"shape": list(next(iter(feeds.values())).shape), "precision": precision, "launch": launch}
    if asked.device != "cuda":
        return row | _on_nothing(model, precision, launch, asked)
    runtime = Runtime(model, device="cuda", precision=precision, launch=launch, strategy=asked.strategy)
    mine = ours(runtime, feeds)
    outputs = [as_numpy(a) for a in mine.run()]
    peers, left_out = make_peers(model, feeds, precision, list(each(asked.peers)))
    apart = {p.name: difference(outputs, [as_numpy(a) for a in p.run()])["max_rel_error"] for p in peers}
    times = turns([mine, *peers], asked.rounds, PAUSE)
    (program,) = runtime.plan.programs
    return row | {
        "ms": {key: Spread.of(each_time).to_dict() for key, each_time in times.items()},
        "device_ms": 1e3 * program.seconds() if hasattr(program, "seconds") else None,
        "ratios": {key: spread.to_dict() for key, spread in ratios(times, OURS).items()},
        "differences": apart,
        "left_out": left_out,
        "strategies": sorted({s.strategy for plan in runtime.plans for s in plan.subgraphs}),
        "good": all(error <= PEER_TOLERANCE_FACTOR * TOLERANCE[precision] for error in apart.values()),
    }


def _on_nothing(model: Any, precision: Any, launch: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """What can be said where the device does nothing: that the program is built."""
    programs = Programs(engine(asked.device, launch), model)
    plan = programs.plan(PlanOptions(asked.strategy, precision=precision))
    programs.program(plan)
    return {"strategies": sorted({s.strategy for s in plan.subgraphs})}


def items(asked: argparse.Namespace) -> Iterator[Item]:
    """Every network by every batch, precision and launch; those of one network follow one another."""
    among(asked.peers, PEERS, "peer")
    among(asked.launches, LAUNCHES, "launch")
    for batch in map(int, each(asked.batches)):
        for name, size in asked_networks(asked.networks):
            for precision, launch in product(each(asked.precisions), each(asked.launches)):
                where = f"{name} {size or 'own size'}, batch {batch}, {precision}, {launch}"
                yield Item(where, partial(measure, name, size, batch, precision, launch, asked))


def main() -> int:
    """Measures what the command line names."""
    parser = options(__doc__)
    parser.add_argument("--networks", default=",".join(PAPER_NETWORKS + MORE_NETWORKS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--precisions", default="fp32,tf32,fp16")
    parser.add_argument("--peers", default="torch,torch-graph,torch-graph-nchw")
    parser.add_argument("--launches", default="auto", help=f"some of {', '.join(LAUNCHES)}")
    parser.add_argument("--tuned", action="store_true", help="plans are measured, as a Runtime does")
    parser.add_argument("--strategy", default="auto")
    asked = parser.parse_args()
    os.environ["BRICKRT_CALIBRATE"] = str(int(asked.tuned))  # measuring builds several programs of each network
    return run(items(asked), asked)


if __name__ == "__main__":
    sys.exit(main())
