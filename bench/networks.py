"""Speed of whole networks against the installed peers, interleaved, at equal threads.

    python bench/networks.py [--networks resnet50,nafnet] [--threads 2] [--rounds 11] [--out bench/results/FILE.json]

Prints milliseconds (median) and the peers' time over ours (median, min, max; above 1 brickrt is faster).
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from pathlib import Path
from statistics import median

import numpy as np
from interleave import ratios, turns
from peers import PEERS, brickrt, installed

from brickrt import zoo


def measure(name: str, threads: int, rounds: int, batch: int, size: int | None) -> dict:
    """One network: times, ratios, and the largest difference from the first peer, over its largest value."""
    model = zoo.build(name, batch=batch, size=size)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}
    contenders = [brickrt(model, feeds, threads), *(PEERS[p](model, feeds, threads) for p in installed())]
    outputs = [c.run()[0] for c in contenders]
    error = float(np.abs(outputs[0] - outputs[1]).max() / np.abs(outputs[1]).max()) if len(outputs) > 1 else None
    times = turns(contenders, rounds)
    return {
        "network": name,
        "batch": batch,
        "shape": shape,
        "threads": threads,
        "ms": {n: round(1e3 * median(t), 3) for n, t in times.items()},
        "ratios": ratios(times),
        "error": error,
    }


def machine() -> dict:
    """Where and what was measured."""
    here = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=here)
    about = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in about if "model name" in line), "")
    system = {"python": platform.python_version(), "system": platform.platform()}
    return {"commit": commit.stdout.strip(), "cpu": cpu, **system}


def show(row: dict) -> str:
    peers = "  ".join(
        f"{name} {row['ms'][name]:8.1f} ms, ×{r['median']:.2f} ({r['min']:.2f}–{r['max']:.2f})"
        for name, r in row["ratios"].items()
    )
    return f"{row['network']:14} brickrt {row['ms']['brickrt']:8.1f} ms  {peers}  error {row['error']:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="resnet50,nafnet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    names = zoo.names() if asked.networks == "all" else asked.networks.split(",")
    rows = []
    for name in names:
        rows.append(measure(name, asked.threads, asked.rounds, asked.batch, asked.size))
        print(show(rows[-1]), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
