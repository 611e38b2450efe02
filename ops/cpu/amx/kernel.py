"""The kernel of products in tile registers: what `scheme.py` describes, with the code that computes it."""

from __future__ import annotations

from brickrt.ops.cpu.amx.body import AmxBody
from brickrt.ops.cpu.amx.scheme import AmxScheme
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter


class AmxKernel(AmxScheme):
    """A convolution or a matrix product with constant weights."""

    def emit(self, f: FunctionEmitter) -> None:
        """See `AmxBody`."""
        AmxBody(self, f).emit()
