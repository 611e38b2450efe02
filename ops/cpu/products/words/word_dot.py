"""What the products of words have in common, whatever elements a word holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa

Parts = Sequence[ir.Value]


@dataclass(frozen=True)
class WordDot(ABC):
    """Multiplies words: `pixel` and `weight` bring them into the form that `add` takes, which is done once for all
    products that they are part of."""

    f: FunctionEmitter
    isa: Isa

    @abstractmethod
    def pixel(self, word: ir.Value) -> Parts:
        """A word of the input, the same in all lanes."""

    @abstractmethod
    def weight(self, word: ir.Value) -> Parts:
        """A word of weights in each lane."""

    @abstractmethod
    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        """The sums with the products added."""
