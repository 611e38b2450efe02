"""The structured emitter that all CPU kernels share: a thin layer over llvmlite's builder.

A kernel is `void name(i8** args, i64* box)`: args[0] is the virtual origin of the output (the address that element
0,0,… would have), args[1…] those of the inputs; `box` holds lo0, hi0, lo1, hi1, … of the output's logical box.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.control_flow import ControlFlow
from brickrt.ops.cpu.emit.llvm_types import (
    BFLOAT,
    BFLOAT16,
    FLOAT,
    HALF,
    I8,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    Index,
    fill,
    index_constant,
    memory_type,
    register_type,
    splat_operands,
    type_suffix,
    vector,
    vector_constant,
    word_constant,
    zeros,
)
from brickrt.ops.cpu.emit.sizes import Size, SizeTable
from brickrt.ops.cpu.isa import Isa

BFLOAT16_LANES = 16  # of the instruction that rounds to bfloat16


class FunctionEmitter(ControlFlow):
    """A function under construction, from its arguments to memory; `b` is the llvmlite builder at the current place.
    Of a kernel that has a table of `sizes` args[sizes_at] is its address. `isa` is the processor that it is for, None
    where that makes no difference."""

    def __init__(
        self,
        module: ir.Module,
        name: str,
        args: Sequence[ir.Type] = (PTR, PTR),
        ret: ir.Type = VOID,
        sizes_at: int | None = None,
        sizes: SizeTable | None = None,
        isa: Isa | None = None,
    ) -> None:
        super().__init__(module, name, args, ret)
        self.isa = isa
        self._rounded = dict[int, tuple[ir.Value, ir.Value]]()  # values in float32 and their bits in bfloat16, by id
        self._sizes_at, self._table, self._sizes = sizes_at, sizes, dict[int, ir.Value]()
        self._size_table: ir.Value | None = None
        self._entry_values = dict[Hashable, ir.Value]()

    # ---- kernel arguments

    def size(self, x: Size) -> ir.Value:
        """A size out of the kernel's table, loaded once, where the function begins."""
        if self._sizes_at is None:
            return super().size(x)
        place = x.table.place(x)
        if place not in self._sizes:
            table = self._sizes_address()
            b = self._at_entry()
            self._sizes[place] = b.load(b.gep(table, [index_constant(place)], source_etype=I64), typ=I64)
        return self._sizes[place]

    def entry_value(self, key: Hashable, x: Size, make: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> ir.Value:
        """What `make` emits of a size, once for a `key`, where the function begins."""
        if key not in self._entry_values:
            word = self.size(x)
            self._entry_values[key] = make(self._at_entry(), word)
        return self._entry_values[key]

    def look_ups(self) -> ir.Value:
        """The address of what a kernel's code looks up, behind its sizes."""
        assert self._table is not None
        words = self.size(self._table.look_ups)
        return self.b.gep(self._sizes_address(), [words], source_etype=I64)

    def _sizes_address(self) -> ir.Value:
        """The address of the kernel's table, loaded once, where the function begins."""
        if self._size_table is None:
            b = self._at_entry()
            self._size_table = b.load(
                b.gep(self.fn.args[0], [index_constant(self._sizes_at)], source_etype=PTR), typ=PTR
            )
        return self._size_table

    def _at_entry(self) -> ir.IRBuilder:
        """Emits where the function begins."""
        b = ir.IRBuilder(self.entry)
        b.position_before(self.entry.terminator)
        return b

    def pointer(self, k: int) -> ir.Value:
        """args[k] of a kernel, loaded."""
        return self.b.load(self.b.gep(self.fn.args[0], [index_constant(k)], source_etype=PTR), typ=PTR)

    def box(self, dim: int) -> tuple[ir.Value, ir.Value]:
        """Begin and end of dimension `dim` of a kernel's box, loaded."""
        at = [self.b.gep(self.fn.args[1], [index_constant(2 * dim + k)], source_etype=I64) for k in (0, 1)]
        return self.b.load(at[0], typ=I64), self.b.load(at[1], typ=I64)

    @contextmanager
    def apart(self, name: str, *values: Index) -> Iterator[tuple[FunctionEmitter, list[ir.Value]]]:
        """A function of its own for code that seldom runs or is seldom entered, called at the current place: its
        emitter, and the `values` inside it. Among hot loops such code would take registers from them."""
        args = (PTR, PTR, *(I64 for _ in values))
        table = self._sizes_at, self._table
        f = FunctionEmitter(self.module, f"{self.fn.name}.{name}", args, VOID, *table, self.isa)
        f.fn.linkage = "internal"
        f.fn.attributes.add("noinline")
        f.fn.attributes.add("cold")
        yield f, list(f.fn.args[2:])
        f.finish()
        self.b.call(f.fn, [*self.fn.args[:2], *(self.value(value) for value in values)])

    # ---- values

    def local(self, kind: ir.Type, initial: ir.Value | None = None, count: int | None = None) -> ir.Value:
        """A stack variable, or `count` of them, allocated once in the entry block; LLVM keeps one in a register."""
        place = self._at_entry().alloca(kind, count)
        if initial is not None:
            self.b.store(initial, place)
        return place

    def get(self, place: ir.Value, kind: ir.Type) -> ir.Value:
        """What a stack variable (see `local`) of type `kind` holds."""
        return self.b.load(place, typ=kind)

    def set(self, place: ir.Value, value: ir.Value) -> None:
        """Changes a stack variable."""
        self.b.store(value, place)

    def intrinsic(self, name: str, ret: ir.Type, *args: ir.Value) -> ir.Value:
        """Calls a function by its full name, declaring it on first use."""
        known = self.module.globals.get(name)
        if known is None:
            known = ir.Function(self.module, ir.FunctionType(ret, [a.type for a in args]), name)
        return self.b.call(known, args)

    def splat(self, scalar: ir.Value, lanes: int) -> ir.Value:
        """A vector of `lanes` copies; one lane stays a scalar."""
        return splat_by(self.b, scalar, lanes)

    def math(self, name: str, *args: ir.Value) -> ir.Value:
        """LLVM's intrinsic function `name` whose operands and result have one type, such as fabs or sqrt."""
        kind = args[0].type
        return self.intrinsic(f"llvm.{name}.{type_suffix(kind)}", kind, *args)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x·y + z, rounded once."""
        return self.math("fma", x, y, z)

    def shuffle(self, x: ir.Value, y: ir.Value, lanes: Sequence[int]) -> ir.Value:
        """The lanes of `x` and `y`, counted as one sequence, that `lanes` names."""
        return self.b.shuffle_vector(x, y, vector_constant(I32, tuple(lanes)))

    # ---- memory: offsets are in elements

    def address(self, base: ir.Value, offset: Index, dtype: np.dtype) -> ir.Value:
        """The address of the element at `offset` from `base`."""
        kind = memory_type(dtype)
        if isinstance(offset, ir.Value):
            offset, fixed = self.parts(offset)
            base = self.b.gep(base, [offset], source_etype=kind)
            return self.b.gep(base, [index_constant(fixed)], source_etype=kind) if fixed else base
        return self.b.gep(base, [self.value(offset)], source_etype=kind)

    def load(self, base: ir.Value, offset: Index, dtype: np.dtype, lanes: int = 1, mask: ir.Value | None = None):
        """`lanes` adjacent elements as a register value; where the <lanes x i1> mask is off, zero and no access."""
        kind = vector(memory_type(dtype), lanes)
        at = self.address(base, offset, dtype)
        if mask is None:
            return self.widen(self.b.load(at, align=dtype.itemsize, typ=kind), dtype, lanes)
        name = f"llvm.masked.load.{type_suffix(kind)}.p0"
        zero = zeros(kind)
        return self.widen(self.intrinsic(name, kind, at, word_constant(dtype.itemsize), mask, zero), dtype, lanes)

    def store(
        self,
        value: ir.Value,
        base: ir.Value,
        offset: Index,
        dtype: np.dtype,
        lanes: int = 1,
        mask: ir.Value | None = None,
    ) -> None:
        """Writes `lanes` adjacent elements; where the <lanes x i1> mask is off, memory stays as it is."""
        value = self.narrow(value, dtype, lanes)
        at = self.address(base, offset, dtype)
        if mask is None:
            self.b.store(value, at, align=dtype.itemsize)
            return
        self.intrinsic(
            f"llvm.masked.store.{type_suffix(value.type)}.p0", VOID, value, at, word_constant(dtype.itemsize), mask
        )

    def prefetch(self, base: ir.Value, offset: Index, dtype: np.dtype, write: bool = False, near: bool = True) -> None:
        """Prefetches an element's cache line, to read or write it: into L1 if `near`, else L2. Any address is safe."""
        hints = [word_constant(k) for k in (int(write), 3 if near else 2, 1)]
        self.intrinsic("llvm.prefetch.p0", VOID, self.address(base, offset, dtype), *hints)

    def keep_order(self) -> None:
        """What reads and writes memory stays on its side of this place, and no instruction comes of it. LLVM gathers
        loads that lie together, and runs out of registers for what is loaded too early."""
        self.b.fence("seq_cst", "singlethread")

    def collect(self, base: ir.Value, offsets: Iterable[Index], dtype: np.dtype, lanes: int) -> ir.Value:
        """A vector of elements that lie anywhere; lanes for which there is no offset are zero."""
        acc = zeros(vector(register_type(dtype), lanes))
        for lane, offset in enumerate(offsets):
            acc = self.b.insert_element(acc, self.load(base, offset, dtype), word_constant(lane))
        return acc

    def gather(self, base: ir.Value, offset: Index, stride: int, dtype: np.dtype, lanes: int) -> ir.Value:
        """A vector of elements `stride` apart; one element in all lanes where the stride is 0."""
        if stride == 1:
            return self.load(base, offset, dtype, lanes)
        if stride == 0 or lanes == 1:
            return self.splat(self.load(base, offset, dtype), lanes)
        return self.collect(base, (self.add(offset, stride * k) for k in range(lanes)), dtype, lanes)

    def widen(self, value: ir.Value, dtype: np.dtype, lanes: int) -> ir.Value:
        """From memory to register type."""
        if dtype == np.dtype(bool):
            return self.b.icmp_unsigned("!=", value, ir.Constant(value.type, None if lanes > 1 else 0))
        if dtype == BFLOAT16:
            wide = vector(I32, lanes)
            return self.b.bitcast(self.b.shl(self.b.zext(value, wide), fill(wide, 16)), vector(FLOAT, lanes))
        return self.b.fpext(value, vector(FLOAT, lanes)) if dtype == np.dtype(np.float16) else value

    def narrow(self, value: ir.Value, dtype: np.dtype, lanes: int) -> ir.Value:
        """From register to memory type."""
        if dtype == np.dtype(bool):
            return self.b.zext(value, vector(I8, lanes))
        if dtype == BFLOAT16:
            _, bits = self._rounded.get(id(value), (value, None))
            return self._bfloat16_bits(value, lanes) if bits is None else bits
        return self.b.fptrunc(value, vector(HALF, lanes)) if dtype == np.dtype(np.float16) else value

    def rounded(self, value: ir.Value, dtype: np.dtype, lanes: int) -> ir.Value:
        """A float32 value rounded to what float16 or bfloat16 can hold, still in float32."""
        bits = self.narrow(value, dtype, lanes)
        result = self.widen(bits, dtype, lanes)
        if dtype == BFLOAT16:
            self._rounded[id(result)] = result, bits
        return result

    def _bfloat16_bits(self, value: ir.Value, lanes: int) -> ir.Value:
        """The nearest bfloat16, to even on a tie. The instruction counts subnormal values as 0."""
        if self.isa and self.isa.multiplies_bfloat16 and lanes == BFLOAT16_LANES:
            rounded = self.intrinsic("llvm.x86.avx512bf16.cvtneps2bf16.512", vector(BFLOAT, lanes), value)
            return self.b.bitcast(rounded, vector(I16, lanes))
        kind = vector(I32, lanes)
        bits = self.b.bitcast(value, kind)
        upper = self.b.lshr(bits, fill(kind, 16))
        more = self.b.add(self.b.and_(upper, fill(kind, 1)), fill(kind, 0x7FFF))
        nearest = self.b.lshr(self.b.add(bits, more), fill(kind, 16))
        quiet = self.b.or_(upper, fill(kind, 0x40))
        whole = self.b.select(self.b.fcmp_unordered("uno", value, value), quiet, nearest)
        return self.b.trunc(whole, vector(I16, lanes))

    def tail_mask(self, count: Index, lanes: int) -> ir.Value:
        """<lanes x i1>, on for the first `count` lanes."""
        steps = vector_constant(I64, tuple(range(lanes)))
        return self.b.icmp_signed("<", steps, self.splat(self.value(count), lanes))


def splat_by(b: ir.IRBuilder, scalar: ir.Value, lanes: int) -> ir.Value:
    """A vector of `lanes` copies, emitted by a builder; one lane stays a scalar."""
    if lanes == 1:
        return scalar
    if isinstance(scalar, ir.Constant):
        return fill(ir.VectorType(scalar.type, lanes), scalar.constant)
    undefined, firsts = splat_operands(scalar.type, lanes)
    return b.shuffle_vector(b.insert_element(undefined, scalar, word_constant(0)), undefined, firsts)
