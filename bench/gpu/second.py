"""What is worth knowing after `first.py`: other engines, larger batches, tables of BrickDL, bytes that really move.

python bench/gpu/second.py FOLDER [--minutes 9.5] [--device cuda|null|h200]
"""

from __future__ import annotations

import sys

from common import about
from first import arguments
from steps import Step, run_rounds


def rounds() -> list[list[Step]]:
    """The steps, one after the other."""
    networks = ("networks.py", "--rounds", "7")
    peers = (*networks, "--batches", "1", "--precisions", "fp32,fp16", "--networks", "resnet50,nafnet,unet,vit-s16")
    batch = (*networks, "--batches", "64", "--precisions", "fp16", "--networks", "resnet50,mobilenetv2,vit-s16")
    return [
        [Step("host", "host", 30, ("host.py",))],
        [Step("batch 64", "networks", 80, batch)],
        [Step("counters", "counters", 100, ("counters.py", "--networks", "nafnet:2048,resnet50"))],
        [Step("merging", "merging", 90, ("merging.py", "--tables", "subgraphs,layers,bricks"))],
        [Step("xla", "networks", 60, (*peers, "--peers", "xla"))],
        [Step("brickdl", "merging", 90, ("brickdl.py",))],
        [Step("compiled", "networks", 120, (*peers, "--peers", "torch.compile"))],
        [Step("all", "networks", 300, (*networks, "--batches", "1"))],
    ]


def main() -> int:
    """Runs all steps."""
    asked = arguments(__doc__, 9.5)
    return run_rounds(rounds(), asked.out, asked.minutes, asked.device, about(asked.device))


if __name__ == "__main__":
    sys.exit(main())
