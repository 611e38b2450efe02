"""Which way of multiplying words a product takes, and what registers that leaves it."""

from __future__ import annotations

from dataclasses import replace

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.products.words.bfloat_dot import BfloatDot
from brickrt.ops.cpu.products.words.byte_dot import ByteDot
from brickrt.ops.cpu.products.words.paired_bytes import PairedByteDot
from brickrt.ops.cpu.products.words.word_dot import WordDot

HALVES = 3  # registers that the parts of words take, beside the words, where no instruction multiplies these whole


def word_dot(f: FunctionEmitter, isa: Isa, integer: bool, paired: bool = False) -> WordDot:
    """The quickest way that a processor has to multiply words of bytes (`integer`, perhaps `paired`) or of bfloat16."""
    if paired:
        return PairedByteDot(f, isa)
    return ByteDot.of(f, isa) if integer else BfloatDot.of(f, isa)


def left_registers(isa: Isa, integer: bool) -> Isa:
    """The processor with as many registers as a tile of words may use for its sums, weights and pixels."""
    whole = isa.multiplies_bytes if integer else isa.multiplies_bfloat16
    return isa if whole else replace(isa, registers=isa.registers - HALVES)
