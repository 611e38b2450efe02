"""The least that subgraphs of a task graph can take: operations of the algorithms that run, bytes that must move, and
the time of both on a device. No run is faster, unless the device's speeds were measured too low.

A tensor may be in a cache when a subgraph begins, and its output may be there when it ends. So of what it reads only
what no cache holds together must come from the next larger memory, and of its output as much must go there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.move import Take
from brickrt.ops.operators.pool import Pool
from brickrt.plan.cost.conv_algorithms import weight_growth
from brickrt.plan.cost.product_counts import peak_ratio, peak_work
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.lowering.task_graph import TaskGraph

ARITHMETIC = "arithmetic"  # the part of a least time that is no memory level's


@dataclass(frozen=True)
class LeastWork:
    """What one subgraph cannot do without.

    `operations` are those of all nodes, products by the algorithm that computes them; `products` are those of products
    alone, of other types than float32 as many as float32 would take as long as at its peak. `read` and `written` are
    bytes of tensors outside of it, each once, `constants` those of `read` that are constants; a view moves nothing.
    """

    operations: float
    products: float
    read: int
    written: int
    constants: int = 0

    @property
    def moved(self) -> int:
        """Bytes in both directions."""
        return self.read + self.written


def least_work(tasks: TaskGraph) -> list[LeastWork]:
    """What each subgraph of a task graph cannot do without, for the device that it was planned for."""
    steps = {steps.node for steps in tasks.steps if len(steps.boxes)}
    return [_work(tasks, subgraph, [k for k in subgraph.members if k in steps]) for subgraph in tasks.plan.subgraphs]


def least_bytes(work: Iterable[LeastWork], device: DeviceSpec) -> dict[str, int]:
    """The bytes that must come from, or go to, each level ("l3", "memory") while subgraphs run: what the caches before
    it cannot hold. Caches move in both directions at once, memory does not. All constants together may be more than
    what stays in the shared cache from one run to the next."""
    level, size = device.shared
    near = 0 if level == "l2" else device.l2 * device.cores
    cached = memory = constants = 0
    for each in work:
        cached += max(0, each.read - near, each.written - near)
        memory += max(0, each.read - size) + max(0, each.written - size)
        constants += each.constants
    beyond = {"memory": max(memory, constants - size)}
    return beyond if level == "l2" else {level: cached} | beyond


def least_us(work: Sequence[LeastWork], device: DeviceSpec, cores: int) -> dict[str, float]:
    """The microseconds that subgraphs together take so many cores at least, by what takes them: `ARITHMETIC` or the
    level that bytes come from. The longest is the limit: all may go on at once."""
    cores = max(1, min(cores, device.cores))
    moved = least_bytes(work, device).items()
    times = {level: nbytes / device.bandwidth_at(level, cores) / 1e3 for level, nbytes in moved}
    products = sum(each.products for each in work)
    return {ARITHMETIC: products / device.peak_gflops_per_core / cores / 1e3} | times


def _work(tasks: TaskGraph, subgraph: Subgraph, nodes: Sequence[int]) -> LeastWork:
    plan, graph = tasks.plan, tasks.plan.graph
    operations = products = 0.0
    for k in nodes:
        node = graph.nodes[k]
        product = 2 * peak_work(graph, node, plan.algorithms.get(k))
        operations += product or node.op.flops(graph.ins(node), graph.out(node))
        if product:
            products += product / peak_ratio(graph.ins(node)[0].dtype, plan.device, plan.options.precision)
    leaving = [k for k in nodes if k == subgraph.nodes[-1] or k in subgraph.partial_reductions]
    written = sum(graph.out(graph.nodes[k]).nbytes for k in leaving)
    constants = _constants_read(plan, nodes)
    return LeastWork(operations, products, constants + _tensors_read(tasks, nodes), written, constants)


def _constants_read(plan: Plan, nodes: Sequence[int]) -> int:
    """Bytes of the constants of nodes, weights as their algorithms have them."""
    sizes: dict[str, float] = {}
    for k in nodes:
        node = plan.graph.nodes[k]
        for i, name in enumerate(node.inputs):
            if name in plan.graph.constants:
                algorithm = plan.algorithms.get(k)
                growth = weight_growth(node.op, algorithm, plan.graph.types[name].dtype) if i == 1 else 1.0
                sizes[name] = max(sizes.get(name, 0), growth * _most_read(plan.graph, node, i))
    return int(sum(sizes.values()))


def _tensors_read(tasks: TaskGraph, nodes: Sequence[int]) -> int:
    """Bytes that nodes read of tensors that none of them writes: of each no more than is stored."""
    graph = tasks.plan.graph
    own = {graph.nodes[k].output for k in nodes}
    parts: dict[str, dict[str, int]] = {}
    for k in nodes:
        for i, name in enumerate(graph.nodes[k].inputs):
            root = tasks.root(name)
            if root not in own and root not in graph.constants:
                of_root = parts.setdefault(root, {})
                of_root[name] = max(of_root.get(name, 0), _most_read(graph, graph.nodes[k], i))
    return sum(min(graph.types[root].nbytes, sum(sizes.values())) for root, sizes in parts.items())


def _most_read(graph: Graph, node: Node, i: int) -> int:
    """Bytes that a node can read of an input: windows further apart than they are wide leave some out, tables too."""
    kind, out, op = graph.ins(node)[i], graph.out(node), node.op
    most = kind.size
    if isinstance(op, Take):
        most = out.size
    elif isinstance(op, Conv | Pool) and i == 0:
        most = kind.shape[1] * math.prod((out.shape[0], *out.shape[2:])) * math.prod(op.kernel)
    return min(kind.size, most) * kind.dtype.itemsize


def longest(times: Mapping[str, float]) -> float:
    """The limit that the parts of a least time set."""
    return max(times.values(), default=0.0)
