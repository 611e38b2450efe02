"""The bricks of a padded subgraph, computed band by band: what follows from its structure alone.

Equal subgraphs share it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.row_bands import BandSweep, sweep, swept_axis
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.lowering.band_buffers import BandBuffer, band_buffer


@dataclass(frozen=True)
class SweptBricks:
    """All by tensor: `computed` are the bands, counted brick by brick, in which anything is computed of what a node
    writes, and the boxes; `outer` what each brick needs of tensors from outside; `buffers` hold those inside.

    `output` has the boxes of the subgraph's output in all bands, `bands` of each brick. `recomputed` counts elements
    computed more than once.
    """

    bands: int
    output: Boxes
    computed: Mapping[str, tuple[np.ndarray, Boxes]]
    outer: Mapping[str, Boxes]
    buffers: Mapping[str, BandBuffer]
    recomputed: int

    @staticmethod
    def of(
        graph: Graph, subgraph: Subgraph, bricks: Boxes, slices: Container[str], blocks: Mapping[str, int]
    ) -> SweptBricks:
        """Those of a subgraph; `slices` are tensors that are read in place, `blocks` as in `halo.Demand`."""
        axis = swept_axis(subgraph.brick, subgraph.band)
        swept = sweep(graph, subgraph.nodes, bricks, subgraph.band[axis], axis, slices, blocks)
        *inner, root = [graph.nodes[k].output for k in subgraph.nodes]
        stored = [name for name in inner if name not in slices]
        return SweptBricks(
            bands=swept.bands,
            output=swept.computed(root),
            computed={name: _computed(swept, name) for name in (*stored, root)},
            outer={name: swept.brick_boxes(name) for name in swept.needed if name != root and name not in inner},
            buffers={name: band_buffer(swept, name) for name in stored},
            recomputed=sum(recomputed(swept.brick_boxes(name)) for name in stored),
        )

    def renamed(self, names: Mapping[str, str]) -> SweptBricks:
        """The same of tensors with other names."""
        return replace(
            self,
            computed={names[name]: found for name, found in self.computed.items()},
            outer={names[name]: boxes for name, boxes in self.outer.items()},
            buffers={names[name]: buffer for name, buffer in self.buffers.items()},
        )


def _computed(swept: BandSweep, name: str) -> tuple[np.ndarray, Boxes]:
    """The bands that compute anything of a tensor, and what."""
    boxes = swept.computed(name)
    at = np.flatnonzero(boxes.volumes)
    return at, boxes.take(at)


def recomputed(boxes: Boxes) -> int:
    """Elements computed more than once. The boxes are what the bricks of a grid need, so each axis counts by itself."""
    boxes = Boxes(*(ends[boxes.volumes > 0] for ends in (boxes.lo, boxes.hi)))
    once = 1
    for lo, hi in zip(boxes.lo.T, boxes.hi.T, strict=True):
        spans = sorted(set(zip(lo.tolist(), hi.tolist(), strict=True)))
        lo, hi = np.array(spans, np.int64).reshape(-1, 2).T
        reached = np.maximum.accumulate(np.concatenate([lo[:1], hi[:-1]]))
        once *= int(np.maximum(hi - np.maximum(lo, reached), 0).sum())
    return int(boxes.volumes.sum()) - once
