"""A kernel: an operator on operands that lie in a given way, for one class of boxes; and who emits which operator."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand, to_blocked
from brickrt.ops.registry import Registry
from brickrt.ops.types import Boxes


@dataclass(frozen=True)
class PrefetchedOperand:
    """A tensor that a later kernel reads or (`write`) writes, and that this one prefetches."""

    operand: Operand
    write: bool


@dataclass(frozen=True)
class Kernel(ABC):
    """Everything that decides the machine code, hence also its identity in caches.

    `packed[i]` tells that input i is a constant which `pack` brings into the kernel's own layout. `shape_class` is what
    the code assumes of its boxes (see `classify`).

    A kernel whose class `prefetches` brings the lines of `prefetched` tensors, which later kernels stream, into L2 at
    the index it computes; their pointers follow those of its inputs. With `prefetch_bytes` it has one more pointer, to
    weights that a later kernel would wait for, and prefetches so many bytes of them, in order, for every input channel
    that a register tile sweeps: 0 where it need not at this size.

    A sized kernel may leave numbers open (`sized_kernel.py`). What it chooses by them, its `decisions`, is then
    `decided`. Where its code is to be good for as many sizes as it can be, it is `broad`.
    """

    op: Op
    ins: tuple[Operand, ...]
    out: Operand
    isa: Isa
    packed: tuple[bool, ...]
    shape_class: tuple[int, ...] = ()
    prefetched: tuple[PrefetchedOperand, ...] = ()
    prefetch_bytes: int | None = None
    decided: tuple[Any, ...] = ()
    broad: bool = False

    prefetches: ClassVar[bool] = False
    effort: ClassVar[int] = 1  # of compiling it, beside that of others
    compiles_quickly: ClassVar[bool] = False  # LLVM has little to do for its long loops (`to_object`)
    sized: ClassVar[bool] = False  # whether its code is good for operands of other sizes (`sized_kernel.py`)
    narrow_codes: ClassVar[int] = 1  # codes of other sizes before one is broad: more where that compiles far longer

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Number of each box's shape class [n], and the classes. By default all boxes have one."""
        return np.zeros(len(boxes), np.int64), [()]

    @property
    def lanes(self) -> int:
        """Elements of float32 in a vector register."""
        return self.isa.lanes

    @property
    def extra_pointers(self) -> int:
        """Pointers between those of its inputs and that of its workspace."""
        return len(self.prefetched) + (self.prefetch_bytes is not None)

    @property
    def pointers(self) -> int:
        """How many its code takes, that of a table of sizes not counted."""
        return 1 + len(self.ins) + self.extra_pointers + (self.workspace > 0) + self.keeps_workspace

    def open_dims(self, i: int | None) -> Sequence[int]:
        """Dimensions of input `i`, or of the output (None), whose extents a sized kernel's code need not know."""
        rank = (self.out if i is None else self.ins[i]).rank
        channels = 1 - (self.out.rank - rank)
        return [d for d in range(rank) if d != channels or not self.knows_channels]

    @property
    def least_open(self) -> int:
        """The least extent that a sized kernel's code need not know."""
        return 2

    def opens_packed(self, i: int) -> bool:
        """Whether `open_dims` is true of input `i` where it is packed: by default of operands of an epilogue."""
        main = getattr(self.op, "main", None)
        return main is not None and i >= main

    @property
    def open_classes(self) -> Sequence[int]:
        """Entries of `shape_class` that a sized kernel's code need not know."""
        return ()

    def decisions(self) -> tuple[Any, ...]:
        """What a sized kernel chooses by numbers that it leaves open, and its code depends on."""
        return ()

    def opened_op(self, take: Callable[[int], Any]) -> tuple[Op, tuple[Any, ...]]:
        """The operator of a sized kernel without what its code need not know, and what is decided; `take` gives what
        stands for a number that is left open."""
        return self.op, self.decisions()

    def look_ups(self) -> Sequence[np.ndarray]:
        """Tables that a sized kernel's code looks up and does not know: they lie behind its sizes (`LookUps`)."""
        return ()

    @property
    def knows_channels(self) -> bool:
        """Whether the code is for so many channels, by default where they lie in blocks and the last is not filled."""
        return any(o.block > 1 and o.shape[1] % o.block for o in (self.out, *self.ins))

    @property
    def can_prefetch_weights(self) -> bool:
        """Whether it can prefetch weights of later kernels while register tiles sweep channels."""
        return False

    def swept_channels(self, boxes: Boxes) -> np.ndarray:
        """Input channels that the register tiles of each box sweep, added up over tiles and taps [n]; none but of a
        kernel that `can_prefetch_weights`."""
        return np.zeros(len(boxes), np.int64)

    @property
    def workspace(self) -> int:
        """Bytes of a worker's scratch that the kernel overwrites. Where not 0, its address follows other pointers."""
        return 0

    @property
    def keeps_workspace(self) -> bool:
        """Whether it goes on with what it left in its workspace in the call before. Then its last pointer is to a word
        of the worker's, of 8 bytes, which is 0 where another kernel, or none, ran there since it was written."""
        return False

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Constant input `i` in the layout that the kernel reads, by default that of its operand. It must not depend on
        the shape class."""
        block = self.ins[i].block
        return to_blocked(array, block) if block > 1 else np.ascontiguousarray(array)

    def pack_parts(self, i: int, array: np.ndarray) -> Sequence[np.ndarray]:
        """As `pack`, in arrays whose elements are to lie one behind the other."""
        return [self.pack(i, array)]

    def pack_in_place(self, i: int, array: np.ndarray, empty: Callable[[int], np.ndarray]) -> np.ndarray | None:
        """The bytes of `pack_parts`, written where `empty` gives memory for so many; None where parts are small beside
        what making them takes."""
        return None

    def packing(self, i: int) -> Hashable:
        """All that `pack_parts` decides by, but the array: kernels of one class that give the same pack it to the same
        bytes. Sizes that the operator is applied at are not among it."""
        x = self.ins[0]
        lie = x.block, x.type.rank, x.dtype, self.out.block, self.out.type.rank, self.out.dtype
        return self.op, self.isa, self.ins[i].block, lie

    def packed_elements(self, i: int) -> int:
        """No fewer elements than `pack_parts` gives for input `i`, known before it is packed: lanes that it fills with
        zeros can make it many times as large."""
        operand = self.ins[i]
        block, channels = max(operand.block, self.out.block), operand.shape[1] if operand.type.rank > 1 else 1
        elements = math.prod(operand.shape)
        return elements if block == 1 else -(-elements * (channels + block) // max(1, channels))

    @abstractmethod
    def emit(self, f: FunctionEmitter) -> None:
        """Emits the kernel's body; the caller adds the return."""


_REGISTRY: Registry[Callable[..., type[Kernel]]] = Registry("CPU")
kernel_for = _REGISTRY.register
"""Registers a chooser, `choose(op, ins, out, isa) -> type[Kernel]`, for the given operator classes."""


def choose_kernel(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """The kernel class for an operator. Raises LookupError where none takes these operands."""
    return _REGISTRY.chooser(op)(op, ins, out, isa)
