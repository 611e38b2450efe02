"""Winograd kernels, and the maker of those whose tiles have a given edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import PrefetchedOperand
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.row_tiles import common_cut
from brickrt.ops.cpu.winograd.axes import Axes, known_axes
from brickrt.ops.cpu.winograd.direct_tiles import DirectTiles
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame
from brickrt.ops.cpu.winograd.gather import GatheredInput
from brickrt.ops.cpu.winograd.input_transform import InputTransform
from brickrt.ops.cpu.winograd.output_transform import OutputTransform
from brickrt.ops.cpu.winograd.paired.input import PairedInput
from brickrt.ops.cpu.winograd.paired.products import PairedProducts
from brickrt.ops.cpu.winograd.paired.whole_products import PairedWholeProducts
from brickrt.ops.cpu.winograd.products import Products
from brickrt.ops.cpu.winograd.raw_products import RowProducts, WholeProducts
from brickrt.ops.cpu.winograd.scheme import WinogradScheme
from brickrt.ops.cpu.winograd.sizes import ANEW, HELD, ONCE, PAIRED, PAIRED_ONCE, STORED, transforms_once
from brickrt.ops.cpu.winograd.tile_ranges import Suspects
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Boxes

Phases: TypeAlias = tuple[InputTransform, Products, OutputTransform]


class WinogradKernel(WinogradScheme):
    """A convolution by minimal filtering."""

    @property
    def keeps_workspace(self) -> bool:
        """See `Kernel`: transformed weights, for the next box."""
        return self.shape_class[5] == HELD

    def emit(self, f: FunctionEmitter) -> None:
        """Groups of tiles, then runs of planes; all phases of one before the next, the last where tiles are suspect."""
        frame, phases, suspects = self.phases(f)
        with f.loop(0, frame.total, self.group) as first:
            if suspects is not None:
                suspects.begin()
            count = f.minimum(self.group, f.sub(frame.total, first))
            blocks = f.div(f.add(count, self.t - 1), self.t)
            with f.loop(frame.swept.lo, frame.swept.hi, self.run) as z:
                end = f.minimum(f.add(z, self.run), frame.swept.hi)
                for phase in phases:
                    phase.emit(TileGroup(first, count, blocks, z, end))
                if suspects is not None:
                    with f.when(suspects.any()), f.apart("again", first, count, z, end) as (apart, at):
                        DirectTiles(WinogradFrame(self, apart)).emit(TileGroup(at[0], at[1], 0, at[2], at[3]))

    def phases(self, f: FunctionEmitter) -> tuple[WinogradFrame, Phases, Suspects | None]:
        """What phases share, what emits each of them, and which tiles are computed again; None where none ever is."""
        frame = WinogradFrame(self, f)
        read = GatheredInput if self.gathers else PairedInput if self.paired else InputTransform
        return frame, (read(frame), self.products(frame), OutputTransform(frame)), Suspects(frame)

    def products(self, frame: WinogradFrame) -> Products:
        """What emits the products; weights that are transformed once are so before all tiles."""
        if self.paired:
            return PairedWholeProducts(frame) if self.raw else PairedProducts(frame)
        if not self.raw:
            return Products(frame)
        return RowProducts(frame) if self.anew else WholeProducts(frame)


@dataclass(frozen=True)
class WinogradMaker:
    """Makes Winograd kernels whose tiles have `edge` outputs along each tiled dimension; `raw` ones transform weights
    while they run, `held` ones for all boxes that follow each other; `paired` ones have paired channels
    (`paired/products.py`)."""

    edge: int
    raw: bool = False
    paired: bool = False
    held: bool = False
    prefetches: ClassVar[bool] = WinogradKernel.prefetches
    made: ClassVar[type[WinogradKernel]] = WinogradKernel

    def __call__(
        self,
        op: Op,
        ins: tuple[Operand, ...],
        out: Operand,
        isa: Isa,
        packed: tuple[bool, ...],
        shape_class: tuple[int, ...],
        prefetched: tuple[PrefetchedOperand, ...] = (),
    ) -> WinogradKernel:
        """The kernel of a class of `classify`."""
        assert isinstance(op, Conv)
        return self.made(op, ins, out, isa, packed, shape_class, prefetched)

    def classify(
        self, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """As `Kernel.classify`: one class, for the largest box."""
        assert isinstance(op, Conv)
        axes = known_axes(op, ins[0].shape[2:], self.edge)
        depth, *tiles = (axis.tiles(np.ones(1) if axis.dim is None else boxes.extents[:, axis.dim]) for axis in axes)
        align = common_cut(boxes, 1, out.shape[1], isa.lanes)
        blocks = -(-boxes.hi[:, 1] // isa.lanes) - boxes.lo[:, 1] // isa.lanes
        most = (int(each.max(initial=1)) for each in (boxes.extents[:, 0] * tiles[0] * tiles[1], depth, blocks))
        return np.zeros(len(boxes), np.int64), [(self.edge, align, *most, self.transformed(axes, ins[0], out, isa))]

    def transformed(self, axes: Axes, x: Operand, out: Operand, isa: Isa) -> int:
        """Where weights are transformed."""
        if self.paired:
            return PAIRED_ONCE if self.raw else PAIRED
        if self.held:
            return HELD
        nbytes = 4 * x.shape[1] * out.shape[1] * axes.planes * axes.swept.r
        return STORED if not self.raw else ONCE if transforms_once(nbytes, isa.paces_weights) else ANEW
