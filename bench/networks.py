"""Speed of whole networks against the installed peers, interleaved, at equal threads.

    python bench/networks.py [--networks resnet50,nafnet] [--threads 2] [--rounds 11] [--out bench/results/FILE.json]

Per network: milliseconds (median) and the peers' time over ours (median, min, max; above 1 brickrt is faster); at the
end the geometric mean against each network's fastest peer. Without --networks, the eleven of `ELEVEN`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from brickrt import zoo
from brickrt.compare.comparison import Comparison, compare, mean_ratio
from brickrt.compare.machine import machine
from brickrt.compare.peers import OURS, PEERS
from brickrt.runtime.session.runtime import Runtime

ELEVEN = {
    "vgg16": 224,
    "resnet50": 224,
    "darknet53": 256,
    "resnet34-3d": (16, 112, 112),
    "drn-c-26": 224,
    "inception-v4": 299,
    "mobilenetv2": 224,
    "unet": 512,
    "unet3d": 96,
    "nafnet": 512,
    "vit-s16": 224,
}


def measure(name: str, asked: argparse.Namespace) -> Comparison:
    """A network on brickrt and its peers, as the command line asks."""
    model = zoo.build(name, batch=asked.batch, size=asked.size or ELEVEN.get(name))
    runtime = Runtime(model, device="cpu", threads=asked.threads, strategy=asked.strategy)
    return compare(name, model, zoo.feeds(model), runtime, asked.peers.split(","), asked.rounds)


def show(row: Comparison) -> str:
    """A line of text about a network."""
    peers = "  ".join(
        f"{name} {row.ms[name].median:8.1f} ms, ×{r.median:.2f} ({r.min:.2f}–{r.max:.2f})"
        for name, r in row.ratios.items()
    )
    over = row.roofline.to_dict(row.ms[OURS].median)["over"]
    error = max(row.differences.values(), default=0.0)
    return f"{row.network:14} brickrt {row.ms[OURS].median:8.1f} ms  {peers}  error {error:.1e}  roofline ×{over:.2f}"


def main() -> None:
    """Parses the command line, measures, and prints and writes what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(ELEVEN))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: list[Comparison] = []
    for name in asked.networks.split(","):
        rows.append(measure(name, asked))
        if len(rows) == 1 and rows[0].left_out:
            print("left out:", "; ".join(f"{peer} ({why})" for peer, why in rows[0].left_out.items()))
        print(show(rows[-1]), flush=True)
    mean = mean_ratio(rows)
    if mean is not None:
        print(f"×{mean:.2f} is the geometric mean against each network's fastest peer")
    if asked.out:
        figures = {"machine": machine(rows[0].device), "rounds": asked.rounds, "batch": asked.batch}
        figures |= {"networks": [row.to_dict() for row in rows], "geometric_mean": mean}
        asked.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
