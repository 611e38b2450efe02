"""Whole networks on a GPU, against PyTorch (cuDNN eager, channels last), TorchScript, torch.compile and XLA, in turns.

    python bench/gpu/networks.py [--batches 1,8,64] [--precisions fp32,tf32,fp16] [--large] [--rounds 9] [--seconds 500]

Per row: milliseconds (median) and the peers' time over ours (median, min, max; above 1 brickrt is faster), and how far
the outputs lie apart as a share of the largest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from common import LARGE, Clock, ResultTable, built, each, go_on, gpu, options, random_feeds, spoiled, why

from brickrt.compare.difference import difference
from brickrt.compare.gpu_peers import PEERS, as_numpy, make_peers, ours
from brickrt.compare.interleave import Spread, ratios, turns
from brickrt.compare.peers import OURS
from brickrt.runtime.session.runtime import Runtime

PAUSE = 0.01  # seconds between turns: a GPU is idle as soon as a turn has ended


def wanted(asked: argparse.Namespace) -> Iterator[tuple[str, int, Any, str]]:
    """Name, batch, size and precision of every row."""
    for precision in each(asked.precisions):
        for batch in map(int, each(asked.batches)):
            yield from ((name, batch, None, precision) for name in each(asked.networks))
        if asked.large:
            yield from ((name, 1, size, precision) for name, size in LARGE.items() if name in asked.networks)


def measure(name: str, batch: int, size: Any, precision: str, asked: argparse.Namespace) -> dict[str, Any]:
    """A row: brickrt and its peers on one network."""
    model = built(name, batch, size)
    feeds = random_feeds(model)
    runtime = Runtime(model, device="cuda", precision=precision, launch=asked.launch, strategy=asked.strategy)
    mine = ours(runtime, feeds)
    outputs = [as_numpy(a) for a in mine.run()]
    peers, left_out = make_peers(model, feeds, precision, list(each(asked.peers)))
    apart = {p.name: difference(outputs, [as_numpy(a) for a in p.run()])["max_rel_error"] for p in peers}
    times = turns([mine, *peers], asked.rounds, PAUSE)
    return {
        "network": name,
        "shape": list(next(iter(feeds.values())).shape),
        "precision": precision,
        "launch": asked.launch,
        "ms": {key: Spread.of(each_time).to_dict() for key, each_time in times.items()},
        "ratios": {key: spread.to_dict() for key, spread in ratios(times, OURS).items()},
        "differences": apart,
        "left_out": left_out,
        "strategies": sorted({s.strategy for plan in runtime.plans for s in plan.subgraphs}),
    }


def show(row: dict[str, Any]) -> str:
    """A line of text about a row."""
    if "failed" in row:
        return f"{row['network']:13} batch {row['batch']} {row['precision']} failed: {row['failed']}"
    peers = "  ".join(f"{k} ×{v['median']:.2f} ({v['min']:.2f}–{v['max']:.2f})" for k, v in row["ratios"].items())
    shape = "×".join(map(str, row["shape"]))
    error = max(row["differences"].values(), default=0.0)
    return (
        f"{row['network']:13} {shape:16} {row['precision']} {row['ms'][OURS]['median']:8.3f} ms  {peers}  {error:.1e}"
    )


def main() -> None:
    """Parses the command line, measures, and prints and writes what was found."""
    parser = options(__doc__)
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--precisions", default="fp32,tf32,fp16")
    parser.add_argument("--large", action="store_true", help="at high resolution too")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--launch", default="auto")
    parser.add_argument("--strategy", default="auto")
    asked = parser.parse_args()
    table, clock = ResultTable("cuda-networks", gpu().spec, asked), Clock(asked.seconds)
    rows = list(wanted(asked))
    for k, (name, batch, size, precision) in enumerate(rows[asked.skip :], asked.skip + 1):
        if clock.has_time(f"{name}, batch {batch}, {precision}"):
            try:
                row = measure(name, batch, size, precision, asked)
            except Exception as e:  # out of memory, say: the next rows may still fit
                row = {"network": name, "batch": batch, "precision": precision, "failed": why(e)}
            table.add(row, show(row))
            if k < len(rows) and spoiled():
                sys.exit(go_on(k, clock))


if __name__ == "__main__":
    main()
