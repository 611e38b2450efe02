"""The kernel of products with paired elements of K: what `scheme.py` describes, with the code that computes it."""

from __future__ import annotations

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.paired.body import PairedBody
from brickrt.ops.cpu.paired.scheme import PairedScheme


class PairedKernel(PairedScheme):
    """A matrix product with paired elements of K."""

    def emit(self, f: FunctionEmitter) -> None:
        """See `PairedBody`."""
        PairedBody(self, f).emit()
