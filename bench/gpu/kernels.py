"""Registers, shared memory and spills of all CUDA kernels of the zoo: python -m bench.gpu.kernels; needs no GPU.

Writes bench/results/cuda-kernels.json. Exits with 1 where a kernel spills that spills.txt does not name. All of them
take about 15 minutes of one core; --selected takes 2: those that have every printed line (kernel_coverage.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bench.gpu.support.common import among, commit
from bench.gpu.support.kernel_coverage import cover
from bench.gpu.support.kernel_figures import KernelFigures, ModelPrograms, Used, figures
from brickrt import zoo
from brickrt.plan.device.device_spec import device_named
from brickrt.runtime.cuda.kernels.compile import compiler_version

HERE = Path(__file__).parent
RESULT = HERE.parent / "results" / "cuda-kernels.json"
DEVICES = ("a100", "h200")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
COLUMNS = ("label", "registers", "shared", "stack", "spills", "blocks", "functions")


def allowed() -> dict[str, tuple[int, str]]:
    """Kernels that may spill, how many bytes, and why: lines "bytes label: reason"; in labels * stands for anything."""
    found = {}
    for line in (HERE / "spills.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            kernel, _, reason = line.partition(": ")
            most, _, label = kernel.partition(" ")
            found[label] = int(most), reason
    return found


def spilling(found: Iterable[KernelFigures]) -> list[KernelFigures]:
    """Those that spill without a reason, or more than that says."""
    known = [(label.replace("[", "[[]"), most) for label, (most, _) in allowed().items()]
    return [one for one in found if one.spills > max((n for p, n in known if fnmatchcase(one.label, p)), default=0)]


def all_used(networks: Iterable[str], devices: Iterable[str], precisions: Iterable[str]) -> dict[str, list[Used]]:
    """Per device the kernel functions of all programs; the planning of a network is shared as far as it goes."""
    used: dict[str, list[Used]] = {device: [] for device in devices}
    for name in networks:
        network = ModelPrograms.of(zoo.build(name))
        for precision in precisions:
            for device, mine in used.items():
                found = network.functions(device_named(device), precision)
                mine += found
                print(f"{name} on {device} in {precision}: {len(found)} kernel functions", flush=True)
    return used


def selected(used: Iterable[Used]) -> list[Used]:
    """For each function of a cover, the kernel function that has it with the fewest others."""
    by_size = sorted(used, key=lambda one: (len(one.functions), one.source.name))
    smallest: dict[str, Used] = {}
    for one in by_size:
        for function in one.functions:
            smallest.setdefault(function.name, one)
    chosen = cover(f for one in by_size for f in one.functions)
    return list(dict.fromkeys(smallest[f.name] for f in chosen))


def rows(found: Iterable[KernelFigures], arch: str) -> list[list[Any]]:
    """COLUMNS of each kernel: functions with equal ones are one row, which says how many they are."""
    counted = Counter((f.label, f.registers, f.shared, f.stack, f.spills, f.blocks(arch)) for f in found)
    return [[*row, count] for row, count in sorted(counted.items())]


def summary(found: list[KernelFigures], arch: str) -> dict[str, Any]:
    """How many functions there are, how many spill, and by how many blocks a multiprocessor holds at a time."""
    blocks = Counter(f.blocks(arch) for f in found)
    return {
        "functions": len(found),
        "spilling": sum(f.spills > 0 for f in found),
        "most registers": max((f.registers for f in found), default=0),
        "functions by resident blocks": {str(n): blocks[n] for n in sorted(blocks)},
    }


def text_of(result: dict[str, Any]) -> str:
    """JSON with a row of figures to a line."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items() if key != "kernels"]
    for arch, table in result["kernels"].items():
        body = ",\n  ".join(map(json.dumps, table))
        lines.append(f" {json.dumps(arch)}: [\n  {body}\n ]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Compiles what the command line asks for, and writes its figures; 1 if a kernel spills without a reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(zoo.names()))
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--selected", action="store_true", help="only kernels that have every printed line")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    known = {"networks": zoo.names(), "devices": DEVICES, "precisions": PRECISIONS}
    asked = {key: among(getattr(args, key), names, key[:-1]) for key, names in known.items()}
    used = all_used(**asked)
    found = {}
    for device, functions in used.items():
        arch = device_named(device).isa
        mine = selected(functions) if args.selected else functions
        found[arch] = figures(mine, arch, lambda done, modules: print(f"  {done}/{modules}", flush=True))
    result = {
        "commit": commit(),
        "nvrtc": compiler_version(),
        **asked,
        "selected": args.selected,
        "summary": {arch: summary(mine, arch) for arch, mine in found.items()},
        "columns": COLUMNS,
        "kernels": {arch: rows(mine, arch) for arch, mine in found.items()},
    }
    args.out.write_text(text_of(result))
    wrong = spilling([one for mine in found.values() for one in mine])
    for one in wrong:
        print(f"spills {one.spills} bytes: {one.label} ({one.name})")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
