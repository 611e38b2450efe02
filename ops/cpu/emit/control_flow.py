"""Loops, conditions and variables of a function under construction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.index_arithmetic import IndexArithmetic
from brickrt.ops.cpu.emit.llvm_types import I64, PTR, VOID, Index
from brickrt.ops.cpu.emit.reusing_builder import ReusingBuilder
from brickrt.ops.cpu.emit.sizes import Size
from brickrt.ops.cpu.emit.variables import Scope, Variable, join


class ControlFlow(IndexArithmetic):
    """One function under construction: where code is emitted, and the loops and conditions around that place."""

    def __init__(self, module: ir.Module, name: str, args: Sequence[ir.Type] = (PTR, PTR), ret: ir.Type = VOID):
        super().__init__()
        self.module = module
        self.fn = ir.Function(module, ir.FunctionType(ret, list(args)), name)
        self.fn.attributes.add("nounwind")
        self.entry = self.fn.append_basic_block("entry")
        self.body = self.fn.append_basic_block("body")
        ir.IRBuilder(self.entry).branch(self.body)
        self.b = ReusingBuilder(self.body)
        self.scopes: list[Scope] = []  # of loops and conditions around the current place

    def finish(self) -> None:
        """Ends the function with a return."""
        self.b.ret_void()

    # ---- loops and conditions

    @contextmanager
    def loop(self, lo: Index, hi: Index, step: int | Size = 1) -> Iterator[Index]:
        """for i in range(lo, hi, step); one of constant bounds that runs once is free, an empty one is skipped."""
        if isinstance(lo, int) and isinstance(hi, int) and 0 < hi - lo <= step:
            yield lo
            return
        start, stop, each = self.value(lo), self.value(hi), self.value(step)
        before = self.b.block
        head, after = self.b.append_basic_block("loop"), self.b.append_basic_block("done")
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
        following, end = self.b.add(i, each, flags=["nsw"]), self.b.block
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
        before, blocks = self.b.block, [self.b.append_basic_block("case") for _ in range(count)]
        after = self.b.append_basic_block("done")
        self._choose(self.value(number), 0, blocks)
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

    def pick(self, values: Sequence[int | Size], number: ir.Value) -> Index:
        """values[number], at run time."""
        if all(isinstance(value, int) and value == values[0] for value in values):
            return values[0]
        found = self.value(values[-1])
        for k, value in enumerate(values[:-1]):
            found = self.b.select(self.b.icmp_signed("==", number, I64(k)), self.value(value), found)
        return found

    def _choose(self, number: ir.Value, first: int, blocks: list[ir.Block]) -> None:
        """Goes to that one of the blocks, which are numbered from `first` on: by comparisons, which processors guess
        better than jumps through a table."""
        if len(blocks) == 1:
            self.b.branch(blocks[0])
            return
        half = len(blocks) // 2
        ways = [self.b.append_basic_block("way") for _ in range(2)]
        self.b.cbranch(self.b.icmp_signed("<", number, I64(first + half)), *ways)
        for way, start, part in zip(ways, (first, first + half), (blocks[:half], blocks[half:]), strict=True):
            self.b.position_at_end(way)
            self._choose(number, start, part)

    def _join(self, scope: Scope, end: ir.Block) -> None:
        """After a body that may be skipped and ends in block `end`."""
        scope.join(end, self.b.block)
        self.b.position_at_end(self.b.block)

    # ---- variables

    def variable(self, initial: ir.Value) -> Variable:
        """A value that changes as code goes on. No `read` or `change` of it inside an `if_else` of the builder."""
        return Variable(initial, len(self.scopes))

    def read(self, variable: Variable) -> ir.Value:
        """The variable's value at the current place."""
        scopes = self.scopes[variable.depth :]
        if scopes and variable not in scopes[-1].entered:
            for scope in scopes:
                scope.touch(variable)
            self.b.position_at_end(self.b.block)  # after phis that are new in it
        return variable.value

    def change(self, variable: Variable, value: ir.Value) -> None:
        """Gives the variable a new value from the current place on."""
        self.read(variable)
        variable.value = value
