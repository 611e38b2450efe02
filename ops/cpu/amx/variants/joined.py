"""Convolutions of bytes with a few input channels, as the first of a network: K is all taps of a row of the window.

The pixels of a row lie in words of WORD channels, one behind the other, so a row of a tile holds 16 of them: the taps
of one output, and others whose weights are zero. The next output's taps begin a stride of pixels later.

    stride 2, 7 taps of a row:   output 0 ├──── 16 words ────┤
                                 output 1     ├──── 16 words ────┤
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.amx.body import AmxBody
from brickrt.ops.cpu.amx.gather import BYTE, Chunk, Gather
from brickrt.ops.cpu.amx.scheme import AmxScheme
from brickrt.ops.cpu.amx.sizes import LANES, ROW_BYTES, WORD
from brickrt.ops.cpu.amx.views import ConvView
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, Index, vector
from brickrt.ops.operators.conv import Conv

WORDS = np.dtype(np.int32)
PER_VECTOR = LANES // WORD  # pixels of a vector of blocked bytes


class JoinedView(ConvView):
    """Windows of one column, whose channels are the words of all taps of a row."""

    @property
    def taps(self) -> int:
        """Taps of a row of the window."""
        return self.op.kernel[-1]

    @property
    def depth(self) -> int:
        return self.taps * WORD

    @property
    def kernel(self) -> Sequence[int]:
        return [*super().kernel[:-1], 1]


class JoinedKernel(AmxScheme):
    """A convolution whose pixels are words."""

    op: Conv

    @cached_property
    def view(self) -> JoinedView:
        """The operands as images."""
        return JoinedView(self.op, self.ins[0], self.out)

    @property
    def halos(self) -> list[int]:
        """Outputs that the taps of a row reach over."""
        return [super().halos[0], (self.view.taps - 1) // self.view.strides[2]]

    @property
    def pixel_bytes(self) -> int:
        """From output to output: a stride of words."""
        return self.view.strides[2] * WORD

    @property
    def lines(self) -> int:
        """All words of an output lie together."""
        return 1

    def span(self, f: FunctionEmitter, pixels: Index) -> Index:
        """All words of an output lie together."""
        return ROW_BYTES

    @property
    def workspace(self) -> int:
        """Rows of tiles reach beyond the last output's pixels."""
        return super().workspace + 2 * ROW_BYTES

    def by_tap(self, array: np.ndarray) -> np.ndarray:
        """[M, C, k…] as [taps but those of a row, taps of a row × WORD, M]."""
        m, c, *kernel = array.shape
        words = np.zeros((m, WORD, *kernel), array.dtype)
        words[:, :c] = array
        return (
            np.moveaxis(words.reshape(m, WORD, -1, kernel[-1]), (2, 3), (0, 1))
            .transpose(0, 1, 3, 2)
            .reshape(self.taps, self.view.depth, m)
        )

    def emit(self, f: FunctionEmitter) -> None:
        """See `AmxBody`."""
        AmxBody(self, f, JoinedGather).emit()


class JoinedGather(Gather):
    """Emits the copies of words."""

    k: JoinedKernel

    def row(self, chunk: Chunk, start: Index, z: Index, y: Index, x: Index) -> None:
        """A row of a plane: words of padding, of pixels, and of padding."""
        f, view = self.f, self.k.view
        end = f.mul(chunk.width, view.strides[2])
        first, last = self.inside((z, y), x, end, 1)
        to = f.address(self.area, f.mul(start, self.k.pixel_bytes), BYTE)
        self.zeros(to, 0, first)
        source = f.add(view.source(f, chunk.batch), f.dot((z, y, x), view.steps))
        whole = f.add(first, f.mul(f.div(f.sub(last, first), LANES), LANES))
        with f.loop(first, whole, LANES) as at:
            vectors = [
                self.pixels(f.add(source, f.mul(f.add(at, k), view.steps[2]))) for k in range(0, LANES, PER_VECTOR)
            ]
            f.b.store(self.words(vectors), f.address(to, at, WORDS), align=WORD)
        with f.loop(whole, last) as at:
            word = f.b.load(f.address(self.x, f.add(source, f.mul(at, view.steps[2])), BYTE), align=1, typ=I32)
            f.b.store(word, f.address(to, at, WORDS), align=WORD)
        self.zeros(to, last, end)

    def pixels(self, offset: Index) -> ir.Value:
        """Some pixels of a row, of which a block each has WORD bytes and others."""
        return self.f.b.load(self.f.address(self.x, offset, BYTE), align=1, typ=vector(I32, LANES))

    def words(self, vectors: Sequence[ir.Value]) -> ir.Value:
        """The first word of each pixel of four vectors."""
        f, each = self.f, [*range(0, 2 * LANES, PER_VECTOR)]
        halves = [f.shuffle(vectors[k], vectors[k + 1], [*each, *each]) for k in (0, 2)]
        return f.shuffle(halves[0], halves[1], [*range(LANES // 2), *range(LANES, LANES + LANES // 2)])

    def zeros(self, to: ir.Value, first: Index, last: Index) -> None:
        """Padding."""
        f = self.f
        with f.loop(first, last) as at:
            f.b.store(I32(0), f.address(to, at, WORDS), align=WORD)
