"""What steps of tables, and calls of a library, read and write of each tensor, and where that lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from brickrt.ops.cuda.operand import Operand
from brickrt.ops.types import Boxes
from brickrt.runtime.cuda.kernels.kernel_context import ARENA, SCRATCH
from tests.support.verify.order import Order
from tests.support.verify.steps import StepGroup
from tests.support.verify.types import Expected, OperandView, Use, distinct, fail, first


@dataclass(frozen=True, eq=False)
class TensorAccess:
    """Operand `k` of steps, which is `part` of a tensor."""

    steps: StepGroup
    k: int
    part: OperandView

    @property
    def operand(self) -> Operand:
        return self.steps.like.operands[self.k]

    @property
    def origins(self) -> np.ndarray:
        """Where the tensor begins, in bytes, [n]."""
        strides = np.asarray(self.operand.strides, np.int64) * self.operand.dtype.itemsize
        return self.steps.origins[:, self.k] - int(np.asarray(self.part.start, np.int64) @ strides)

    @property
    def bases(self) -> np.ndarray:
        return self.steps.bases[:, self.k]

    def boxes(self) -> Boxes:
        """What is read or written of the tensor, by its own indices."""
        region, start = self.steps.region(self.k), np.asarray(self.part.start, np.int64)
        return Boxes(region.lo + start, region.hi + start)


@dataclass(eq=False)
class TensorHistory:
    """All that happens to a tensor; steps that `update` it read it where they write it."""

    name: str
    order: Order
    writes: list[TensorAccess] = field(default_factory=list)
    updates: list[TensorAccess] = field(default_factory=list)
    reads: list[TensorAccess] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)

    @property
    def all(self) -> list[TensorAccess]:
        return [*self.writes, *self.updates, *self.reads]

    def launches(self, accesses: Sequence[TensorAccess], writes: bool | None = None) -> np.ndarray:
        """Those of accesses, and of the library's uses that are writes, or are not."""
        found = [self.order.launch_of[access.steps.tasks] for access in accesses]
        calls = [use.launch for use in self.uses if writes is None or use.writes == writes]
        return self.order.distinct(np.concatenate([np.asarray(calls, np.int64), *found]))

    @cached_property
    def users(self) -> np.ndarray:
        return self.launches(self.all)

    @cached_property
    def writers(self) -> np.ndarray:
        return self.launches([*self.writes, *self.updates], True)

    @cached_property
    def bytes(self) -> tuple[int, int]:
        """The first in the arena that is written, and the one after the last."""
        found = [access.steps.bytes_of(0) for access in self.writes]
        starts = [int(start.min()) for start, _ in found] + [use.start for use in self.uses if use.writes]
        ends = [int(end.max()) for _, end in found] + [use.end for use in self.uses if use.writes]
        return min(starts), max(ends)

    @cached_property
    def begins(self) -> tuple[int, int]:
        """Launch and task in which it is first written."""
        launch = int(self.writers[0])
        tasks = self.tasks([*self.writes, *self.updates], launch)
        return launch, int(tasks[0]) if len(tasks) else -1

    def tasks(self, accesses: Sequence[TensorAccess], launch: int) -> np.ndarray:
        """The tasks of these accesses in one launch, ascending."""
        found = [access.steps.tasks[self.order.launch_of[access.steps.tasks] == launch] for access in accesses]
        return distinct(np.concatenate(found)) if found else np.zeros(0, np.int64)


def find_tensors(steps: Sequence[StepGroup], order: Order, expected: Expected) -> dict[str, TensorHistory]:
    """Tensors by name, each at one place; those in scratch are at one base."""
    found: dict[str, TensorHistory] = {}
    for some in steps:
        parts = [(k, part) for k, part in enumerate(some.like.parts) if part is not None]
        own = some.like.parts[0].tensor if some.like.parts[0] else None
        for k, part in parts:
            tensor = found.setdefault(part.tensor, TensorHistory(part.tensor, order))
            updates = any(k and part.tensor == own for k, part in parts)
            which = tensor.reads if k else tensor.updates if updates else tensor.writes
            which.append(TensorAccess(some, k, part))
    for use in expected.uses:
        if use.tensor is not None:
            found.setdefault(use.tensor, TensorHistory(use.tensor, order)).uses.append(use)
    for tensor in found.values():
        _check_place(tensor, expected)
    return found


def in_scratch(tensor: TensorHistory) -> bool:
    """Whether each block has its own."""
    return bool(tensor.all) and int(tensor.all[0].bases[0]) == SCRATCH


def _check_place(tensor: TensorHistory, expected: Expected) -> None:
    base = expected.io.get(tensor.name, SCRATCH if in_scratch(tensor) else ARENA)
    origin = 0 if tensor.name in expected.io else None
    for access in tensor.all:
        if (i := first(access.bases != base)) is not None:
            fail(f"{access.steps.where(i)} finds '{tensor.name}' at base {access.bases[i]}, not {base}")
        if base == SCRATCH:
            continue
        origins = access.origins
        origin = int(origins[0]) if origin is None else origin
        if (i := first(origins != origin)) is not None:
            fail(f"{access.steps.where(i)} finds '{tensor.name}' at byte {origins[i]}, not {origin}")
