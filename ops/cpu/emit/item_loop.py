"""A compiled function whose items several workers take one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I8, I64, PTR, index_constant

TAKEN, COUNT, OWN = 0, 1, 2


class ItemLoop(FunctionEmitter):
    """`void name(words, scratch)`: the int64 `words[TAKEN]` counts the items that workers have taken, `words[COUNT]`
    says how many there are; those from `OWN` on are the function's own, by their `names` in order (`host_loops.py`).
    `scratch` is the calling worker's."""

    def __init__(self, module: ir.Module, name: str, names: Sequence[str]) -> None:
        super().__init__(module, name, (PTR, PTR))
        self._at = {word: OWN + k for k, word in enumerate(names)}
        self._words, self._addresses = dict[int, ir.Value](), dict[str, ir.Value]()

    def word(self, name: str) -> ir.Value:
        """One of the function's own words, loaded where it begins."""
        return self._word(self._at[name])

    def pointed(self, name: str) -> ir.Value:
        """A word as an address."""
        if name not in self._addresses:
            word = self.word(name)
            self._addresses[name] = self._at_entry().inttoptr(word, PTR)
        return self._addresses[name]

    def scratch(self, name: str) -> ir.Value:
        """The address that lies so many bytes as a word says into the worker's scratch."""
        word = self.word(name)
        return self._at_entry().gep(self.fn.args[1], [word], source_etype=I8)

    def _word(self, k: int) -> ir.Value:
        if k not in self._words:
            b = self._at_entry()
            self._words[k] = b.load(b.gep(self.fn.args[0], [index_constant(k)], source_etype=I64), typ=I64)
        return self._words[k]

    @contextmanager
    def items(self) -> Iterator[ir.Value]:
        """What is emitted inside runs for each item that no other worker has taken."""
        count = self._word(COUNT)
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
