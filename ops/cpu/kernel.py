"""A kernel: an operator on operands that lie in a given way, for one class of boxes; and who emits which operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand, to_blocked
from brickrt.ops.registry import Registry
from brickrt.ops.types import Boxes


@dataclass(frozen=True)
class Ahead:
    """A tensor that a later kernel reads or writes."""

    operand: Operand
    write: bool


@dataclass(frozen=True)
class Kernel(ABC):
    """Everything that decides the machine code, hence also its identity in caches.

    `packed[i]` tells that input i is a constant which `pack` brings into the kernel's own layout. `shape_class` is what
    the code assumes of its boxes (see `classify`). `ahead` are tensors that later kernels stream: one that `fetches`
    asks for their lines at the index it computes, and has their pointers after those of its inputs. One that
    `asks` has a further pointer, to weights that a later kernel waits for: it asks for so many bytes of them, in order,
    for every channel that a register tile sweeps.
    """

    op: Op
    ins: tuple[Operand, ...]
    out: Operand
    isa: Isa
    packed: tuple[bool, ...]
    shape_class: tuple[int, ...] = ()
    ahead: tuple[Ahead, ...] = ()
    asks: int = 0

    fetches: ClassVar[bool] = False  # whether `ahead` is heeded
    effort: ClassVar[int] = 1  # of compiling it, beside that of others

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Per box the number of its class, and the classes. One class for all boxes unless a kernel wants more."""
        return np.zeros(len(boxes), np.int64), [()]

    @property
    def further(self) -> int:
        """Pointers after those of its inputs, the workspace aside."""
        return len(self.ahead) + (self.asks > 0)

    def swept(self, boxes: Boxes) -> np.ndarray | None:
        """Channels that all register tiles of each box sweep together; None for a kernel that cannot ask meanwhile."""
        return None

    @property
    def workspace(self) -> int:
        """Bytes of a worker's scratch that the kernel overwrites: one more pointer, after the inputs, where not 0."""
        return 0

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Constant input `i` as the kernel reads it: here, as its operand lies. The same bytes for all shape classes of
        an operator."""
        block = self.ins[i].block
        return to_blocked(array, block) if block > 1 else np.ascontiguousarray(array)

    @abstractmethod
    def emit(self, f: FunctionEmitter) -> None:
        """Writes the kernel's body; the caller adds the return."""


_REGISTRY: Registry[Callable[..., type[Kernel]]] = Registry("CPU")
kernel_for = _REGISTRY.register
"""Registers a chooser, `choose(op, ins, out, isa) -> type[Kernel]`, for the given operator classes."""


def choose_kernel(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """The kernel class for an operator. Raises LookupError where none takes these operands."""
    return _REGISTRY.chooser(op)(op, ins, out, isa)


def emit_module(kernel: Kernel, name: str) -> ir.Module:
    """The kernel alone in a module, under `name`."""
    module = ir.Module(name)
    f = FunctionEmitter(module, name)
    kernel.emit(f)
    f.finish()
    return module
