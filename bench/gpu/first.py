"""A first meeting with a GPU, in one call of at most 9.5 minutes: does it run, is it right, how fast.

    python -m bench.gpu.first FOLDER [--minutes 9.5] [--references FOLDER] [--device cuda|null|h200] [--steps …]

What matters most comes first, and each step is a process of its own with a limit, so that whatever goes wrong, the
lines in FOLDER tell what is known by then: probes, kernels, networks, repeats, sanitizers, speeds, steps (.jsonl, a
line of JSON per result, see items.py) and log.txt. The exit code is 1 where anything is wrong.

    probes     packages, compiler, driver, capture, cuDNN, ceilings
    families   every family of kernels in every type, alone
    networks   twelve networks, layerwise, padded, memoized and fused as one CUDA graph, fp32 and fp16; beside them the
               sanitizers look at a chain of three layers
    repeat     a thousand runs of the persistent kernel
    constants  the figures that the cost model assumes; `python -m bench.gpu.constants FOLDER` tells what to write
    speed      large and small networks beside PyTorch; merged against layerwise; each part of plans by itself;
               every way to launch
    others     the other launches and precisions, for as long as there is time

`--steps families+memcheck,repeat` runs these alone, in this order; what a plus joins runs side by side.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bench.gpu.support.common import about, among
from bench.gpu.support.items import DEVICES
from bench.gpu.support.steps import ScriptStep, run_rounds

SPEED = "resnet50,vit-s16,nafnet:2048,unet:2048"  # the quick ones first: plans of large ones take long to measure
NETWORKS = ("bench.gpu.asks.networks", "--batches", "1", "--networks", SPEED, "--rounds", "7")
LAUNCHES = (
    *("bench.gpu.asks.networks", "--batches", "1", "--networks", "resnet50,inception-v4", "--peers", ""),
    *("--precisions", "fp32", "--strategy", "memoized", "--launches", "streams,dynamic,graph,persistent"),
)
VARIANTS = "layerwise,padded,memoized,fused"
MERGED = ("bench.gpu.asks.brickdl", "--networks", SPEED, "--variants", VARIANTS, "--rounds", "5")
PARTS = (
    *("bench.gpu.asks.parts", "--networks", "nafnet:2048,resnet50", "--precisions", "fp16,tf32"),
    *("--variants", "auto,unchained,kernels"),
)
SANITIZER = ("compute-sanitizer", "--error-exitcode", "9", "--tool")
SHARDS = min(max((os.cpu_count() or 6) - 4, 6), 12)  # that check side by side: most of their time is the host's


def rounds(references: Path | None) -> list[list[ScriptStep]]:
    """The steps; those of a round run side by side."""
    kept = ("--references", str(references)) if references else ()

    def check(name: str, file: str, seconds: float, shards: int = 1, under: tuple[str, ...] = ()) -> ScriptStep:
        what = name if name in ("networks", "others", "repeat") else "chain"
        return ScriptStep(name, file, seconds, ("bench.gpu.asks.check", "--what", what, *kept), shards, under=under)

    return [
        [ScriptStep("probes", "probes", 45, ("bench.gpu.asks.probes",))],
        [ScriptStep("families", "kernels", 90, ("bench.gpu.asks.families",), SHARDS)],
        [
            check("networks", "networks", 140, SHARDS),
            check("memcheck", "sanitizers", 120, 1, (*SANITIZER, "memcheck")),
            check("racecheck", "sanitizers", 120, 1, (*SANITIZER, "racecheck")),
        ],
        [check("repeat", "repeats", 25)],
        [ScriptStep("constants", "speeds", 30, ("bench.gpu.asks.constants",))],
        [ScriptStep("speed fp16", "speeds", 65, (*NETWORKS, "--precisions", "fp16"))],
        [ScriptStep("speed fp32", "speeds", 65, (*NETWORKS, "--precisions", "fp32"))],
        [ScriptStep("merged", "speeds", 70, MERGED)],
        [ScriptStep("parts", "speeds", 40, PARTS)],
        [ScriptStep("launches", "speeds", 40, LAUNCHES)],
        [ScriptStep("atomics", "speeds", 15, ("bench.gpu.asks.merging", "--tables", "atomics"))],
        [check("others", "networks", 120, SHARDS)],
    ]


def chosen(known: list[list[ScriptStep]], words: str) -> list[list[ScriptStep]]:
    """The steps that the words name, or all of them where there are none."""
    named = {step.name: step for together in known for step in together}
    return [[named[name] for name in among(word, named, "step", "+")] for word in words.split(",") if word] or known


def arguments(description: str | None, minutes: float) -> argparse.Namespace:
    """What this script and its sequel take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="FOLDER", help="where the lines go; at most eight files")
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--references", type=Path, help="a folder with outputs of the reference, as pack.py makes it")
    parser.add_argument("--device", choices=DEVICES, default="cuda", help="all but cuda do nothing")
    parser.add_argument("--steps", default="", help="all by default")
    return parser.parse_args()


def main() -> int:
    """Runs all steps."""
    asked = arguments(__doc__, 9.5)
    return run_rounds(
        chosen(rounds(asked.references and asked.references.resolve()), asked.steps),
        asked.out.resolve(),
        asked.minutes,
        asked.device,
        about(asked.device),
    )


if __name__ == "__main__":
    sys.exit(main())
