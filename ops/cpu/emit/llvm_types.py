"""LLVM types of elements in memory and in registers, and constants of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.sizes import Size

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
HALF, FLOAT, DOUBLE, VOID, PTR = ir.HalfType(), ir.FloatType(), ir.DoubleType(), ir.VoidType(), ir.PointerType()
Index: TypeAlias = int | Size | ir.Value


class BrainFloat(ir.Type):
    """LLVM's bfloat, which llvmlite has no type for: what instructions for bfloat16 take and give."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrainFloat)

    def __hash__(self) -> int:
        return hash(BrainFloat)


BFLOAT = BrainFloat()
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype(np.float16), BFLOAT16)
"""Types of two bytes that are computed in float32."""


def computed_type(dtype: np.dtype) -> np.dtype:
    """The type that registers hold elements of `dtype` in: float32 for those of two bytes."""
    return np.dtype(np.float32) if dtype in HALVES else dtype


@cache
def memory_type(dtype: np.dtype) -> ir.Type:
    """LLVM type of one element in memory; bfloat16 is a plain integer there, the upper half of a float32."""
    if dtype == np.dtype(bool):
        return I8
    if dtype.kind == "f":
        return {2: HALF, 4: FLOAT, 8: DOUBLE}[dtype.itemsize]
    return ir.IntType(8 * dtype.itemsize)


def register_type(dtype: np.dtype) -> ir.Type:
    """LLVM type of one element in a register: bool is i1, float16 and bfloat16 are computed in float32."""
    return I1 if dtype == np.dtype(bool) else memory_type(computed_type(dtype))


@lru_cache(maxsize=1 << 12)
def index_constant(value: int) -> ir.Constant:
    """An index as an i64. Each is made once, since llvmlite's constants cache how they are printed."""
    return I64(value)


@cache
def word_constant(value: int) -> ir.Constant:
    """A lane's number, or what else instructions take as an i32."""
    return I32(value)


@lru_cache(maxsize=1 << 12)
def vector_constant(kind: ir.Type, values: tuple[int, ...]) -> ir.Constant:
    """The constant vector of these integers of a type."""
    return ir.Constant(ir.VectorType(kind, len(values)), list(values))


def fill(kind: ir.Type, value: float | int) -> ir.Constant:
    """The constant of a scalar or vector type with `value` in every lane."""
    return _filled(kind, value, repr(value))


@lru_cache(maxsize=1 << 12)
def _filled(kind: ir.Type, value: float | int, text: str) -> ir.Constant:
    """Each constant is made once, as in `index_constant`; `text` tells 0.0 and -0.0 apart."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


@cache
def splat_operands(kind: ir.Type, lanes: int) -> tuple[ir.Constant, ir.Constant]:
    """An undefined vector, and the shuffle that takes its first lane everywhere."""
    return Word("undef", ir.VectorType(kind, lanes), ir.Undefined), zeros(ir.VectorType(I32, lanes), [0] * lanes)


class Word(ir.Constant):
    """A constant that LLVM IR writes as one word, such as zeroinitializer, not lane by lane."""

    def __init__(self, word: str, kind: ir.Type, value: Any) -> None:
        super().__init__(kind, value)
        self.word = word

    def get_reference(self) -> str:
        """What llvmlite prints for the constant."""
        return self.word


def zeros(kind: ir.Type, value: Sequence[int] | None = None) -> ir.Constant:
    """Zero, in all lanes of a vector; `value` is llvmlite's form of it, where it looks at that."""
    return Word("zeroinitializer", kind, value)


@cache
def vector(kind: ir.Type, lanes: int) -> ir.Type:
    """<lanes x kind>; one lane is the scalar."""
    return kind if lanes == 1 else ir.VectorType(kind, lanes)


def type_suffix(kind: ir.Type) -> str:
    """How LLVM spells a type inside an intrinsic's name."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{type_suffix(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {HALF: "f16", FLOAT: "f32", DOUBLE: "f64"}[kind]
