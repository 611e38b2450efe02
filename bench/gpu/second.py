"""What is worth knowing after `first.py`: other engines, larger batches, tables of BrickDL, bytes that really move.

python -m bench.gpu.second FOLDER [--minutes 9.5] [--device cuda|null|h200]
"""

from __future__ import annotations

import sys

from bench.gpu.first import arguments, chosen
from bench.gpu.support.common import about
from bench.gpu.support.steps import ScriptStep, run_rounds


def rounds() -> list[list[ScriptStep]]:
    """The steps, one after the other."""
    networks = ("bench.gpu.asks.networks", "--rounds", "7", "--tuned")
    peers = (*networks, "--batches", "1", "--precisions", "fp32,fp16", "--networks", "resnet50,nafnet,unet,vit-s16")
    batch = (*networks, "--batches", "64", "--precisions", "fp16", "--networks", "resnet50,mobilenetv2,vit-s16")
    return [
        [ScriptStep("host", "host", 30, ("bench.gpu.asks.host",))],
        [ScriptStep("batch 64", "networks", 80, batch)],
        [ScriptStep("counters", "counters", 100, ("bench.gpu.asks.counters", "--networks", "nafnet:2048,resnet50"))],
        [ScriptStep("merging", "merging", 90, ("bench.gpu.asks.merging", "--tables", "subgraphs,layers,bricks"))],
        [ScriptStep("xla", "networks", 60, (*peers, "--peers", "xla"))],
        [ScriptStep("brickdl", "merging", 90, ("bench.gpu.asks.brickdl",))],
        [ScriptStep("compiled", "networks", 120, (*peers, "--peers", "torch.compile"))],
        [ScriptStep("all", "networks", 300, (*networks, "--batches", "1"))],
    ]


def main() -> int:
    """Runs all steps."""
    asked = arguments(__doc__, 9.5)
    steps = chosen(rounds(), asked.steps)
    return run_rounds(steps, asked.out.resolve(), asked.minutes, asked.device, about(asked.device))


if __name__ == "__main__":
    sys.exit(main())
