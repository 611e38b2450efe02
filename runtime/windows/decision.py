"""What is written in place of blended values: the class of each element, or whether it is above a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.ops.types import TensorType

CHANNELS = 1  # the axis of classes


@dataclass(frozen=True)
class Decision:
    """The position of the greatest along the axis `argmax`, or 1 where a value is greater than `threshold`; of which
    one is given at most. It is made of blended values, not blended itself."""

    argmax: int | None = None
    threshold: float | None = None

    @property
    def given(self) -> bool:
        """Whether one is given."""
        return self.argmax is not None or self.threshold is not None

    def check(self, outputs: int, rank: int) -> None:
        """Refuses what makes no sense for the model's outputs."""
        if self.given and outputs != 1:
            raise BrickError(f"the model has {outputs} outputs: --argmax and --threshold are for one: leave them out")
        if self.argmax is not None and self.argmax % rank != CHANNELS:
            raise BrickError(f"--argmax {self.argmax}: classes of blended windows are along axis 1: give --argmax 1")
        if self.threshold is not None and math.isnan(self.threshold):
            raise BrickError(f"--threshold {self.threshold}: is no number: give one")

    def of_type(self, kind: TensorType) -> TensorType:
        """The type of what is written for blended values of the type `kind`."""
        if self.argmax is not None:
            classes = np.dtype(np.uint8 if kind.shape[CHANNELS] <= 256 else np.int32)
            return TensorType((kind.shape[0], 1, *kind.shape[2:]), classes)
        return kind if self.threshold is None else TensorType(kind.shape, np.dtype(np.uint8))

    def made(self, values: np.ndarray) -> np.ndarray:
        """What is written for blended values [1, channels, …]."""
        if self.argmax is not None:
            classes = self.of_type(TensorType(values.shape, values.dtype)).dtype
            return np.argmax(values, axis=CHANNELS, keepdims=True).astype(classes)
        return values if self.threshold is None else (values > self.threshold).astype(np.uint8)

    def nbytes(self, elements: int) -> int:
        """Bytes taken while it is made for so many elements."""
        return elements * 12 if self.argmax is not None else 2 * elements if self.threshold is not None else 0


NO_DECISION = Decision()  # values are written as they are
