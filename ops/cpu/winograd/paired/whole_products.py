"""Products with paired channels whose weights stay as they are in memory: those of a box are transformed in a worker's
scratch before all its tiles, as `WholeProducts` has them, and paired as if they had been stored so.

Powers of two are known before, by their exponents behind the weights; what pairs sum to is computed here, of the
weights that products read.
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I32, Index, fill, vector, zeros
from brickrt.ops.cpu.emit.magnitudes import EXPONENT_OF_ONE, POWER
from brickrt.ops.cpu.winograd.frame import WinogradFrame
from brickrt.ops.cpu.winograd.paired.products import PairedProducts
from brickrt.ops.cpu.winograd.raw_products import transform


class PairedWholeProducts(PairedProducts):
    """Emits weight transforms, before all tiles, and products with paired channels.

    Behind the weights lie what takes sums back, [n²][block][lanes], the sums of pairs, [n²][block][swept tap][lanes],
    and what weights of the block at hand are multiplied with, [n²][lanes].
    """

    def __init__(self, frame: WinogradFrame) -> None:
        super().__init__(frame)
        f, k, dtype = self.f, self.k, frame.dtype
        vectors = k.axes.planes * k.out.channel_blocks
        self.weights = f.address(frame.v, k.weights_at, dtype)
        self.back = f.address(self.weights, k.axes.planes * k.whole_plane, dtype)
        self.pair_sums = f.address(self.back, vectors * k.lanes, dtype)
        self.scales = f.address(self.pair_sums, vectors * k.axes.swept.r * k.lanes, dtype)
        self.transform()

    def transform(self) -> None:
        """Transforms the weights of the box's blocks of outputs, block by block."""
        f, k, frame = self.f, self.k, self.frame
        with f.loop(frame.first_block, frame.last_block) as block:
            with f.loop(0, k.axes.planes) as plane:
                self.find_scale(plane, block)
            with f.loop(0, k.axes.swept.r) as tap:
                with f.loop(0, k.ins[0].shape[1]) as row:
                    start = f.add(self.start(block, tap), f.mul(row, k.lanes))
                    made = f.address(self.weights, start, frame.dtype)
                    transform(frame, (block, self.channel(row), tap), 1, made, k.whole_plane, self.scales)
                with f.loop(0, k.axes.planes) as plane:
                    self.sum_pairs(plane, block, tap)

    def find_scale(self, plane: Index, block: Index) -> None:
        """What weights of a plane's block are multiplied with, and what takes sums of them back."""
        f, b, k, dtype = self.f, self.f.b, self.k, self.frame.dtype
        number, kind = self.number(plane, block), vector(I32, k.lanes)
        stored = f.load(self.frame.raw_weights, f.add(k.exponents_at, f.mul(number, k.lanes)), k.raw_type, k.lanes)
        exponent, one, power = b.fptosi(stored, kind), fill(kind, EXPONENT_OF_ONE), fill(kind, POWER)
        for bits, to, at in ((b.add(one, exponent), self.back, number), (b.sub(one, exponent), self.scales, plane)):
            value = b.bitcast(b.mul(bits, power), self.frame.kind)
            f.store(value, to, f.mul(at, k.lanes), dtype, k.lanes)

    def channel(self, row: Index) -> Index:
        """The channel whose weights are a row of a panel: what is multiplied in one step lies together."""
        f, k = self.f, self.k
        step, place = f.div(row, 3), f.rem(row, 3)
        triple, lane = f.div(step, k.lanes), f.rem(step, k.lanes)
        paired = f.b.icmp_signed("<", f.value(triple), f.value(k.triples))
        channel = f.add(f.mul(f.add(f.mul(triple, 3), place), k.lanes), lane)
        return self.frame.choose(paired, channel, row)

    def sum_pairs(self, plane: Index, block: Index, tap: Index) -> None:
        """Sums the products of a plane's pairs for a block of outputs at a swept tap, of even lanes less odd ones."""
        f, k, dtype = self.f, self.k, self.frame.dtype
        rows = self.panel(plane, block, tap, 0)
        even, odd = (f.variable(zeros(self.frame.kind)) for _ in range(2))
        with f.loop(0, k.triples * k.lanes, 2) as step:
            for n, total in enumerate((even, odd)):
                at = f.mul(f.add(step, n), 3 * k.lanes)
                second, third = (f.load(rows, f.add(at, j * k.lanes), dtype, k.lanes) for j in (1, 2))
                f.change(total, f.fma(second, third, f.read(total)))
        to = f.mul(f.add(f.mul(self.number(plane, block), k.axes.swept.r), tap), k.lanes)
        f.store(f.b.fsub(f.read(even), f.read(odd)), self.pair_sums, to, dtype, k.lanes)

    def number(self, plane: Index, block: Index) -> Index:
        """The number of a block of output channels in a plane."""
        return self.f.add(self.f.mul(plane, self.k.out.channel_blocks), block)

    def start(self, block: Index, tap: Index) -> Index:
        """Elements of a plane before the weights of a block at a swept tap."""
        f, k = self.f, self.k
        return f.mul(f.add(f.mul(block, k.axes.swept.r), tap), k.ins[0].shape[1] * k.lanes)

    def stored_at(self, plane: Index, tile: Index, tap: Index, residue: Index) -> Index:
        """See `Products`."""
        return self.f.add(self.f.mul(plane, self.k.whole_plane), self.start(tile, tap))

    def returns(self, number: Index) -> ir.Value:
        """See `PairedProducts`."""
        return self.f.load(self.back, self.f.mul(number, self.k.lanes), self.frame.dtype, self.k.lanes)

    def weight_pairs(self, number: Index) -> ir.Value:
        """See `PairedProducts`."""
        return self.f.load(self.pair_sums, self.f.mul(number, self.k.lanes), self.frame.dtype, self.k.lanes)
