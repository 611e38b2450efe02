"""Chains of operators on pixels (chain.cuh): products on tensor cores whose sums are the next one's factors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np

from brickrt.ops.cuda.chains.link_text import BLOCK, FOUR, SIDES, LinkOperand, LinkText, blocks
from brickrt.ops.cuda.kernel import Kernel, computes
from brickrt.ops.cuda.operand import Operand, dense
from brickrt.ops.cuda.printing.epilogue import offset_text
from brickrt.ops.cuda.printing.expressions import HEADER
from brickrt.ops.cuda.printing.functions import device_function
from brickrt.ops.cuda.printing.types import ctype, is_half
from brickrt.ops.cuda.products.block_tile import as_tf32
from brickrt.ops.operators.chains.pixel_chain import PixelChain, has_pixels
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import TensorType

SLICE = 4  # blocks of columns, of all parts, that are summed at a time at the end of a chain


@computes(PixelChain)
class PixelChainKernel(Kernel):
    """Each warp takes pixels of its own through all links; blocks need not wait for anything."""

    op: PixelChain
    headers: ClassVar[tuple[str, ...]] = ("chain.cuh", HEADER)

    @cached_property
    def weights(self) -> dict[int, int]:
        """Inputs that are weights, and in how many parts each."""
        convs = ((link.op, link.reads[1]) for link in self.op.links if isinstance(link.op, Conv))
        return {k: op.gate_parts for op, k in convs}

    @cached_property
    def results(self) -> list[TensorType]:
        """Types of the links' results."""
        return self.op.types([operand.type for operand in self.ins])[self.op.inputs :]

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Weights as tensor cores take them, part by part; all else without gaps."""
        if i not in self.weights:
            return np.ascontiguousarray(array)
        parts = array.reshape(self.weights[i], -1, array.shape[1])
        return np.concatenate([pack_weights(part) for part in parts])

    def emit(self, name: str) -> str:
        """A loop over the pixels of the warp, with all links in its body."""
        rank = self.out.rank
        located = f"brick::chain::locate<{rank}>(s, pixels, m + brick::lane() / 4 + side * 8, index[side])"
        return device_function(
            name,
            f"const int pixels = brick::chain::pixels<{rank}>(s);",
            "#pragma unroll 1",
            "for (int m = brick::warp() * brick::chain::PIXELS; m < pixels; "
            "m += brick::warps() * brick::chain::PIXELS) {",
            f"int index[brick::chain::SIDES][{rank}];",
            "bool found[brick::chain::SIDES];",
            "#pragma unroll",
            f"{SIDES} found[side] = {located};",
            *self._links(),
            "}",
        )

    def _links(self) -> Iterator[str]:
        """The text of all links, each with a name for its result, and of the store."""
        yield "constexpr int first = 0;"
        *most, last = [self._link(j) for j in range(len(self.op.links))]
        for link in most:
            yield from link.lines()
        kept = any(place.result is not None for place in last.places[1:])
        yield f"#pragma unroll {'' if kept else 1}"  # results in registers have places that are known
        yield f"for (int first = 0; first < {blocks(last.channels)}; first += {blocks(last.width)}) {{"
        yield from last.lines()
        yield from self._store(last)
        yield "}"

    def _link(self, j: int) -> LinkText:
        """Link number `j`; a product at the end is stored slice by slice."""
        link, out = self.op.links[j], self.results[j]
        places, width = tuple(self._place(k) for k in link.reads), out.shape[1]
        if j == len(self.op.links) - 1 and isinstance(link.op, Conv):
            most, whole = max(1, SLICE // link.op.gate_parts), blocks(width)
            pieces = max(k for k in range(1, most + 1) if whole % k == 0)
            width = width if pieces == whole else pieces * BLOCK
        return LinkText(j, link.op, places, out, self._rounds(j), width)

    def _rounds(self, j: int) -> bool:
        """Whether the values of a result have to be rounded to its type: words of factors are anyway, and what is
        stored at the end."""
        number, last = self.op.inputs + j, j == len(self.op.links) - 1
        readers = [(link.op, place) for link in self.op.links for place, k in enumerate(link.reads) if k == number]
        factors = all(isinstance(op, Conv) and place == 0 and not op.channel_scaled for op, place in readers)
        return not factors and not last

    def _place(self, k: int) -> LinkOperand:
        """Where an input of a link is: a result, or in memory."""
        if k >= self.op.inputs:
            return LinkOperand(result=k - self.op.inputs)
        operand = dense(self.ins[k].type) if self.packed[k] else self.ins[k]
        pixels = has_pixels(operand.type, self.out.shape)
        return LinkOperand(slot=1 + k, operand=operand, strides=_strides(operand, self.out.rank), pixels=pixels)

    def _store(self, last: LinkText) -> Iterator[str]:
        """Stores channels of the last result where the box has them."""
        out, step = self.out, self.out.strides[1]
        aligned = str(step == 1 and out.vector >= FOUR).lower()
        yield "#pragma unroll"
        yield f"{SIDES} {{"
        yield "if (!found[side]) continue;"
        yield "const int* const i = index[side];"
        yield f"auto* const to = reinterpret_cast<{ctype(out.dtype)}*>(at[0]) + {offset_text(out.strides)};"
        yield f"brick::chain::put_side<{step}, {aligned}, {out.shape[1]}>(s, r{last.j}, first, side, to);"
        yield "}"


def _strides(operand: Operand, rank: int) -> tuple[int, ...]:
    """Those per dimension of an output; a vector is one of channels."""
    if operand.rank == 1 and rank > 2:
        return (0, operand.strides[0] if operand.shape[0] > 1 else 0, *(0,) * (rank - 2))
    return operand.broadcast_strides(rank)


def pack_weights(w: np.ndarray) -> np.ndarray:
    """[columns, channels] → [blocks of channels, blocks of columns, steps, lanes, tiles, words]: chain.cuh says which
    channels a lane has. Words of halves have two elements, and zeros stand for what is not there."""
    half, (columns, channels) = is_half(w.dtype), w.shape
    full = np.zeros((blocks(columns) * BLOCK, blocks(channels) * BLOCK), w.dtype)
    full[:columns, :channels] = w
    g, tile, t = np.arange(8), np.arange(2), np.arange(4)
    column = 4 * (g // 2)[:, None] + 2 * tile + (g % 2)[:, None]  # [g, tile]
    steps, words, elements = (1, 2, 2) if half else (2, 2, 1)
    # of a lane: by its place among four, step, word and element
    depth = np.arange(4).reshape(steps, words, elements) + 4 * t[:, None, None, None]
    pieces = full.reshape(-1, BLOCK, full.shape[1] // BLOCK, BLOCK).transpose(2, 0, 1, 3)  # [channels, columns, n, k]
    found = pieces[:, :, column[:, :, None, None, None, None], depth]  # [.., g, tile, t, step, word, element]
    packed = found.transpose(0, 1, 5, 2, 4, 3, 6, 7)
    return np.ascontiguousarray(packed).reshape(-1) if half else as_tf32(packed).reshape(-1)
