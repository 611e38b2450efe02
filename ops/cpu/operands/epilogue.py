"""What happens to a product before it is stored: an expression of the accumulator and of other operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.bounds import bounds_of
from brickrt.ops.cpu.arithmetic.expressions import effort, emit_expr
from brickrt.ops.cpu.arithmetic.quantize import rounded_byte, store_four
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.operand_access import access, load_operand
from brickrt.ops.expr import Apply, Expr
from brickrt.ops.operators.product import Product
from brickrt.ops.types import TensorType

LINE = 64  # bytes of a cache line
INT32_BOUND = 2.0**30  # values below it are integers of 32 bits when they are rounded
SHORT_EPILOGUE_OPERATIONS = 8  # it is written out for every vector; a loop applies longer ones


def offset_of(f: FunctionEmitter, operand: Operand, index: Sequence[Index]) -> Index:
    """Offset of an element; of a blocked operand, index[1] is a multiple of its block."""
    if operand.block == 1:
        return f.dot(index, operand.strides)
    return f.dot([index[0], f.div(index[1], operand.block), *index[2:]], operand.strides)


def joined_rows(operand: Operand, spatial: Sequence[int]) -> Operand:
    """An operand whose rows are walked as one: its innermost dimension has all pixels, so that rows of one pixel are
    not taken for a broadcast. What is the same everywhere in `spatial` stays as it is."""
    if operand.shape[-len(spatial) :] != tuple(spatial):
        return operand
    shape = (*operand.shape[:-1], math.prod(spatial))
    return replace(operand, type=TensorType(shape, operand.dtype))


@dataclass(frozen=True)
class Epilogue:
    """The operands of `expr` are the sums of the product's parts, then `ins`, the kernel's inputs from `first` on."""

    expr: Expr | None
    first: int
    ins: tuple[Operand, ...]
    out: Operand
    lanes: int

    @staticmethod
    def of(op: Product, ins: Sequence[Operand], out: Operand, lanes: int) -> Epilogue:
        """The epilogue of a product, whose operands follow its main inputs."""
        return Epilogue(op.epilogue, op.main, tuple(ins[op.main :]), out, lanes)

    def joined(self) -> Epilogue:
        """The same for images whose rows are walked as one."""
        spatial = self.out.shape[2:]
        return replace(self, ins=tuple(joined_rows(o, spatial) for o in self.ins), out=joined_rows(self.out, spatial))

    @property
    def long(self) -> bool:
        """Whether a loop applies the expression rather than code for every vector."""
        return self.expr is not None and effort(self.expr) > SHORT_EPILOGUE_OPERATIONS

    @property
    def packs(self) -> bool:
        """Whether `BoundEpilogue.four` takes it: one that ends in unsigned bytes with a constant zero point."""
        byte = rounded_byte(self.expr) if isinstance(self.expr, Apply) else None
        return byte is not None and not isinstance(byte[1], Apply)

    def bind(self, f: FunctionEmitter) -> BoundEpilogue:
        """Loads the operands' addresses in the function that applies the epilogue."""
        return BoundEpilogue(self, f, [f.pointer(1 + self.first + k) for k in range(len(self.ins))])


@dataclass(frozen=True)
class BoundEpilogue:
    """An epilogue inside the function that uses it."""

    epilogue: Epilogue
    f: FunctionEmitter
    pointers: list[ir.Value]

    def apply(
        self, value: ir.Value, index: Sequence[Index], mask: ir.Value | None = None, others: Sequence[ir.Value] = ()
    ) -> ir.Value:
        """The value to store at `index`: first of `lanes` channels (blocked) or of `lanes` columns (plain).

        `others` are those of the parts after the first.
        """
        e = self.epilogue
        if e.expr is None:
            return value
        pairs = zip(self.pointers, e.ins, strict=True)
        extras = [load_operand(self.f, p, o, e.out, index, e.lanes, mask) for p, o in pairs]
        return emit_expr(self.f, e.expr, [value, *others, *extras], e.lanes)

    def locate(self, indices: Iterable[Sequence[Index]]) -> None:
        """Computes where operands and outputs of some lie, so that the loops that follow know most of it."""
        e = self.epilogue
        for index in indices:
            offset_of(self.f, e.out, index)
            for operand in e.ins:
                access(operand, e.out).offset(self.f, index)

    def four(self, values: Sequence[ir.Value], indices: Sequence[Sequence[Index]]) -> ir.Value:
        """`apply` of up to four vectors of 16 or 8, as bytes one behind the other."""
        e = self.epilogue
        assert isinstance(e.expr, Apply)
        byte = rounded_byte(e.expr)
        assert byte is not None and not isinstance(byte[1], Apply)
        floats = [replace(self, epilogue=replace(e, expr=byte[0])).apply(*each) for each in zip(values, indices)]
        bounded = max(map(abs, bounds_of(byte[0]))) < INT32_BOUND
        return store_four(self.f, floats, byte[1], bounded)

    def each(self, sums: Sequence[Sequence[ir.Value]], finish: Callable[[Index, Sequence[ir.Value]], None]) -> None:
        """Calls `finish` with the number and the vectors of every entry of `sums`, which all have as many.

        A long expression is written once, in a loop: LLVM mixes the operations of many, and runs out of registers.
        """
        f = self.f
        if not self.epilogue.long:
            for t, vectors in enumerate(sums):
                finish(t, vectors)
            return
        kind, width = sums[0][0].type, len(sums[0])
        kept = f.local(kind, count=len(sums) * width)
        for k, vector in enumerate(chain.from_iterable(sums)):
            f.b.store(vector, f.b.gep(kept, [f.value(k)], source_etype=kind))
        with f.loop(0, len(sums)) as at:
            places = [f.b.gep(kept, [f.value(f.add(f.mul(at, width), k))], source_etype=kind) for k in range(width)]
            finish(at, [f.b.load(place, typ=kind) for place in places])

    def prefetch(self, target: ir.Value | None, index: Sequence[Index], number: int = 0) -> None:
        """Prefetches the lines that `apply` reads and the store to `target` writes at `index`, before the sweep: that
        of pixel `number` of some that lie side by side, unless pixels before it are in the same lines. None is written
        where there is no target."""
        f, e = self.f, self.epilogue
        for pointer, operand in zip(self.pointers, e.ins, strict=True):
            if operand.shape == e.out.shape and operand.block == e.out.block and begins_line(operand, number):
                f.prefetch(pointer, offset_of(f, operand, index), operand.dtype)
        if target is not None and begins_line(e.out, number):
            f.prefetch(target, offset_of(f, e.out, index), e.out.dtype, write=True)


def begins_line(operand: Operand, number: int) -> bool:
    """Whether a cache line may begin with pixel `number` of a row, if one does with the first."""
    stride = operand.strides[-1] * operand.dtype.itemsize
    return not isinstance(stride, int) or stride >= LINE or number * stride % LINE < stride
