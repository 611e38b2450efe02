"""Col2Im: the sum of overlapping blocks at their places in an image, what PyTorch calls fold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import elementwise, integers, take, transpose, view
from brickrt.graph.builders.spatial.window import per_dimension, require_moderate, steps
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import apply
from brickrt.ops.operators.move import Concat

MOST_TAPS = 1 << 8
"""Elements of a block, each of which has operators of its own."""
Ints = tuple[int, ...]


@dataclass(frozen=True)
class Fold:
    """Blocks [N, C, *block, *places], and where they lie in an image: block p begins at p·stride − pad."""

    lead: Ints
    image: Ints
    block: Ints
    strides: Ints
    dilations: Ints
    pads: Ints
    places: Ints

    @property
    def groups(self) -> Ints:
        """How many pixels of each phase there are along each axis of the padded image."""
        sizes = zip(self.pads, self.image, self.strides, strict=True)
        return tuple(-(-(pad + extent) // stride) for pad, extent, stride in sizes)

    @property
    def tiles(self) -> bool:
        """Whether each pixel has exactly one element, as blocks lie side by side."""
        return self.block == self.strides and all(d == 1 for d in self.dilations) and self.groups == self.places


@builds("Col2Im")
def fold(b: Builder, node: OnnxNode) -> str:
    """Pixels are taken apart by where they lie in a stride: to all of such a phase the same elements of blocks add."""
    x, how = node.inputs[0], _fold(b, node)
    rank, taps = len(how.image), math.prod(how.block)
    if how.tiles:
        phases = view(b, x, (*how.lead, *how.strides, *how.groups))
    elif taps > MOST_TAPS or math.prod(how.strides) > MOST_TAPS:
        raise Unsupported(f"blocks of {taps} elements")
    else:
        phases = _phases(b, view(b, x, (*how.lead, taps, *how.places)), how)
    order = [axis for k in range(rank) for axis in (2 + rank + k, 2 + k)]
    padded = transpose(b, phases, (0, 1, *order))
    extents = [g * s for g, s in zip(how.groups, how.strides, strict=True)]
    image = view(b, padded, (*how.lead, *extents))
    return take(b, image, {2 + k: range(pad, pad + how.image[k]) for k, pad in enumerate(how.pads)})


def _fold(b: Builder, node: OnnxNode) -> Fold:
    """The node's blocks. Raises ValueError where they do not suit the tensor or the image."""
    image, block = (tuple(integers(b, node, k, "") or ()) for k in (1, 2))
    shape, rank = b.type(node.inputs[0]).shape, len(image)
    strides, dilations = steps(node, rank)
    pads = per_dimension(node, "pads", 2 * rank, 0)
    if not rank == len(block) == len(strides) == len(dilations) or len(pads) != 2 * rank or len(shape) != 3:
        raise ValueError(f"a tensor {list(shape)} has no blocks {list(block)} of an image {list(image)}")
    require_moderate(image=image, block=block, strides=strides, dilations=dilations, pads=pads)
    if min(*image, *block) < 1 or min(pads) < 0 or shape[1] % math.prod(block):
        raise ValueError(f"{shape[1]} channels cannot be blocks {list(block)} of an image {list(image)}")
    sizes = zip(image, block, strides, dilations, pads[:rank], pads[rank:], strict=True)
    places = tuple((n + lo + hi - d * (k - 1) - 1) // s + 1 for n, k, s, d, lo, hi in sizes)
    if min(places) < 1 or math.prod(places) != shape[2]:
        raise ValueError(f"{shape[2]} blocks {list(block)} do not cover an image {list(image)}")
    lead = (shape[0], shape[1] // math.prod(block))
    return Fold(lead, image, block, strides, dilations, pads[:rank], places)


def _phases(b: Builder, blocks: str, how: Fold) -> str:
    """The padded image [N, C, *strides, *groups] of blocks [N, C, elements, *places]."""
    sums = [_phase(b, blocks, how, phase) for phase in product(*map(range, how.strides))]
    joined = sums[0] if len(sums) == 1 else b.emit(Concat(2), *sums)
    return view(b, joined, (*how.lead, *how.strides, *how.groups))


def _phase(b: Builder, blocks: str, how: Fold, phase: Sequence[int]) -> str:
    """The sum of what falls on pixels `phase` of each stride: [N, C, 1, *groups]."""
    total = ""
    for number, tap in enumerate(product(*map(range, how.block))):
        offsets = [k * d for k, d in zip(tap, how.dilations, strict=True)]
        if any(o % s != p for o, s, p in zip(offsets, how.strides, phase, strict=True)):
            continue
        tables = {3 + axis: _places(how, axis, offset) for axis, offset in enumerate(offsets)}
        part = take(b, blocks, {2: [number], **tables})
        total = elementwise(b, lambda x, y: apply("add", x, y), total, part) if total else part
    return total or take(b, blocks, {2: [0], **{3 + axis: [-1] * count for axis, count in enumerate(how.groups)}})


def _places(how: Fold, axis: int, offset: int) -> list[int]:
    """Per group of pixels along an axis the block whose element at `offset` lies there, -1 for none."""
    shift = offset // how.strides[axis]
    return [g - shift if 0 <= g - shift < how.places[axis] else -1 for g in range(how.groups[axis])]
