"""Registers, shared memory and spills of all CUDA kernels of the zoo: python bench/gpu/kernels.py; needs no GPU.

Writes bench/results/cuda-kernels.json. Exits with 1 where a kernel spills that spills.txt does not name.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from brickrt import zoo
from brickrt.bench.kernels import Figures, figures, functions_of
from brickrt.plan.device import device_named

HERE = Path(__file__).parent
RESULT = HERE.parent / "results" / "cuda-kernels.json"
DEVICES = ("a100", "h200")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


def allowed() -> dict[str, str]:
    """Kernels that may spill, and why: lines "label: reason"."""
    lines = (HERE / "spills.txt").read_text().splitlines()
    pairs = (line.partition(": ")[::2] for line in lines if line and not line.startswith("#"))
    return dict(pairs)


def spilling(found: list[Figures]) -> list[Figures]:
    """Those that spill without a reason."""
    known = allowed()
    return [one for one in found if one.spills and one.label not in known]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(zoo.names()))
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    used: dict[str, list] = {}
    for name in args.networks.split(","):
        model = zoo.build(name)
        for device in args.devices.split(","):
            for precision in args.precisions.split(","):
                found = functions_of(model, device_named(device), precision)
                used.setdefault(device, []).extend(found)
                print(f"{name} on {device} in {precision}: {len(found)} kernel functions", flush=True)
    result, wrong = {}, []
    for device, functions in used.items():
        arch = device_named(device).isa
        found = figures(functions, arch, lambda done, modules: print(f"  {done}/{modules}", flush=True))
        result[arch] = [asdict(one) for one in sorted(found, key=lambda one: (one.label, one.name))]
        wrong += spilling(found)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    for one in wrong:
        print(f"spills {one.spills} bytes: {one.label} ({one.name})")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
