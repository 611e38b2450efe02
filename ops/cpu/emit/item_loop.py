"""A compiled function whose items several workers take one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I8, I64, PTR, index_constant

TAKEN, COUNT, OWN = 0, 1, 2


class ItemLoop(FunctionEmitter):
    """`void name(words, scratch)`: the int64 `words[TAKEN]` counts the items that workers have taken, `words[COUNT]`
    says how many there are; those from `OWN` on are the function's own. `scratch` is the calling worker's."""

    def __init__(self, module: ir.Module, name: str) -> None:
        super().__init__(module, name, (PTR, PTR))
        self._words, self._addresses = dict[int, ir.Value](), dict[int, ir.Value]()

    def word(self, k: int) -> ir.Value:
        """words[k], loaded where the function begins."""
        if k not in self._words:
            b = self._at_entry()
            self._words[k] = b.load(b.gep(self.fn.args[0], [index_constant(k)], source_etype=I64), typ=I64)
        return self._words[k]

    def pointed(self, k: int) -> ir.Value:
        """words[k] as an address."""
        if k not in self._addresses:
            word = self.word(k)
            self._addresses[k] = self._at_entry().inttoptr(word, PTR)
        return self._addresses[k]

    def scratch(self, k: int) -> ir.Value:
        """The address that lies words[k] bytes into the worker's scratch."""
        word = self.word(k)
        return self._at_entry().gep(self.fn.args[1], [word], source_etype=I8)

    @contextmanager
    def items(self) -> Iterator[ir.Value]:
        """What is emitted inside runs for each item that no other worker has taken."""
        count = self.word(COUNT)
        turn = self.b.append_basic_block("turn")
        self.b.branch(turn)
        self.b.position_at_end(turn)
        item = self.b.atomic_rmw("add", self.fn.args[0], I64(1), "monotonic")
        body, done = self.b.append_basic_block("item"), self.b.append_basic_block("done")
        self.b.cbranch(self.b.icmp_signed("<", item, count), body, done)
        self.b.position_at_end(body)
        yield item
        self.b.branch(turn)
        self.b.position_at_end(done)
