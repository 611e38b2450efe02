"""Each layer of a network on this GPU, by itself: by cuDNN, and by brickrt's own kernels.

    python -m bench.gpu.asks.by_layer [--networks resnet50,vit-s16] [--precisions fp32,fp16]

Microseconds on the device of every product, and of all layers together.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.gpu.support.common import asked_networks, built, each, engine
from bench.gpu.support.items import Item, options, run
from bench.gpu.support.programs import Programs
from brickrt.plan.options import PlanOptions


def measure(name: str, size: int | None, precision: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Rows of a layer each: what it computes, its output, microseconds by cuDNN and by our kernels."""
    programs = Programs(engine(asked.device, "graph"), built(name, 1, size))
    plan = programs.plan(PlanOptions("layerwise", precision=precision))
    library = programs.program(plan)
    kernels = programs.program(plan, engine(asked.device, "graph", library=False))
    rows = []
    for part in library.launched_together:
        (node,) = (plan.graph.nodes[k] for s in part for k in plan.subgraphs[s].nodes)
        if {k for s in part for k in plan.subgraphs[s].nodes} & library.called:
            both = [1e6 * program.seconds(part) for program in (library, kernels)]
            rows.append([node.op.name, list(plan.graph.out(node).shape), *both])
    totals = {"cudnn_us": 1e6 * library.seconds(), "kernels_us": 1e6 * kernels.seconds()}
    return totals | {"notes": library.notes, "columns": ["op", "output", "cudnn_us", "kernels_us"], "layers": rows}


def items(asked: argparse.Namespace) -> Iterator[Item]:
    """Every network in every precision."""
    for name, size in asked_networks(asked.networks):
        for precision in each(asked.precisions):
            yield Item(f"{name} {size or 'own size'}, {precision}", partial(measure, name, size, precision, asked))


def main() -> int:
    """Measures what the command line names."""
    parser = options(__doc__)
    parser.add_argument("--networks", default="resnet50,vit-s16")
    parser.add_argument("--precisions", default="fp32,fp16")
    asked = parser.parse_args()
    return run(items(asked), asked)


if __name__ == "__main__":
    sys.exit(main())
