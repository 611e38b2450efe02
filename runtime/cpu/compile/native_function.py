"""What the engine's own compiled functions are made with: the emitter of kernels, and words of memory on top."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, I64, PTR, VOID, Index

CLOCK_MONOTONIC = 1


class NativeFunction(FunctionEmitter):
    """A function that works on int64 arrays, the first argument being its context.

    Offsets count words. Addresses that lie in words are typed pointers, so that atomic accesses can use them.
    """

    def __init__(self, module: ir.Module, name: str, *args: ir.Type, ret: ir.Type = VOID) -> None:
        super().__init__(module, name, (PTR, *args), ret)
        self.context: ir.Value = self.fn.args[0]

    # ---- words

    def at(self, base: ir.Value, k: Index) -> ir.Value:
        """The address of word `k`."""
        return self.b.gep(base, [self.value(k)], source_etype=I64)

    def word(self, base: ir.Value, k: Index) -> ir.Value:
        """Word `k`."""
        return self.b.load(self.at(base, k), typ=I64)

    def put(self, value: Index, base: ir.Value, k: Index) -> None:
        """Sets word `k`."""
        self.b.store(self.value(value), self.at(base, k))

    def field(self, k: int) -> ir.Value:
        """Word `k` of the context."""
        return self.word(self.context, k)

    def array(self, k: int) -> ir.Value:
        """The array of words whose address is word `k` of the context."""
        return self.b.inttoptr(self.field(k), I64.as_pointer())

    # ---- words that several threads use

    def acquire_word(self, base: ir.Value, k: Index) -> ir.Value:
        """Word `k`, and what its writer released with it."""
        return self.b.load_atomic(self.at(base, k), "acquire", 8, typ=I64)

    def release_word(self, value: ir.Value, base: ir.Value, k: Index) -> None:
        """Sets word `k` for whoever acquires it; all that was written before is seen with it."""
        self.b.store_atomic(value, self.typed(self.at(base, k)), "release", 8)

    def swap_word(self, base: ir.Value, k: Index, old: ir.Value, new: ir.Value, failure: str) -> ir.Value:
        """Whether word `k` was `old`, and is `new` now; `failure` is the memory order where it was not."""
        return self.b.extract_value(self.b.cmpxchg(self.at(base, k), old, new, "acq_rel", failure), 1)

    # ---- the rest

    def typed(self, address: ir.Value) -> ir.Value:
        """An address as llvmlite wants it in atomic accesses: as one of words."""
        return self.b.inttoptr(self.b.ptrtoint(address, I64), I64.as_pointer())

    def clock(self) -> ir.Value:
        """Nanoseconds of the clock of `time.monotonic_ns`."""
        time = self.local(I64, count=2)
        self.intrinsic("clock_gettime", I32, I32(CLOCK_MONOTONIC), time)
        return self.b.add(self.b.mul(self.word(time, 0), I64(10**9)), self.word(time, 1))

    def enter(self, name: str) -> ir.Block:
        """A new block, entered from here: where a loop begins."""
        new = self.fn.append_basic_block(name)
        self.b.branch(new)
        self.b.position_at_end(new)
        return new

    def call_kernel(self, address: ir.Value, *args: ir.Value) -> None:
        """Calls a compiled function of two addresses."""
        kind = ir.FunctionType(VOID, [PTR, PTR]).as_pointer()
        self.b.call(self.b.inttoptr(address, kind), args)
