"""llvmlite's builder, but what it has computed already where the current place can see it, it gives again.

Kernels ask for the same index arithmetic in many places. LLVM would find what is equal (global value numbering), but to
emit, print, parse and find it takes longer than all that is done with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from llvmlite import ir

PURE = (
    *("add", "sub", "mul", "sdiv", "srem", "ashr", "and_", "or_", "icmp_signed", "icmp_unsigned", "select"),
    *("zext", "trunc", "bitcast", "gep", "insert_element", "shuffle_vector"),
)
"""What gives the same for the same operands, wherever it stands."""


def _once(name: str) -> Callable[..., ir.Value]:
    compute = getattr(ir.IRBuilder, name)

    def found_or_computed(self: ReusingBuilder, x: Any, *more: Any, **options: Any) -> ir.Value:
        if options.keys() - {"source_etype"}:
            return compute(self, x, *more, **options)
        # operands by identity, since llvmlite compares constants by their text; what is known keeps its operands alive
        key = (name, x if isinstance(x, str) else id(x), *map(_identity, more), *map(id, options.values()))
        found = self.known.get(key)
        if found is None or not self.sees(found.parent):
            found = self.known[key] = compute(self, x, *more, **options)
        return found

    return wraps(compute)(found_or_computed)


def _identity(operand: Any) -> int | tuple[int, ...]:
    return tuple(map(id, operand)) if isinstance(operand, list) else id(operand)


class ReusingBuilder(ir.IRBuilder):
    """A builder that only ever appends to blocks.

    A block that it makes itself (`append_basic_block`, `if_then`, `if_else`) is reached only by way of the block where
    it was made, its dominator, whose values it therefore sees; one from elsewhere sees nothing but its own.
    """

    def __init__(self, block: ir.Block) -> None:
        super().__init__(block)
        self.known: dict[tuple, ir.Value] = {}
        self._above: dict[ir.Block, tuple[ir.Block, int]] = {}  # a block's dominator, and how many are above it

    def append_basic_block(self, name: str = "") -> ir.Block:
        """A block at the end of the function, that only code behind the current place leads to."""
        block = super().append_basic_block(name)
        self._above[block] = self.block, self._depth(self.block) + 1
        return block

    def sees(self, block: ir.Block) -> bool:
        """Whether all ways to the current place lead through `block`."""
        here, depth = self.block, self._depth(block)
        while here is not block and self._depth(here) > depth:
            here = self._above[here][0]
        return here is block

    def _depth(self, block: ir.Block) -> int:
        return self._above[block][1] if block in self._above else 0


for _name in PURE:
    setattr(ReusingBuilder, _name, _once(_name))
