"""One subgraph of a plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from brickrt.ops.types import Shape


@dataclass(frozen=True)
class Subgraph:
    """Nodes that run together, and how.

    `nodes` are indices into the plan's graph, ascending; only the output of the last one is read outside. `partial_reductions` read
    that output alone, brick by brick in the tasks that make it, and are read outside too (`merging/split_reductions.py`). `kernels` are
    nodes that our kernels compute though a library could: they were measured faster. `brick` is
    the brick shape of that output, whole where a dimension is not cut. `node_bricks` has a brick shape per node:
    layerwise and memoized, that of the node's own grid; padded, the largest box of its output that one brick needs.
    """

    nodes: tuple[int, ...]
    strategy: str  # "layerwise", "padded" or "memoized"
    brick: Shape
    band: Shape
    node_bricks: tuple[Shape, ...]
    delta: float  # growth of the arithmetic by recomputed halos, were it padded
    rho: float  # bricks of the output, uneven ones counted by their share
    bricks: int  # bricks of the output
    tasks: int  # bricks that are scheduled
    flops: int  # without recomputation
    footprint_bytes: int  # tensors that one brick touches, constants aside
    why: str  # one sentence
    modelled_us: float = 0.0
    layerwise_us: float = 0.0  # modelled too, node by node
    partial_reductions: tuple[int, ...] = ()
    kernels: tuple[int, ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """All nodes that it runs."""
        return self.nodes + self.partial_reductions

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
