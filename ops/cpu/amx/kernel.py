"""The kernels of products in tile registers: what `scheme.py` describes, with the code that computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.amx.body import AmxBody
from brickrt.ops.cpu.amx.scheme import AmxScheme
from brickrt.ops.cpu.amx.sizes import joins_taps
from brickrt.ops.cpu.amx.variants.brought import BroughtKernel
from brickrt.ops.cpu.amx.variants.joined import JoinedKernel
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import PrefetchedOperand
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.product_types import F16
from brickrt.ops.types import Boxes


class AmxKernel(AmxScheme):
    """A convolution or a matrix product with constant weights."""

    def emit(self, f: FunctionEmitter) -> None:
        """See `AmxBody`."""
        AmxBody(self, f).emit()


@dataclass(frozen=True)
class AmxMaker:
    """Makes the kernel of a product: those of few channels, and of second factors that are brought into tiles, are
    some of their own."""

    prefetches: ClassVar[bool] = AmxKernel.prefetches

    def __call__(
        self,
        op: Op,
        ins: tuple[Operand, ...],
        out: Operand,
        isa: Isa,
        packed: tuple[bool, ...],
        shape_class: tuple[int, ...],
        prefetched: tuple[PrefetchedOperand, ...] = (),
    ) -> AmxScheme:
        """The kernel of a class of `classify`."""
        assert isinstance(op, Product)
        joined = isinstance(op, Conv) and joins_taps(ins[0].dtype, ins[0].shape[1], op.kernel, op.dilations)
        brought = not packed[1] or ins[1].dtype == F16
        kind = BroughtKernel if brought else JoinedKernel if joined else AmxKernel
        return kind(op, ins, out, isa, packed, shape_class, prefetched)

    def classify(
        self, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """See `Kernel`."""
        return AmxScheme.classify(op, ins, out, boxes, isa)
