"""Each part of a plan on this GPU, by itself: what it takes, and what the cost model thought.

    python -m bench.gpu.asks.parts [--networks resnet50,vit-s16] [--precisions fp32,fp16] [--variants layerwise,kernels]

A part is what is launched together: a layer, or merged ones. Variants: `layerwise` with cuDNN where it computes a
layer, `unchained` the same without chains of operators on pixels, `kernels` with brickrt's own kernels alone, `auto` as
the model plans it, and `fused`, `padded`, `memoized`. Times are microseconds on the device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.gpu.support.common import among, asked_networks, built, each, engine
from bench.gpu.support.items import Item, options, run
from bench.gpu.support.programs import Programs
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cuda.program import CudaProgram

VARIANTS = "layerwise", "unchained", "kernels", "auto", "fused", "padded", "memoized"
COLUMNS = "ops", "output", "strategy", "by", "bricks", "us", "modelled_us", "layers_modelled_us"


def measure(name: str, size: int | None, precision: Any, variant: str, device: str) -> dict[str, Any]:
    """A row per part of one plan; the whole run's time, and the sum of the parts'."""
    library = variant not in ("kernels", "fused")
    programs = Programs(engine(device, "graph", library), built(name, 1, size), variant != "unchained")
    strategy: Any = "layerwise" if variant in ("kernels", "unchained") else variant
    program = programs.program(programs.plan(PlanOptions(strategy, precision=precision)))
    rows = [row(program, part) for part in program.launched_together]
    total = 1e6 * program.seconds()
    by_themselves = sum(dict(zip(COLUMNS, r, strict=True))["us"] for r in rows)
    return {"us": total, "parts_us": by_themselves, "notes": program.notes, "columns": COLUMNS, "parts": rows}


def row(program: CudaProgram, part: tuple[int, ...]) -> list[Any]:
    """The figures of one part, in the order of `COLUMNS`."""
    plan = program.tasks.plan
    subgraphs = [plan.subgraphs[s] for s in part]
    nodes = [k for s in subgraphs for k in s.members]
    shape = list(plan.graph.out(plan.graph.nodes[subgraphs[-1].nodes[-1]]).shape)
    return [
        "+".join(plan.graph.nodes[k].op.name for k in nodes),
        shape,
        subgraphs[0].strategy,
        "cudnn" if set(nodes) & program.called else "kernel",
        sum(s.bricks for s in subgraphs),
        1e6 * program.seconds(part),
        sum(s.modelled_us for s in subgraphs),
        sum(s.layerwise_us for s in subgraphs),
    ]


def items(asked: argparse.Namespace) -> Iterator[Item]:
    """Every network in every precision and variant."""
    for name, size in asked_networks(asked.networks):
        for precision in each(asked.precisions):
            for variant in among(asked.variants, VARIANTS, "variant"):
                where = f"{name} {size or 'own size'}, {precision}, {variant}"
                yield Item(where, partial(measure, name, size, precision, variant, asked.device))


def main() -> int:
    """Measures what the command line names."""
    parser = options(__doc__)
    parser.add_argument("--networks", default="resnet50,vit-s16")
    parser.add_argument("--precisions", default="fp32,fp16")
    parser.add_argument("--variants", default="layerwise,unchained,kernels,auto")
    asked = parser.parse_args()
    return run(items(asked), asked)


if __name__ == "__main__":
    sys.exit(main())
