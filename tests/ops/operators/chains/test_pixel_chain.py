"""Chains of operators on pixels: what they compute and read is what their links do, one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.base import Slab, crop, evaluate_whole
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.chains.pixel_chain import Link, PixelChain
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.pool import Pool
from brickrt.ops.types import Boxes, TensorType
from tests.support.cuda.cases.chain_cases import ChainDraft, first_half, second_half
from tests.support.graphs.random_boxes import random_boxes

DRAFTS = {
    "norm and product": first_half(np.float32, (2, 3, 4), 12, 20),
    "half a block": second_half(np.float16, (2, 3, 5), 8),
    "signals": first_half(np.float32, (3, 9), 4, 4),
}
drafts = pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)


@drafts
def test_links_one_after_the_other(draft: ChainDraft) -> None:
    op, held = draft.op, list(draft.arrays)
    for link in op.links:
        held.append(evaluate_whole(link.op, [held[k] for k in link.reads]))
    assert evaluate_whole(op, draft.arrays).tobytes() == held[-1].tobytes()
    assert op.infer(draft.types()) == TensorType(held[-1].shape, held[-1].dtype)


@drafts
def test_a_box_reads_its_region_and_no_more(draft: ChainDraft) -> None:
    """Boxes of some channels too: what is outside of the regions may be anything."""
    op, types = draft.op, draft.types()
    whole, out = evaluate_whole(op, draft.arrays), op.infer(types)
    boxes = random_boxes(whole.shape, 12, seed=whole.size)
    for k in range(len(boxes)):
        box = Boxes(boxes.lo[k : k + 1], boxes.hi[k : k + 1])
        regions = [op.region(i, box, types, out) for i in range(len(types))]
        slabs = [Slab(crop(Slab(a, (0,) * a.ndim), r), tuple(r.lo[0].tolist())) for a, r in zip(draft.arrays, regions)]
        found = op.evaluate(box, slabs, types, out)
        assert found.tobytes() == np.ascontiguousarray(whole[box.slices(0)]).tobytes()
        if box.some_empty:
            assert all(r.some_empty for r, t in zip(regions, types) if t.rank == out.rank)


def test_flops_are_those_of_the_links() -> None:
    draft = DRAFTS["norm and product"]
    types = draft.op.types(draft.types())
    n = draft.op.inputs
    each = [
        link.op.flops([types[k] for k in link.reads], kind)
        for link, kind in zip(draft.op.links, types[n:], strict=True)
    ]
    assert draft.op.flops(draft.types(), types[-1]) == sum(each) and each[1] >= 2 * 12 * 20 * 24


def test_what_is_no_chain_is_refused() -> None:
    x, w = TensorType((1, 8, 5, 5), np.dtype(np.float32)), TensorType((8, 8, 3, 3), np.dtype(np.float32))
    window = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    with pytest.raises(ValueError, match="PixelChain: Conv of float32"):
        PixelChain((Link(window, (0, 1)),), 2).infer([x, w])
    pool = Pool("max", (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    with pytest.raises(ValueError, match="PixelChain: Pool of"):
        PixelChain((Link(pool, (0,)),), 1).infer([x])
    one, product = TensorType((1, 8, 1, 1), np.dtype(np.float32)), Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    scaled = Map(apply("mul", arg(0, x.dtype), arg(1, x.dtype)))
    with pytest.raises(ValueError, match="repeats the channels of a result"):
        PixelChain((Link(product, (0, 1)), Link(scaled, (0, 2))), 2).infer([x, one])
    with pytest.raises(ValueError, match="1 inputs and 0 links"):
        PixelChain((), 1).infer([x])
