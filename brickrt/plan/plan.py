"""A plan: the graph with its layouts, cut into subgraphs, each with its strategy, bricks and the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from brickrt.graph.ir import Graph
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.footprint import with_footprint
from brickrt.plan.layout import Layout, image_layout
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan_text import plan_summary, plan_table
from brickrt.plan.subgraph import Subgraph

__all__ = ["Plan", "Subgraph", "make_plan"]


@dataclass(frozen=True)
class Plan:
    """A graph with the layout of every tensor, and how it runs on a device.

    `subgraphs` hold every node of `graph` once, in an order in which they can run. `algorithms` names, by node index,
    the algorithms of layers that are not computed directly (Winograd, Strassen).
    """

    graph: Graph
    layouts: dict[str, Layout]
    device: DeviceSpec
    options: PlanOptions = field(default_factory=PlanOptions)
    subgraphs: tuple[Subgraph, ...] = ()
    algorithms: dict[int, str] = field(default_factory=dict)

    def verify(self) -> Plan:
        """Checks the graph, layouts, cover, order and brick shapes; returns the plan. Raises ValueError naming what is
        wrong."""
        self.graph.verify()
        missing = set(self.graph.types) - set(self.layouts)
        if missing:
            raise ValueError(f"tensor '{min(missing)}' has no layout")
        written = set(self.graph.inputs) | set(self.graph.constants)
        for number, subgraph in enumerate(self.subgraphs):
            self._verify_subgraph(number, subgraph, written)
        if sum(len(s.members) for s in self.subgraphs) != len(self.graph.nodes):
            raise ValueError("the subgraphs do not hold every node once")
        return self

    def _verify_subgraph(self, number: int, subgraph: Subgraph, written: set[str]) -> None:
        inside = [self.graph.nodes[k] for k in subgraph.nodes]
        own: set[str] = set()
        for k, node, brick in zip(subgraph.nodes, inside, subgraph.node_bricks, strict=True):
            unwritten = [name for name in node.inputs if name not in written and name not in own]
            if unwritten:
                raise ValueError(f"subgraph {number}: node '{node.name}' reads '{unwritten[0]}' before it is written")
            readers = set(self.graph.consumers.get(node.output, ()))
            leaves = not readers <= set(subgraph.members) or node.output in self.graph.outputs
            if leaves and k != subgraph.nodes[-1]:
                raise ValueError(f"subgraph {number}: '{node.output}' leaves it beside its output")
            if node.output in written or len(brick) != self.graph.out(node).rank:
                raise ValueError(f"subgraph {number}: node '{node.name}' runs twice, or brick {brick} has another rank")
            own.add(node.output)
        written.add(inside[-1].output)
        for partial in (self.graph.nodes[k] for k in subgraph.partial_reductions):
            if partial.inputs != (inside[-1].output,) or partial.output in written:
                raise ValueError(
                    f"subgraph {number}: partial reduction '{partial.name}' runs twice, or reads more than its output"
                )
            written.add(partial.output)

    def to_dict(self) -> dict[str, Any]:
        """What was decided, as JSON has it: device, options and subgraphs, without the graph."""
        return {
            "device": self.device.to_dict(),
            "options": self.options.to_dict(),
            "flops": sum(s.flops for s in self.subgraphs),
            "tasks": sum(s.tasks for s in self.subgraphs),
            "subgraphs": [{"ops": self.ops(s)} | with_footprint(self.graph, s) for s in self.subgraphs],
        }

    def ops(self, subgraph: Subgraph) -> list[str]:
        """Names of the ONNX nodes that a subgraph stands for; nodes that the planner added go by their own names."""
        nodes = [self.graph.nodes[k] for k in subgraph.members]
        return list(dict.fromkeys(name for node in nodes for name in node.origin or (node.name,)))

    def __repr__(self) -> str:
        return plan_summary(self.graph, self.subgraphs, self.algorithms, self.device, self.options)

    def __str__(self) -> str:
        return plan_table(self.graph, self.subgraphs, self.algorithms)


def make_plan(
    graph: Graph,
    device: DeviceSpec,
    options: PlanOptions | None = None,
    decided: tuple[Subgraph, ...] | None = None,
) -> Plan:
    """Plans a graph for a device: layouts, algorithms, subgraphs.

    `decided` are the subgraphs of an earlier plan of the same graph, device and options, taken as they are.
    """
    # here and below: who reads a plan, or runs a compiled file, needs nothing that makes one
    from brickrt.graph.passes.long_reductions import split_long_reductions
    from brickrt.graph.passes.unfuse import unfuse
    from brickrt.plan.assign_layouts import assign_layouts
    from brickrt.plan.merging.split_moments import split_moments
    from brickrt.plan.merging.split_positions import split_positions
    from brickrt.plan.merging.split_profiles import split_profiles
    from brickrt.plan.merging.split_reductions import split_gpu_reductions, split_reductions

    options = options or PlanOptions()
    if device.kind == "cuda":
        graph = split_long_reductions(
            unfuse(graph, gates=False)
        )  # its kernels compute gates, but do not scale channels
    graph, layouts = assign_layouts(graph, image_layout(device))
    if device.kind == "cpu":
        graph, layouts = split_profiles(graph, layouts, device)
        graph, layouts = split_reductions(*split_moments(graph, layouts, device), device)
        graph, layouts = split_positions(graph, layouts, device)
    elif options.strategy in ("auto", "fused") and options.rules == "model":  # the others have no fused bricks
        graph, layouts = split_gpu_reductions(graph, layouts, device)
    plan = Plan(graph, layouts, device, options)
    return with_subgraphs(plan, plan_subgraphs(plan) if decided is None else decided)


def with_subgraphs(plan: Plan, subgraphs: tuple[Subgraph, ...]) -> Plan:
    """The plan of the same graph in these subgraphs, which name the algorithms of their nodes."""
    from brickrt.plan.cost.conv_algorithms import DIRECT

    named = sorted(pair for s in subgraphs for pair in zip(s.nodes, s.algorithms, strict=False))
    return replace(plan, subgraphs=subgraphs, algorithms={k: name for k, name in named if name != DIRECT})


def plan_subgraphs(
    plan: Plan,
    device: DeviceSpec | None = None,
    options: PlanOptions | None = None,
    algorithms: Mapping[int, str] | None = None,
) -> tuple[Subgraph, ...]:
    """The subgraphs of a plan's graph, chosen anew, each with its algorithms and partial reductions.

    Without more they are those that a new plan gets. Tuning and comparisons ask for others: for a `device` of the same
    kind with other figures, by other `options`, or with other `algorithms`, by node index, than those modelled fastest.
    """
    from brickrt.plan.cost.conv_algorithms import choose_algorithms
    from brickrt.plan.cost.cost_model import CostModel
    from brickrt.plan.merging.split_reductions import attach_partial_reductions
    from brickrt.plan.merging.strategy import choose_subgraphs

    graph, layouts, device, options = plan.graph, plan.layouts, device or plan.device, options or plan.options
    if algorithms is None:
        algorithms = choose_algorithms(graph, layouts, device, options.exact)
    cost = CostModel(graph, layouts, device, algorithms, options.precision)
    chosen = choose_subgraphs(cost, options)
    cost.counted.clear()  # what was timed knows the model, which would hold the graph's weights until it is collected
    return tuple(_naming(graph, attach_partial_reductions(graph, chosen, device.kind), algorithms))


def _naming(graph: Graph, subgraphs: Iterable[Subgraph], algorithms: Mapping[int, str]) -> Iterator[Subgraph]:
    """The subgraphs with the algorithms of their nodes, of which some are given up in bricks of several layers."""
    from brickrt.plan.cost.conv_algorithms import DIRECT, keeps_algorithm

    for s in subgraphs:
        names = [algorithms.get(k, DIRECT) for k in s.nodes]
        if len(names) > 1:
            names = [name if keeps_algorithm(graph.nodes[k], name) else DIRECT for k, name in zip(s.nodes, names)]
        yield replace(s, algorithms=tuple(names)) if any(name != DIRECT for name in names) else s
