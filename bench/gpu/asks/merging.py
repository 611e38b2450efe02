"""What merging is worth on this GPU, by itself: the tables of BrickDL §4.5 that are of subgraphs, not of networks.

    python -m bench.gpu.asks.merging [--tables atomics,subgraphs,layers,bricks] [--rounds 9]

atomics: nanoseconds of what a block does to take and to publish a task. subgraphs: each merged subgraph of ResNet-50
against its layers by cuDNN. layers: a chain of six 3×3×3 convolutions, merged 2+2+2, 3+3, 4+2 and 6 at a time. bricks:
the same chain by threes, in bricks from 4³ to 32³. Times are the device's, of all variants in turns; ratios are those
of layers by cuDNN to the merged ones: above 1 merging is faster.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import onnx

from bench.gpu.asks.atomics import atomics
from bench.gpu.asks.check import convolutions
from bench.gpu.support.common import among, built, engine
from bench.gpu.support.items import Item, options, run
from bench.gpu.support.programs import Programs
from brickrt.compare.interleave import Spread
from brickrt.ops.operators.conv import Conv
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.merging.brick_shapes import cut_of, edge_by_rule
from brickrt.plan.merging.build_subgraphs import brick_subgraph
from brickrt.plan.merging.propose_merges import Proposal
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.engines import Engine

TABLES = "atomics", "subgraphs", "layers", "bricks"
GROUPS = (2, 2, 2), (3, 3), (4, 2), (6,)
EDGES = 4, 8, 16, 32
MERGED = "padded", "memoized"
CHANNELS, SIZE = 32, 112  # of the chain


class ChainPrograms(Programs):
    """Programs of a chain of convolutions, some merged."""

    def merged(self, groups: Sequence[int], strategy: str, edge: int | None) -> Plan:
        """So many convolutions of a chain together, in bricks of an edge, or of that which the rule gives."""
        layers = self.plan(PlanOptions("layerwise"))
        model = CostModel(layers.graph, layers.layouts, layers.device)
        return self.plan(PlanOptions(strategy), decided=tuple(_joined(layers, model, groups, strategy, edge)))


def _joined(layers: Plan, model: CostModel, groups: Sequence[int], strategy: str, edge: int | None) -> Iterator[Any]:
    left = list(groups)
    nodes: list[int] = []
    for subgraph in layers.subgraphs:
        (k,) = subgraph.nodes
        if not isinstance(layers.graph.nodes[k].op, Conv):
            yield subgraph
            continue
        nodes.append(k)
        if len(nodes) == left[0]:
            shape = layers.graph.out(layers.graph.nodes[k]).shape
            brick = cut_of(model, k).brick(shape, edge or edge_by_rule(model, k))
            yield brick_subgraph(model, tuple(nodes), Proposal(strategy, brick, brick, len(nodes), "as asked"))
            nodes, left = [], left[1:]


def in_turns(tries: dict[str, tuple[CudaProgram, Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds per round of programs, or of some subgraphs of theirs."""
    times: dict[str, list[float]] = {name: [] for name in tries}
    for _ in range(rounds):
        for name, (program, subgraphs) in tries.items():
            times[name].append(program.seconds(subgraphs))
    return times


def compared(times: dict[str, list[float]], ours: str, layers: str = "layerwise") -> dict[str, Any]:
    """Microseconds of `ours`, and by how many times `layers` takes longer."""
    ratios = [a / b if b else 1.0 for a, b in zip(times[layers], times[ours], strict=True)]
    return {"us": 1e6 * Spread.of(times[ours]).median, "over_layers": Spread.of(ratios).to_dict()}


# ---- tables


def subgraphs(engine: Engine, rounds: int, model: onnx.ModelProto) -> Iterator[dict[str, Any]]:
    """A row for each merged subgraph of a model."""
    bench = ChainPrograms(engine, model)
    layers = bench.program(bench.plan(PlanOptions("layerwise")))
    alone = {k: number for number, s in enumerate(layers.tasks.plan.subgraphs) for k in s.nodes}
    for strategy in MERGED:
        plan = bench.plan(PlanOptions(strategy))
        program = bench.program(plan)
        for part in program.launched_together:
            nodes = [k for s in part for k in plan.subgraphs[s].nodes]
            if len(nodes) > 1:
                both = {"layerwise": (layers, {alone[k] for k in nodes}), strategy: (program, part)}
                ops = [plan.graph.nodes[k].op.name for k in nodes]
                shape = plan.graph.out(plan.graph.nodes[nodes[-1]]).shape
                row = {"strategy": strategy, "subgraphs": list(part), "ops": ops, "output": list(shape)}
                yield row | compared(in_turns(both, rounds), strategy)


def chain(engine: Engine, rounds: int, model: onnx.ModelProto, cuts: dict[str, tuple]) -> Iterator[dict[str, Any]]:
    """Rows of one chain; `cuts` are groups, strategy and edge, by name."""
    bench = ChainPrograms(engine, model)
    plans = {"layerwise": bench.plan(PlanOptions("layerwise"))}
    plans |= {name: bench.merged(*cut) for name, cut in cuts.items()}
    tries = {name: (bench.program(plan), None) for name, plan in plans.items()}
    times = in_turns(tries, rounds)
    for name, (program, _) in tries.items():
        yield {"cut": name, "tasks": len(program.tasks)} | compared(times, name)


def by_layers() -> dict[str, tuple]:
    """Cuts of the chain that differ in the layers merged."""
    return {f"{strategy} {'+'.join(map(str, g))}": (g, strategy, None) for strategy in MERGED for g in GROUPS}


def by_bricks() -> dict[str, tuple]:
    """Cuts of the chain that differ in the edge of a brick."""
    return {f"{strategy} {edge}³": ((3, 3), strategy, edge) for strategy in MERGED for edge in EDGES}


def table(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """The rows of a table."""
    on = engine(asked.device, "persistent")
    if name == "atomics":
        return {"rows": list(atomics(on.arrays))}
    if name == "subgraphs":
        return {"rows": list(subgraphs(on, asked.rounds, built("resnet50")))}
    cuts = by_layers() if name == "layers" else by_bricks()
    return {"rows": list(chain(on, asked.rounds, convolutions(6, CHANNELS, SIZE), cuts))}


def main() -> int:
    """Measures the tables that the command line names."""
    parser = options(__doc__)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    return run((Item(name, partial(table, name, asked)) for name in among(asked.tables, TABLES, "table")), asked)


if __name__ == "__main__":
    sys.exit(main())
