"""The rewritings of a specialized graph, in their order."""

from __future__ import annotations

from brickrt.graph.ir import Graph
from brickrt.graph.passes.algebra.channels_first import channels_first
from brickrt.graph.passes.algebra.dead_taps import drop_dead_taps
from brickrt.graph.passes.algebra.group_norms import unview_norms
from brickrt.graph.passes.algebra.pointwise_products import move_products
from brickrt.graph.passes.fold import fold
from brickrt.graph.passes.fuse import fuse
from brickrt.graph.passes.normal_form.fold_rows import fold_rows
from brickrt.graph.passes.normal_form.join_products import join_products
from brickrt.graph.passes.normal_form.order_moves import order_moves
from brickrt.graph.passes.stitch import stitch
from brickrt.graph.rewriter import prune

PASSES = (
    prune,
    fold,
    drop_dead_taps,  # once pads are those of convolutions
    unview_norms,  # before channels move, so that norms of groups are those of images
    channels_first,
    move_products,
    fold_rows,  # of products that are still matrices, not convolutions
    join_products,
    order_moves,
    fuse,
    stitch,
)


def rewritten(graph: Graph) -> Graph:
    """An equal graph that is less work."""
    for one in PASSES:
        graph = one(graph)
    return graph
