"""The structured emitter that all CPU kernels share: a thin layer over llvmlite's builder.

A kernel is `void name(i8** args, i64* box)`: args[0] is the virtual origin of the output (the address that element
0,0,… would have), args[1…] those of the inputs; `box` holds lo0, hi0, lo1, hi1, … of the output's logical box.
Index arithmetic folds constants, so that code that is general in Python is specific in the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.variables import Scope, Variable, join

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
HALF, FLOAT, DOUBLE, VOID, PTR = ir.HalfType(), ir.FloatType(), ir.DoubleType(), ir.VoidType(), ir.PointerType()
Index: TypeAlias = int | ir.Value


def memory_type(dtype: np.dtype) -> ir.Type:
    """LLVM type of one element in memory."""
    if dtype == np.dtype(bool):
        return I8
    if dtype.kind == "f":
        return {2: HALF, 4: FLOAT, 8: DOUBLE}[dtype.itemsize]
    return ir.IntType(8 * dtype.itemsize)


def register_type(dtype: np.dtype) -> ir.Type:
    """LLVM type of one element in a register: bool is i1, float16 is computed in float32."""
    if dtype == np.dtype(bool):
        return I1
    return FLOAT if dtype == np.dtype(np.float16) else memory_type(dtype)


class FunctionEmitter:
    """One function under construction; `b` is the llvmlite builder at the current place."""

    def __init__(self, module: ir.Module, name: str, args: Sequence[ir.Type] = (PTR, PTR), ret: ir.Type = VOID):
        self.module = module
        self.fn = ir.Function(module, ir.FunctionType(ret, list(args)), name)
        self.fn.attributes.add("nounwind")
        self.entry = self.fn.append_basic_block("entry")
        self.body = self.fn.append_basic_block("body")
        ir.IRBuilder(self.entry).branch(self.body)
        self.b = ir.IRBuilder(self.body)
        self.scopes: list[Scope] = []  # of loops and conditions around the current place

    # ---- kernel arguments

    def pointer(self, k: int) -> ir.Value:
        """args[k] of a kernel."""
        return self.b.load(self.b.gep(self.fn.args[0], [I64(k)], source_etype=PTR), typ=PTR)

    def box(self, dim: int) -> tuple[ir.Value, ir.Value]:
        """lo and hi of dimension `dim` of a kernel's box."""
        at = [self.b.gep(self.fn.args[1], [I64(2 * dim + k)], source_etype=I64) for k in (0, 1)]
        return self.b.load(at[0], typ=I64), self.b.load(at[1], typ=I64)

    # ---- index arithmetic: ints stay ints

    @staticmethod
    def value(x: Index) -> ir.Value:
        return _index(int(x)) if isinstance(x, int | np.integer) else x

    def add(self, *terms: Index) -> Index:
        fixed = sum(t for t in terms if isinstance(t, int))
        acc: Index = fixed
        for t in terms:
            if not isinstance(t, int):
                acc = t if isinstance(acc, int) and acc == 0 else self.b.add(self.value(acc), t)
        return acc

    def sub(self, x: Index, y: Index) -> Index:
        if isinstance(y, int):
            return self.add(x, -y)
        return self.b.sub(self.value(x), y)

    def mul(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        if isinstance(x, int):
            x, y = y, x
        if isinstance(y, int) and y in (0, 1):
            return 0 if y == 0 else x
        return self.b.mul(self.value(x), self.value(y))

    def div(self, x: Index, y: int) -> Index:
        """Floor division by a positive constant, for any sign of x."""
        if isinstance(x, int):
            return x // y
        if y == 1:
            return x
        if y & (y - 1) == 0:
            return self.b.ashr(x, I64(y.bit_length() - 1))
        quotient = self.b.sdiv(x, I64(y))
        inexact_negative = self.b.icmp_signed("<", self.b.srem(x, I64(y)), I64(0))
        return self.b.sub(quotient, self.b.zext(inexact_negative, I64))

    def rem(self, x: Index, y: int) -> Index:
        """x - y*floor(x/y)."""
        return self.sub(x, self.mul(self.div(x, y), y))

    def minimum(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        x, y = self.value(x), self.value(y)
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def maximum(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return max(x, y)
        x, y = self.value(x), self.value(y)
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def dot(self, indices: Sequence[Index], strides: Sequence[Index]) -> Index:
        """Sum of index times stride."""
        return self.add(0, *[self.mul(i, s) for i, s in zip(indices, strides, strict=True)])

    # ---- control flow

    @contextmanager
    def loop(self, lo: Index, hi: Index, step: int = 1) -> Iterator[Index]:
        """for i in range(lo, hi, step); one of constant bounds that runs once is free, an empty one is skipped."""
        if isinstance(lo, int) and isinstance(hi, int) and 0 < hi - lo <= step:
            yield lo
            return
        start, stop = self.value(lo), self.value(hi)
        before = self.b.block
        head, after = self.fn.append_basic_block("loop"), self.fn.append_basic_block("done")
        certain = isinstance(lo, int) and isinstance(hi, int) and lo < hi
        if certain:
            self.b.branch(head)
        else:
            self.b.cbranch(self.b.icmp_signed("<", start, stop), head, after)
        self.b.position_at_end(head)
        i = self.b.phi(I64)
        i.add_incoming(start, before)
        scope = Scope(before, head)
        self.scopes.append(scope)
        yield i
        self.scopes.pop()
        following, end = self.b.add(i, I64(step), flags=["nsw"]), self.b.block
        i.add_incoming(following, end)
        scope.repeat(end)
        self.b.cbranch(self.b.icmp_signed("<", following, stop), head, after)
        self.b.position_at_end(after)
        if not certain:
            self._join(scope, end)

    @contextmanager
    def loops(self, ranges: Sequence[tuple[Index, Index]]) -> Iterator[list[Index]]:
        """A nest of loops, first range outermost; yields the indices."""
        if not ranges:
            yield []
            return
        with self.loop(*ranges[0]) as i, self.loops(ranges[1:]) as rest:
            yield [i, *rest]

    @contextmanager
    def when(self, condition: ir.Value) -> Iterator[None]:
        """The body runs where the i1 `condition` holds."""
        scope = Scope(self.b.block)
        self.scopes.append(scope)
        with self.b.if_then(condition):
            yield
            end, returns = self.b.block, self.b.block.is_terminated
        self.scopes.pop()
        if returns:
            scope.leave()
        else:
            self._join(scope, end)

    def cases(self, number: Index, count: int) -> Iterator[int]:
        """for k in range(count): what is emitted in the meantime runs where `number` is k."""
        before, blocks = self.b.block, [self.fn.append_basic_block("case") for _ in range(count)]
        self._choose(self.value(number), 0, blocks)
        after = self.fn.append_basic_block("done")
        bodies = []
        for k, block in enumerate(blocks):
            self.b.position_at_end(block)
            scope = Scope(before)
            self.scopes.append(scope)
            yield k
            self.scopes.pop()
            bodies.append((scope.leave(), self.b.block))
            self.b.branch(after)
        self.b.position_at_end(after)
        join(after, bodies)
        self.b.position_at_end(after)

    def _choose(self, number: ir.Value, first: int, blocks: list[ir.Block]) -> None:
        """Goes to that one of the blocks, which are numbered from `first` on: by comparisons, which processors guess
        better than jumps through a table."""
        if len(blocks) == 1:
            self.b.branch(blocks[0])
            return
        half = len(blocks) // 2
        ways = [self.fn.append_basic_block("way") for _ in range(2)]
        self.b.cbranch(self.b.icmp_signed("<", number, I64(first + half)), *ways)
        for way, start, part in zip(ways, (first, first + half), (blocks[:half], blocks[half:]), strict=True):
            self.b.position_at_end(way)
            self._choose(number, start, part)

    def _join(self, scope: Scope, end: ir.Block) -> None:
        """After a body that may be skipped and ends in block `end`."""
        scope.join(end, self.b.block)
        self.b.position_at_end(self.b.block)

    # ---- values

    def local(self, kind: ir.Type, initial: ir.Value | None = None, count: int | None = None) -> ir.Value:
        """A stack variable, or `count` of them, allocated once in the entry block; LLVM keeps one in a register."""
        slot = ir.IRBuilder(self.entry)
        slot.position_before(self.entry.terminator)
        place = slot.alloca(kind, count)
        if initial is not None:
            self.b.store(initial, place)
        return place

    def variable(self, initial: ir.Value) -> Variable:
        """A value to `read` and `change`, not between the branches of an `if_else`."""
        return Variable(initial, len(self.scopes))

    def read(self, variable: Variable) -> ir.Value:
        scopes = self.scopes[variable.depth :]
        if scopes and variable not in scopes[-1].entered:
            for scope in scopes:
                scope.touch(variable)
            self.b.position_at_end(self.b.block)  # after phis that are new in it
        return variable.value

    def change(self, variable: Variable, value: ir.Value) -> None:
        self.read(variable)
        variable.value = value

    def get(self, place: ir.Value, kind: ir.Type) -> ir.Value:
        return self.b.load(place, typ=kind)

    def set(self, place: ir.Value, value: ir.Value) -> None:
        self.b.store(value, place)

    def intrinsic(self, name: str, ret: ir.Type, *args: ir.Value) -> ir.Value:
        """Calls a function by its full name, declaring it on first use."""
        known = self.module.globals.get(name)
        if known is None:
            known = ir.Function(self.module, ir.FunctionType(ret, [a.type for a in args]), name)
        return self.b.call(known, args)

    def splat(self, scalar: ir.Value, lanes: int) -> ir.Value:
        """A vector of `lanes` copies; one lane stays a scalar."""
        if lanes == 1:
            return scalar
        if isinstance(scalar, ir.Constant):
            return fill(ir.VectorType(scalar.type, lanes), scalar.constant)
        undefined, zeros = _splat_operands(scalar.type, lanes)
        first = self.b.insert_element(undefined, scalar, I32(0))
        return self.b.shuffle_vector(first, undefined, zeros)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        return self.intrinsic(f"llvm.fma.{type_suffix(x.type)}", x.type, x, y, z)

    # ---- memory: offsets are in elements

    def address(self, base: ir.Value, offset: Index, dtype: np.dtype) -> ir.Value:
        return self.b.gep(base, [self.value(offset)], source_etype=memory_type(dtype))

    def load(self, base: ir.Value, offset: Index, dtype: np.dtype, lanes: int = 1, mask: ir.Value | None = None):
        """`lanes` adjacent elements as a register value; where the <lanes x i1> mask is off, zero and no access."""
        kind = vector(memory_type(dtype), lanes)
        at = self.address(base, offset, dtype)
        if mask is None:
            return self.widen(self.b.load(at, align=dtype.itemsize, typ=kind), dtype, lanes)
        name = f"llvm.masked.load.{type_suffix(kind)}.p0"
        zero = zeros(kind)
        return self.widen(self.intrinsic(name, kind, at, I32(dtype.itemsize), mask, zero), dtype, lanes)

    def store(
        self,
        value: ir.Value,
        base: ir.Value,
        offset: Index,
        dtype: np.dtype,
        lanes: int = 1,
        mask: ir.Value | None = None,
    ) -> None:
        value = self.narrow(value, dtype, lanes)
        at = self.address(base, offset, dtype)
        if mask is None:
            self.b.store(value, at, align=dtype.itemsize)
            return
        self.intrinsic(f"llvm.masked.store.{type_suffix(value.type)}.p0", VOID, value, at, I32(dtype.itemsize), mask)

    def prefetch(self, base: ir.Value, offset: Index, dtype: np.dtype, write: bool = False, near: bool = True) -> None:
        """Asks for an element's cache line, to be read or written later; into L2 unless `near`. Any address is safe."""
        hints = [I32(int(write)), I32(3 if near else 2), I32(1)]
        self.intrinsic("llvm.prefetch.p0", VOID, self.address(base, offset, dtype), *hints)

    def gather(
        self, base: ir.Value, offset: Index, stride: Index, dtype: np.dtype, lanes: int, count: int | None = None
    ):
        """`count` (all by default) elements `stride` apart, as a vector; one splatted load where the stride is 0."""
        if isinstance(stride, int) and stride == 1 and count in (None, lanes):
            return self.load(base, offset, dtype, lanes)
        if (isinstance(stride, int) and stride == 0) or lanes == 1:
            return self.splat(self.load(base, offset, dtype), lanes)
        acc = ir.Constant(vector(register_type(dtype), lanes), None)
        for k in range(lanes if count is None else count):
            one = self.load(base, self.add(offset, self.mul(stride, k)), dtype)
            acc = self.b.insert_element(acc, one, I32(k))
        return acc

    def scatter(
        self, value: ir.Value, base: ir.Value, offset: Index, stride: Index, dtype: np.dtype, lanes: int, count: int
    ):
        """Stores the first `count` lanes `stride` apart."""
        for k in range(count):
            one = self.b.extract_element(value, I32(k)) if lanes > 1 else value
            self.store(one, base, self.add(offset, self.mul(stride, k)), dtype)

    def widen(self, value: ir.Value, dtype: np.dtype, lanes: int) -> ir.Value:
        """From memory to register type."""
        if dtype == np.dtype(bool):
            return self.b.icmp_unsigned("!=", value, ir.Constant(value.type, None if lanes > 1 else 0))
        return self.b.fpext(value, vector(FLOAT, lanes)) if dtype == np.dtype(np.float16) else value

    def narrow(self, value: ir.Value, dtype: np.dtype, lanes: int) -> ir.Value:
        """From register to memory type."""
        if dtype == np.dtype(bool):
            return self.b.zext(value, vector(I8, lanes))
        return self.b.fptrunc(value, vector(HALF, lanes)) if dtype == np.dtype(np.float16) else value

    def tail_mask(self, count: Index, lanes: int) -> ir.Value:
        """<lanes x i1>, on for the first `count` lanes."""
        steps = ir.Constant(ir.VectorType(I64, lanes), list(range(lanes)))
        return self.b.icmp_signed("<", steps, self.splat(self.value(count), lanes))

    def finish(self) -> None:
        self.b.ret_void()


@lru_cache(maxsize=1 << 12)
def _index(value: int) -> ir.Constant:
    """An index as a constant: made once, since a constant remembers how it is printed."""
    return I64(value)


def fill(kind: ir.Type, value: float | int) -> ir.Constant:
    """The constant of a scalar or vector type with `value` in every lane."""
    return _filled(kind, value, repr(value))


@lru_cache(maxsize=1 << 12)
def _filled(kind: ir.Type, value: float | int, text: str) -> ir.Constant:
    """Made once, since a constant remembers how it is printed; `text` tells zeros apart."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


@cache
def _splat_operands(kind: ir.Type, lanes: int) -> tuple[ir.Constant, ir.Constant]:
    """An undefined vector, and the shuffle that takes its first lane everywhere."""
    return Word("undef", ir.VectorType(kind, lanes), ir.Undefined), zeros(ir.VectorType(I32, lanes), [0] * lanes)


class Word(ir.Constant):
    """A constant that is written as one word, not lane by lane."""

    def __init__(self, word: str, kind: ir.Type, value: Any) -> None:
        super().__init__(kind, value)
        self.word = word

    def get_reference(self) -> str:
        return self.word


def zeros(kind: ir.Type, value: Sequence[int] | None = None) -> ir.Constant:
    """Zero, in all lanes of a vector; `value` is how llvmlite sees it."""
    return Word("zeroinitializer", kind, value)


@cache
def vector(kind: ir.Type, lanes: int) -> ir.Type:
    """<lanes x kind>; one lane is the scalar."""
    return kind if lanes == 1 else ir.VectorType(kind, lanes)


def type_suffix(kind: ir.Type) -> str:
    """How LLVM spells a type inside an intrinsic's name."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{type_suffix(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {HALF: "f16", FLOAT: "f32", DOUBLE: "f64"}[kind]
