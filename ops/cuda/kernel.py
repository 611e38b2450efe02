"""A CUDA kernel: prints the device function that computes boxes of a node's output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.cuda.shared_memory import LEAST_BLOCK_BYTES
from brickrt.ops.registry import Registry

Precision = Literal["fp32", "tf32"]

THREADS = 256
"""Threads of a block, at most."""
BLOCKS = 2
"""Blocks that registers leave room for on a multiprocessor, at least: one computes while the other waits."""


@dataclass(frozen=True)
class Kernel(ABC):
    """An operator on operands that lie in a given way: everything that decides the text of its device function.

    `packed[i]` tells that input i is a constant, which lies as `pack` returns it. `precision` says how products of
    float32 are computed; of half types the sums are float32. `largest` are the extents of the largest box that is asked
    for: a hint for the sizes of tiles. `most_shared` are the bytes of shared memory that the device gives a block.
    """

    op: Op
    ins: tuple[Operand, ...]
    out: Operand
    packed: tuple[bool, ...]
    precision: Precision = "fp32"
    largest: tuple[int, ...] = ()
    most_shared: int = LEAST_BLOCK_BYTES

    headers: ClassVar[tuple[str, ...]] = ()  # of ops/cuda, that the function needs beside portable.cuh

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory that a block needs for the function."""
        return 0

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Constant input `i` as the kernel reads it; by default as its operand says, without gaps."""
        outer_first = sorted(range(array.ndim), key=lambda axis: -self.ins[i].strides[axis])
        return np.ascontiguousarray(array.transpose(outer_first))

    def tables(self) -> tuple[np.ndarray, ...]:
        """Constant arrays that the kernel adds to its operands: `at[1 + len(ins) + k]` is the address of array k.

        Their addresses are multiples of 16 bytes.
        """
        return ()

    @abstractmethod
    def emit(self, name: str) -> str:
        """C++ of the device function

            BRICK_DEVICE void NAME(const brick::Step& s, char* const* at, char* shared)

        which all threads of a block call together: `s` is the box of the output, `at[0]` the virtual origin of the
        output, `at[1 + i]` that of input i, after which come the addresses of `tables`, and `shared` as many bytes as
        the kernel asks for. Boxes may be empty, and of any size. The caller synchronizes the block before and after.
        """


_REGISTRY: Registry[Callable[..., type[Kernel]]] = Registry("CUDA")
kernel_for = _REGISTRY.register
"""Registers a chooser, `choose(op, ins, out) -> type[Kernel]`, for the given operator classes."""


def computes(*ops: type[Op]) -> Callable[[type[Kernel]], type[Kernel]]:
    """Decorates a kernel class that computes these operators on any operands."""

    def register(family: type[Kernel]) -> type[Kernel]:
        kernel_for(*ops)(lambda op, ins, out: family)
        return family

    return register


def make_kernel(
    op: Op,
    ins: Sequence[Operand],
    out: Operand,
    packed: Sequence[bool],
    precision: Precision = "fp32",
    largest: Sequence[int] = (),
    most_shared: int = LEAST_BLOCK_BYTES,
) -> Kernel:
    """The kernel of an operator. Raises LookupError where none takes these operands."""
    family = _REGISTRY.chooser(op)(op, tuple(ins), out)
    return family(op, tuple(ins), out, tuple(packed), precision, tuple(largest), most_shared)
