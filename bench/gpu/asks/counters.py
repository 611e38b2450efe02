"""Bytes that really move: DRAM, L2 and L1 transactions by the GPU's counters, for layerwise and merged bricks.

    python -m bench.gpu.asks.counters [--networks resnet50,nafnet:2048]        needs ncu (Nsight Compute)

It runs itself under `ncu --clock-control none`, one execution per variant, and sums over all kernels.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from bench.gpu.support.common import ROOT, asked_networks, built, random_feeds
from bench.gpu.support.items import Item, NotInstalled, options, run
from brickrt.plan.options import Strategy
from brickrt.runtime.session.runtime import Runtime

METRICS = {
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "l2_sectors": "lts__t_sectors.sum",
    "l1_sectors": "l1tex__t_sectors.sum",
}
VARIANTS: tuple[Strategy, ...] = ("layerwise", "padded", "memoized", "auto")


def run_once(name: str, size: int | None, strategy: Strategy) -> None:
    """What ncu watches: a first execution that compiles, and one between the profiler's marks."""
    import cupy

    model = built(name, 1, size)
    runtime = Runtime(model, device="cuda", strategy=strategy, launch="persistent")
    feeds = {key: cupy.asarray(array) for key, array in random_feeds(model).items()}
    runtime.execute(feeds)
    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStart()
    runtime.execute(feeds)
    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStop()


def counted(name: str, size: int | None, strategy: Strategy, asked: argparse.Namespace) -> dict[str, float]:
    """Sums over all kernels of one execution, by the keys of METRICS. RuntimeError with ncu's own words if it fails."""
    if asked.device != "cuda":
        raise NotInstalled("a device that does nothing has no counters")
    if shutil.which("ncu") is None:
        raise NotInstalled("ncu is not installed: it comes with the CUDA toolkit (Nsight Compute)")
    command = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--graph-profiling", "node", "--csv"]
    command += ["--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS.values())]
    command += [sys.executable, "-m", "bench.gpu.asks.counters", "--watched", f"{name}:{size or ''}", strategy]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    sums = summed(done.stdout)
    if done.returncode or not sums:
        raise RuntimeError(" ".join((done.stderr or done.stdout).split())[-300:])
    return sums


def summed(text: str) -> dict[str, float]:
    """The columns of ncu's raw page, summed over its kernels in units of one. What is no number adds none."""
    lines = text.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return {}
    units, *kernels = csv.DictReader(io.StringIO("\n".join(lines[start:])))
    scale = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
    return {
        key: sum(_number(k[metric]) for k in kernels) * scale.get(units[metric], 1.0)
        for key, metric in METRICS.items()
        if metric in units
    }


def _number(text: str | None) -> float:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return 0.0


def items(asked: argparse.Namespace) -> Iterator[Item]:
    """Every network in every strategy."""
    for name, size in asked_networks(asked.networks):
        for strategy in VARIANTS:
            yield Item(f"{name} {size or 'own size'}, {strategy}", partial(counted, name, size, strategy, asked))


def main() -> int:
    """Counts for the networks that the command line names; run by ncu with --watched, executes one."""
    if sys.argv[1:2] == ["--watched"]:
        ((name, size),) = asked_networks(sys.argv[2])
        run_once(name, size, sys.argv[3])  # type: ignore[arg-type]
        return 0
    parser = options(__doc__)
    parser.add_argument("--networks", default="resnet50,nafnet")
    asked = parser.parse_args()
    return run(items(asked), asked)


if __name__ == "__main__":
    sys.exit(main())
