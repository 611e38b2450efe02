"""Plans as text: the table of all subgraphs that `print(plan)` gives, and the summary that `repr(plan)` gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from brickrt.graph.ir import Graph
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.footprint import footprint
from brickrt.plan.options import PlanOptions
from brickrt.plan.subgraph import Subgraph

WIDTH = 100  # characters of a line of the summary
SHOWN_SUBGRAPHS = 8  # in the summary, the largest
HEADS = ("#", "strategy", "ops", "output", "brick", "tasks", "Mflop")


Algorithms = Mapping[int, str]  # by node index


def plan_table(graph: Graph, subgraphs: Sequence[Subgraph], algorithms: Algorithms) -> str:
    """A line per subgraph, with its footprint and the reason for it, below a line of heads."""
    rows = [
        (str(number), *_cells(graph, s, algorithms), f"{footprint(graph, s) / 2**10:.0f}", s.why)
        for number, s in enumerate(subgraphs)
    ]
    return "\n".join(_aligned([(*HEADS, "KiB", "why"), *rows]))


def plan_summary(
    graph: Graph, subgraphs: Sequence[Subgraph], algorithms: Algorithms, device: DeviceSpec, options: PlanOptions
) -> str:
    """At most 13 lines: counts, device, options, and the subgraphs that are modelled to take longest."""
    by_strategy = Counter(s.strategy for s in subgraphs)
    largest = sorted(range(len(subgraphs)), key=lambda n: -subgraphs[n].modelled_us)[:SHOWN_SUBGRAPHS]
    rows = [
        (str(n), *_cells(graph, subgraphs[n], algorithms, 24), f"{subgraphs[n].modelled_us:.0f}")
        for n in sorted(largest)
    ]
    lines = [
        f"Plan of {len(graph.nodes)} nodes in {len(subgraphs)} subgraphs"
        f" ({', '.join(f'{count} {strategy}' for strategy, count in by_strategy.most_common()) or 'none'}),"
        f" {sum(s.tasks for s in subgraphs)} tasks, {sum(s.flops for s in subgraphs) / 1e9:.3g} Gflop",
        f"device: {device.name} ({device.kind}, {device.isa}, {device.cores} cores)",
        f"options: {', '.join(f'{name} {value}' for name, value in options.to_dict().items() if value)}",
        *(_aligned([(*HEADS, "modelled µs"), *rows]) if rows else ()),
        *(
            [f"and {len(subgraphs) - SHOWN_SUBGRAPHS} smaller ones: print(plan) shows all"]
            if subgraphs[SHOWN_SUBGRAPHS:]
            else ()
        ),
    ]
    return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in lines)


def _cells(graph: Graph, s: Subgraph, algorithms: Algorithms, most: int | None = None) -> tuple[str, ...]:
    """A subgraph under HEADS without its number, its operators in at most so many characters."""
    ops = "+".join(algorithms.get(k, graph.nodes[k].op.name) for k in s.members)
    return (
        s.strategy,
        ops if most is None or len(ops) <= most else f"{ops[: most - 1]}…",
        "×".join(map(str, graph.out(graph.nodes[s.nodes[-1]]).shape)) or "scalar",
        "×".join(map(str, s.brick)) or "-",
        str(s.tasks),
        f"{s.flops / 1e6:.1f}",
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """A line per row; columns aligned to the left, the last one as it is."""
    widths = [max(map(len, column)) for column in zip(*rows)][:-1]
    return ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[-1]]) for row in rows]
