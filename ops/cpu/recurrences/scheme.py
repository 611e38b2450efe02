"""What identifies a kernel of a recurrent layer, how it packs its weights, and what its code need not know."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.words.byte_dot import BYTES
from brickrt.ops.cpu.products.words.words import pack_words
from brickrt.ops.operators.recurrence import BATCH, DIRECTION, Recurrence
from brickrt.ops.types import Boxes

MOST_ROWS = 8  # of a register tile: more code gains nothing
SUMS_ABREAST = 8  # of one sequence: a processor begins two multiply-adds in each of the four cycles that one takes
LINE = 64  # bytes of a cache line
FLOAT_BYTES = 4
MIDDLES = {2: 128, 3: 64}
"""What is added to the last of so many planes of bytes, to make it unsigned."""


@dataclass(frozen=True)
class RecurrenceScheme(Kernel):
    """All steps of time for the directions and sequences of a box."""

    op: Recurrence

    sized: ClassVar[bool] = True

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """One class. Raises ValueError for boxes that hold part of the states or of time."""
        whole = [d for d in range(len(out.shape)) if d not in (DIRECTION, BATCH)]
        full = boxes.volumes > 0
        if np.any(boxes.lo[full][:, whole]) or np.any(boxes.hi[full][:, whole] != np.array(out.shape)[whole]):
            raise ValueError(f"{op.name}: a box must hold all states, all of time and all elements of a state")
        return super().classify(op, ins, out, boxes, isa)

    def open_dims(self, i: int | None) -> Sequence[int]:
        """See `Kernel`: how long sequences are, and how many."""
        if i is None:
            return 1, BATCH
        if i == 0 or self.is_mask(i):
            return 0, 1
        return () if i < self.op.main else (1,)

    def is_mask(self, i: int) -> bool:
        """Whether input `i` tells which steps of time a sequence has."""
        return self.op.masked and i == self.op.main - 1

    @property
    def hidden(self) -> int:
        """Elements of a state."""
        return self.out.shape[-1]

    @property
    def tiles(self) -> int:
        """Vectors of a state's elements."""
        return -(-self.hidden // self.lanes)

    @property
    def gate_ranges(self) -> tuple[range, ...]:
        """Gates whose weights multiply the same vectors: all, or all but the last, then the last."""
        gates = self.op.gates
        return (range(gates),) if self.op.reset is None else (range(gates - 1), range(gates - 1, gates))

    def row_tiles(self, gates: range) -> tuple[int, ...]:
        """How many sequences a register tile may have, most first: one sum of each for every gate."""
        if self.out.shape[BATCH] == 1:
            return (1,)
        most = min(MOST_ROWS, max(1, self.sums // self.sums_each(gates)))
        return (most, 2, 1) if most > 2 else (most, 1) if most > 1 else (1,)

    def tiles_abreast(self, gates: range) -> int:
        """Vectors of a state's elements that a register tile of few sequences has."""
        alone = self.out.shape[BATCH] == 1
        return max(2, SUMS_ABREAST // self.sums_each(gates)) if alone else 2

    @property
    def sums(self) -> int:
        """Registers for sums; others hold weights and an element of a state."""
        return self.isa.registers * 3 // 4

    def sums_each(self, gates: range) -> int:
        """Registers that the sums of a vector of elements take, of one sequence."""
        return len(gates) * (self.planes if self.op.scaled else 1)

    @property
    def planes(self) -> int:
        """Bytes that weights of bytes multiply for each element of the state."""
        return self.op.state_bytes

    @property
    def words(self) -> int:
        """Words of a plane of a state's bytes."""
        return -(-self.hidden // BYTES)

    @property
    def plane(self) -> int:
        """Bytes from one plane of a sequence to the next."""
        return -(-self.hidden // LINE) * LINE

    @property
    def kept_bytes(self) -> int:
        """Bytes of what the gates before the last leave for it, of a sequence: their products, then the reset state."""
        if self.op.reset is None:
            return 0
        return -(-self.op.gates * self.tiles * self.lanes * FLOAT_BYTES // LINE) * LINE

    @property
    def room(self) -> int:
        """Bytes of the workspace of a sequence: `kept_bytes`, then the bytes of its state, and their unit in a line of
        its own."""
        return self.kept_bytes + (self.planes * self.plane + LINE if self.op.scaled else 0)

    @property
    def workspace(self) -> int:
        """The room of each sequence."""
        return self.out.shape[BATCH] * self.room

    @property
    def weight_rows(self) -> int:
        """Vectors of packed weights for each gate and vector of elements."""
        return 1 + self.words if self.op.scaled else self.hidden

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Weights [D, H, G·H] → [D, tile, H, G, lanes], one such behind the other for each of `gate_ranges`, others
        [D, G·H] → [D, tile, G, lanes], zero beyond H. Of bytes along H four are a word, and the first word of each
        element is what its sum begins with."""
        if not 0 < i < self.op.main or self.is_mask(i):
            return super().pack(i, array)
        if i == 1 and self.op.scaled:
            begun = -MIDDLES[self.planes] * array.sum(1, dtype=np.int32, keepdims=True)
            array = np.concatenate([begun, pack_words(array, 1)], axis=1)
        split = array.reshape(*array.shape[:-1], self.op.gates, self.hidden)
        missing = self.tiles * self.lanes - self.hidden
        padded = np.pad(split, [(0, 0)] * (split.ndim - 1) + [(0, missing)])
        tiled = padded.reshape(*padded.shape[:-1], self.tiles, self.lanes)
        packed = np.moveaxis(tiled, -2, 1)
        if i > 1:
            return np.ascontiguousarray(packed)
        parts = [packed[..., gates.start : gates.stop, :] for gates in self.gate_ranges]
        return np.concatenate([part.reshape(len(array), -1) for part in parts], axis=1)

    def packing(self, i: int) -> Hashable:
        """See `Kernel`: gates, and elements of a state."""
        return super().packing(i), self.op.gates, self.hidden

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        if not 0 < i < self.op.main or self.is_mask(i):
            return super().packed_elements(i)
        shape = self.ins[i].shape
        rows = self.weight_rows if i == 1 else 1
        return shape[0] * rows * self.op.gates * self.tiles * self.lanes
