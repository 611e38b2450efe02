"""What a kernel needs to know of the instruction set."""

from __future__ import annotations

from dataclasses import dataclass

HALVING = frozenset({"znver4"})  # processors, as LLVM names them, that run vectors of 512 bits as two halves


@dataclass(frozen=True)
class Isa:
    """`registers` vector registers of `lanes` float32 elements; `cpu` and `features` as LLVM names them."""

    lanes: int
    registers: int
    cpu: str = ""
    features: str = ""

    @property
    def halves(self) -> bool:
        """Whether a multiply-add unit takes half a vector: one vector a cycle where others do two."""
        return self.lanes == 16 and self.cpu in HALVING
