"""What a kernel needs to know of the instruction set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Isa:
    """`lanes` float32 elements in a vector register, `registers` such registers; `cpu` and `features` as LLVM names them."""

    lanes: int
    registers: int
    cpu: str = ""
    features: str = ""
