"""What the bands of a swept brick read from memory and write to it, and which convolution prefetches it.

Kernels that only move data wait for memory; convolutions hardly use it. So the longest convolution of a band prefetches
what the next band will read and where this one will write, a pixel of each such tensor per pixel that it computes.
"""

from __future__ import annotations

from brickrt.graph.ir import Node
from brickrt.ops.operators.conv import Conv
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.lowering.task_graph import PrefetchTarget


def find_prefetches(plan: Plan, subgraph: Subgraph, axis: int) -> dict[int, dict[str, PrefetchTarget]]:
    """Node → tensors it should prefetch. `axis` is the one along which bands follow one another."""
    graph, inside = plan.graph, [plan.graph.nodes[k] for k in subgraph.nodes]
    spatial = graph.out(inside[-1]).shape[2:]
    busy = [k for k in subgraph.nodes if _direct(plan, k) and graph.out(graph.nodes[k]).shape[2:] == spatial]
    if axis < 2 or not busy:
        return {}
    own = {node.output for node in inside}
    next_band = tuple(edge if d == axis else 0 for d, edge in enumerate(subgraph.band))
    found = {name: PrefetchTarget(next_band, False) for node in inside for name in _awaited(node) if name not in own}
    if not _prefetches_output(inside[-1]):
        found[inside[-1].output] = PrefetchTarget((0,) * len(next_band), True)
    longest = max(busy, key=lambda k: graph.flops([graph.nodes[k]]))
    return {longest: {name: target for name, target in found.items() if _worth(plan, name, spatial)}}


def _direct(plan: Plan, k: int) -> bool:
    """Whether a node is an ungrouped convolution that is computed directly, on blocks of channels."""
    node = plan.graph.nodes[k]
    blocked = plan.layouts[node.output] == "blocked"
    return isinstance(node.op, Conv) and node.op.groups == 1 and k not in plan.algorithms and blocked


def _prefetches_output(node: Node) -> bool:
    """Whether a node's kernel asks for the lines of its output itself, as an ungrouped convolution's does first."""
    return isinstance(node.op, Conv) and node.op.groups == 1


def _awaited(node: Node) -> tuple[str, ...]:
    """The inputs that a node waits for: a convolution fetches the operands of its epilogue itself."""
    return node.inputs[:1] if isinstance(node.op, Conv) else node.inputs


def _worth(plan: Plan, name: str, spatial: tuple[int, ...]) -> bool:
    """Whether a tensor is too large to be in cache, and lies pixel by pixel as the output does."""
    kind = plan.graph.types[name]
    alike = plan.layouts[name] == "blocked" and kind.shape[2:] == spatial
    return alike and name not in plan.graph.constants and kind.nbytes > plan.device.l2
