"""One subgraph of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brickrt.ops.types import Shape
from brickrt.plan.options import SubgraphStrategy


@dataclass(frozen=True)
class Subgraph:
    """Nodes that run together, and how.

    `nodes` are indices into the plan's graph, ascending; nobody outside reads any output but that of the last one, the
    subgraph's output. `partial_reductions` are nodes that read it brick by brick, in the tasks that make it
    (`merging/split_reductions.py`); their outputs are read outside too. `kernels` are nodes that our kernels compute
    though a library could: they were measured faster. `algorithms` has the name of each node's algorithm (Winograd's or
    Strassen's, or "direct"); none where all are computed directly.

    `brick` is the brick shape of the output, whole along dimensions that are not cut; `band` what of a brick is
    computed at a time. `node_bricks` has a brick shape per node: layerwise and memoized, that of the node's own grid;
    padded, the largest box of its output that one brick needs.
    """

    nodes: tuple[int, ...]
    strategy: SubgraphStrategy
    brick: Shape
    band: Shape
    node_bricks: tuple[Shape, ...]
    delta: float  # growth of the arithmetic by recomputed halos, were it padded
    rho: float  # bricks of the output, uneven ones counted by their share
    bricks: int  # bricks of the output
    tasks: int  # bricks that are scheduled
    flops: int  # without recomputation
    footprint_bytes: int | None  # tensors that one brick touches, constants aside; None: `footprint.py`
    why: str  # one sentence
    modelled_us: float = 0.0
    layerwise_us: float = 0.0  # modelled too, node by node
    partial_reductions: tuple[int, ...] = ()
    kernels: tuple[int, ...] = ()
    algorithms: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """All nodes that it runs."""
        return self.nodes + self.partial_reductions

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON has them."""
        return dict(vars(self))
