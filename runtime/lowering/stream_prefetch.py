"""What bands of a swept brick stream from memory, and which convolution is busy long enough to fetch it for the next.

Kernels that only move data wait for memory; convolutions hardly use it. So the longest convolution of a band asks for
what the next band will read, a pixel of the stream per pixel that it computes.
"""

from __future__ import annotations

from brickrt.graph.ir import Node
from brickrt.ops.operators.conv import Conv
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.lowering.task_graph import PrefetchTarget


def streams_ahead(plan: Plan, subgraph: Subgraph, axis: int) -> dict[int, dict[str, PrefetchTarget]]:
    """Node → tensors it should ask for. `axis` is the one along which bands follow one another."""
    graph, inside = plan.graph, [plan.graph.nodes[k] for k in subgraph.nodes]
    spatial = graph.out(inside[-1]).shape[2:]
    busy = [k for k in subgraph.nodes if _direct(plan, k) and graph.out(graph.nodes[k]).shape[2:] == spatial]
    if axis < 2 or not busy:
        return {}
    own = {node.output for node in inside}
    next_band = tuple(edge if d == axis else 0 for d, edge in enumerate(subgraph.band))
    streams = {name: PrefetchTarget(next_band, False) for node in inside for name in _streamed(node) if name not in own}
    if not _fetches(inside[-1]):
        streams[inside[-1].output] = PrefetchTarget((0,) * len(next_band), True)
    longest = max(busy, key=lambda k: graph.flops([graph.nodes[k]]))
    return {longest: {name: stream for name, stream in streams.items() if _worth(plan, name, spatial)}}


def _direct(plan: Plan, k: int) -> bool:
    """Whether a node is an ungrouped convolution that is computed directly, on blocks of channels."""
    node = plan.graph.nodes[k]
    blocked = plan.layouts[node.output] == "blocked"
    return isinstance(node.op, Conv) and node.op.groups == 1 and k not in plan.algorithms and blocked


def _fetches(node: Node) -> bool:
    """Whether a node asks for the lines of its output itself, as an ungrouped convolution does before its sums."""
    return isinstance(node.op, Conv) and node.op.groups == 1


def _streamed(node: Node) -> tuple[str, ...]:
    """The inputs that a node waits for: a convolution fetches the operands of its epilogue itself."""
    return node.inputs[:1] if isinstance(node.op, Conv) else node.inputs


def _worth(plan: Plan, name: str, spatial: tuple[int, ...]) -> bool:
    """Whether a tensor is too large to be in cache, and lies pixel by pixel as the output does."""
    kind = plan.graph.types[name]
    alike = plan.layouts[name] == "blocked" and kind.shape[2:] == spatial
    return alike and name not in plan.graph.constants and kind.nbytes > plan.device.l2
