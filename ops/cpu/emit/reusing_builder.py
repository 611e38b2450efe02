"""llvmlite's builder, but what it has computed already where the current place can see it, it gives again.

Kernels ask for the same index arithmetic in many places. LLVM would find what is equal (global value numbering), but to
emit, print, parse and find it takes longer than all that is done with it.
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.line_builder import Line, LineBuilder


class ReusingBuilder(LineBuilder):
    """A builder that only ever appends to blocks.

    A block that it makes itself (`append_basic_block`, `if_then`, `if_else`) is reached only by way of the block where
    it was made, its dominator, whose values it therefore sees; one from elsewhere sees nothing but its own.
    """

    def __init__(self, block: ir.Block) -> None:
        super().__init__(block)
        self.known: dict[str, Line] = {}  # by the text of the operation
        self._above: dict[ir.Block, tuple[ir.Block, int]] = {}  # a block's dominator, and how many are above it

    def append_basic_block(self, name: str = "") -> ir.Block:
        """A block at the end of the function, that only code behind the current place leads to."""
        block = super().append_basic_block(name)
        self._above[block] = self.block, self._depth(self.block) + 1
        return block

    def computed(self, text: str, kind: ir.Type) -> Line:
        """The operation `text`, of which the current place may know the result already."""
        found = self.known.get(text)
        if found is None or not self.sees(found.parent):
            found = self.known[text] = self.line(text, kind)
        return found

    def sees(self, block: ir.Block) -> bool:
        """Whether all ways to the current place lead through `block`."""
        here, depth = self.block, self._depth(block)
        while here is not block and self._depth(here) > depth:
            here = self._above[here][0]
        return here is block

    def _depth(self, block: ir.Block) -> int:
        return self._above[block][1] if block in self._above else 0
