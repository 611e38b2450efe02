"""What merging is worth on this GPU, by itself: the tables of BrickDL §4.5 that are of subgraphs, not of networks.

    python bench/gpu/merging.py [--tables atomics,subgraphs,layers,bricks] [--rounds 9] [--seconds 300]

atomics: nanoseconds of what a block does to take and to publish a task. subgraphs: each merged subgraph of ResNet-50
against its layers by cuDNN. layers: a chain of six 3×3×3 convolutions, merged 2+2+2, 3+3, 4+2 and 6 at a time. bricks:
the same chain by threes, in bricks from 4³ to 32³. Times are the device's, of all variants in turns; ratios are those
of layers by cuDNN to the merged ones: above 1 merging is faster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from atomics import atomics
from common import Clock, ResultTable, among, built, go_on, gpu, options, spoiled, why
from kernel_figures import ModelPrograms
from onnx import TensorProto, helper, numpy_helper

from brickrt.compare.interleave import Spread
from brickrt.ops.operators.conv import Conv
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.merging.brick_shapes import cut_of, edge_by_rule
from brickrt.plan.merging.build_subgraphs import brick_subgraph
from brickrt.plan.merging.propose_merges import Proposal
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.engines import Engine
from brickrt.runtime.lowering.lower import lower

TABLES = "atomics", "subgraphs", "layers", "bricks"
GROUPS = (2, 2, 2), (3, 3), (4, 2), (6,)
EDGES = 4, 8, 16, 32
MERGED = "padded", "memoized"
CHANNELS, SIZE = 32, 112  # of the chain


def convolutions(layers: int, channels: int, size: int, rank: int = 3) -> onnx.ModelProto:
    """A chain of 3ⁿ convolutions with rectifiers after them, on [1, channels, size…]."""
    rng, nodes, weights, x = np.random.default_rng(0), [], [], "x"
    for k in range(layers):
        w = rng.standard_normal((channels, channels, *[3] * rank), np.float32) / (channels * 3**rank) ** 0.5
        weights.append(numpy_helper.from_array(w, f"w{k}"))
        nodes.append(helper.make_node("Conv", [x, f"w{k}"], [f"c{k}"], pads=[1] * 2 * rank))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [x := f"t{k}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, *[size] * rank]) for name in ("x", x)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


class Bench:
    """Programs of one graph on a device."""

    def __init__(self, engine: Engine, model: onnx.ModelProto) -> None:
        self.engine, self.network = engine, ModelPrograms.of(model)

    def plan(self, how: PlanOptions, **more: Any) -> Plan:
        """A plan of the model in fp32."""
        return make_plan(self.network.in_precision("fp32"), self.engine.spec, how, **more)

    def program(self, plan: Plan) -> CudaProgram:
        """The program of a plan, run once."""
        program = self.engine.build(lower(plan), dict(plan.graph.constants), 1, None)
        assert isinstance(program, CudaProgram)
        program.seconds()
        return program

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


def subgraphs(engine: Engine, rounds: int, clock: Clock, model: onnx.ModelProto) -> Iterator[dict[str, Any]]:
    """A row for each merged subgraph of a model."""
    bench = Bench(engine, model)
    layers = bench.program(bench.plan(PlanOptions("layerwise")))
    alone = {k: number for number, s in enumerate(layers.tasks.plan.subgraphs) for k in s.nodes}
    for strategy in MERGED:
        plan = bench.plan(PlanOptions(strategy))
        program = bench.program(plan)
        for part in program.launched_together:
            nodes = [k for s in part for k in plan.subgraphs[s].nodes]
            if len(nodes) > 1 and clock.has_time(f"{strategy} subgraphs {part}"):
                both = {"layerwise": (layers, {alone[k] for k in nodes}), strategy: (program, part)}
                ops = [plan.graph.nodes[k].op.name for k in nodes]
                shape = plan.graph.out(plan.graph.nodes[nodes[-1]]).shape
                row = {"strategy": strategy, "subgraphs": list(part), "ops": ops, "output": list(shape)}
                yield row | compared(in_turns(both, rounds), strategy)


def chain(engine: Engine, rounds: int, model: onnx.ModelProto, cuts: dict[str, tuple]) -> Iterator[dict[str, Any]]:
    """Rows of one chain; `cuts` are groups, strategy and edge, by name."""
    bench = Bench(engine, model)
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


def rows(name: str, engine: Engine, rounds: int, clock: Clock) -> Iterator[dict[str, Any]]:
    """The rows of a table."""
    if name == "atomics":
        yield from atomics(engine.arrays)
    elif name == "subgraphs":
        yield from subgraphs(engine, rounds, clock, built("resnet50"))
    else:
        cuts = by_layers() if name == "layers" else by_bricks()
        yield from chain(engine, rounds, convolutions(6, CHANNELS, SIZE), cuts)


def show(row: dict[str, Any]) -> str:
    """A line of text about a row."""
    words = []
    for key, value in row.items():
        if isinstance(value, dict):
            value = f"×{value['median']:.2f} ({value['min']:.2f}–{value['max']:.2f})"
        words.append(f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}")
    return "  ".join(words)


def main() -> None:
    """Parses the command line, measures, and prints and writes what was found."""
    parser = options(__doc__)
    parser.add_argument("--tables", default=",".join(TABLES))
    asked = parser.parse_args()
    engine = gpu()
    table, clock = ResultTable("cuda-merging", engine.spec, asked), Clock(asked.seconds)
    tables = among(asked.tables, TABLES, "table")
    for k, name in enumerate(tables[asked.skip :], asked.skip + 1):
        if clock.has_time(name):
            try:
                for row in rows(name, engine, asked.rounds, clock):
                    table.add({"table": name} | row, f"{name:10} {show(row)}")
            except Exception as e:
                table.add({"table": name, "failed": why(e)}, f"{name:10} failed: {why(e)}")
            if k < len(tables) and spoiled():
                sys.exit(go_on(k, clock))


if __name__ == "__main__":
    main()
