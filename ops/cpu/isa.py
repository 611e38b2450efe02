"""What a kernel needs to know of the instruction set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Isa:
    """`registers` vector registers of `lanes` float32 elements; `cpu` and `features` as LLVM names them."""

    lanes: int
    registers: int
    cpu: str = ""
    features: str = ""
