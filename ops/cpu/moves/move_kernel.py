"""What kernels that copy share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.moves.spans import Mover, StridedMemory, raw, whole_axes
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.types import Boxes


class MoveKernel(Kernel):
    """Kernels that copy. `shape_class` marks the axes that all boxes of the class cover completely."""

    sized: ClassVar[bool] = True

    @property
    def least_open(self) -> int:
        """See `Kernel`: among plain tensors, extents up to the lanes of a vector are known, for which there is less
        code; where channels lie in blocks, the innermost loop is over those of a block."""
        return 2 if any(operand.block > 1 for operand in (self.out, *self.ins)) else 17

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Boxes by the axes that they cover."""
        return whole_axes(boxes, out.shape)

    def mover(self, f: FunctionEmitter) -> Mover:
        """Emits copies of elements as wide as the output's."""
        return Mover(f, raw(self.out.dtype), self.isa)

    def memories(self, f: FunctionEmitter) -> tuple[StridedMemory, StridedMemory]:
        """The memory of input 0, and that of the output."""
        return StridedMemory(f.pointer(1)), StridedMemory(f.pointer(0))
