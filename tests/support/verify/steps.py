"""Checks of single steps: that each is as its signature says, and reads and writes only where it may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from brickrt.ops.cuda.operand import Operand
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.bricks import row_offsets
from brickrt.runtime.cuda.kernels.kernel_context import ARENA, BASE_SHIFT, CONSTANTS, FIRST_IO, HEAD_WORDS, SCRATCH
from tests.support.verify.types import CheckedLaunch, CheckedTables, Expected, Signature, fail, first

_OUTPUT, _CONSTANT, _INPUT, _BUFFER = "output", "constant", "input", "buffer"


@dataclass(frozen=True, eq=False)
class StepGroup:
    """All steps of a signature: their tasks, their places `at` in the order of all steps, [n], and the boxes that they
    compute; `bases` and `origins`, in bytes, of all operands, [n, operands]."""

    like: Signature
    tasks: np.ndarray
    at: np.ndarray
    box: Boxes
    bases: np.ndarray
    origins: np.ndarray
    _regions: dict[int, Boxes] = field(default_factory=dict)
    _bytes: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def region(self, k: int) -> Boxes:
        """What is written of operand 0, or read of others."""
        if k not in self._regions:
            out, *ins = (operand.type for operand in self.like.operands)
            self._regions[k] = self.like.op.region(k - 1, self.box, ins, out) if k else self.box
        return self._regions[k]

    def bytes_of(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """First byte in its base that is read or written of an operand, and the one after the last; 0, 0 of none."""
        if k not in self._bytes:
            self._bytes[k] = reach(self.like.operands[k], self.origins[:, k], self.region(k))
        return self._bytes[k]

    def where(self, i: int) -> str:
        """A step in words."""
        ends = ", ".join(f"{a}:{b}" for a, b in zip(self.box.lo[i], self.box.hi[i], strict=True))
        return f"task {self.tasks[i]}: node '{self.like.node}', box [{ends}]"


def reach(operand: Operand, origins: np.ndarray, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
    """As `StepGroup.bytes_of`."""
    size, some = operand.dtype.itemsize, (boxes.hi > boxes.lo).all(axis=1)
    strides = np.asarray(operand.strides, np.int64) * size
    start, end = origins + boxes.lo @ strides, origins + (boxes.hi - 1) @ strides + size
    return np.where(some, start, 0), np.where(some, end, 0)


def find_steps(tables: CheckedTables, launch_of: np.ndarray, expected: Expected) -> list[StepGroup]:
    """The steps of every signature that has any, each checked by itself."""
    widths = np.array([HEAD_WORDS + s.words + s.rank for s in expected.signatures], np.int64)
    starts = row_offsets(widths[expected.like])
    bounds = starts[np.searchsorted(expected.tasks, np.arange(len(tables) + 1))]
    if (t := first(bounds != tables.task_at)) is not None:
        fail(f"task {max(t - 1, 0)}: its records end at word {tables.task_at[t]}, its steps at {bounds[t]}")
    by_like = np.argsort(expected.like, kind="stable")
    ends = np.searchsorted(expected.like[by_like], np.arange(len(expected.signatures) + 1))
    found = []
    for k, like in enumerate(expected.signatures):
        at = by_like[ends[k] : ends[k + 1]]
        if len(at):
            steps = _read(tables, launch_of, like, expected.tasks[at], at, starts[at])
            _check(steps, tables.launches, launch_of, expected)
            found.append(steps)
    return found


def _read(
    tables: CheckedTables, launch_of: np.ndarray, like: Signature, tasks: np.ndarray, at: np.ndarray, starts: np.ndarray
) -> StepGroup:
    """Steps of a signature, from their words."""
    words = tables.records[starts[:, None] + np.arange(HEAD_WORDS + like.words + like.rank)]
    kernels = np.array([launch.kernels.start for launch in tables.launches], np.int64)
    stops = np.array([launch.kernels.stop for launch in tables.launches], np.int64)
    called = kernels[launch_of[tasks]] + words[:, 0]
    if (i := first((called != like.kernel) | (called >= stops[launch_of[tasks]]))) is not None:
        fail(f"task {tasks[i]}: node '{like.node}' calls kernel {words[i, 0]}, which is not its own")
    if (i := first(words[:, 1] != like.words | like.rank << 32)) is not None:
        low, high = words[i, 1] & 0xFFFFFFFF, words[i, 1] >> 32
        fail(f"task {tasks[i]}: {low} operands, {high} dimensions are not those of node '{like.node}'")
    operands, box = words[:, HEAD_WORDS : HEAD_WORDS + like.words], words[:, HEAD_WORDS + like.words :]
    bases = (operands.view(np.uint64) >> np.uint64(BASE_SHIFT)).astype(np.int64)
    origins = operands << 64 - BASE_SHIFT >> 64 - BASE_SHIFT
    return StepGroup(like, tasks, at, Boxes(box << 32 >> 32, box >> 32), bases, origins)


def _check(steps: StepGroup, launches: Sequence[CheckedLaunch], launch_of: np.ndarray, expected: Expected) -> None:
    lo, hi, shape = steps.box.lo, steps.box.hi, steps.like.operands[0].shape
    if (i := first(((lo < 0) | (hi > np.asarray(shape, np.int64))).any(axis=1))) is not None:
        fail(f"{steps.where(i)} is not inside of {list(shape)}")
    if (i := first((hi <= lo).any(axis=1))) is not None:
        fail(f"{steps.where(i)} has no elements")
    for k, what in enumerate(_operands(steps.like)):
        base, name = steps.bases[:, k], f"{what} {k - 1}" if k else "output"
        if (i := first(~_may_be(base, what, expected))) is not None:
            fail(f"{steps.where(i)} has its {name} at base {base[i]} of {len(expected.base_bytes)}")
        rooms = np.array([launch.scratch for launch in launches], bool)
        if (i := first((base == SCRATCH) & ~rooms[launch_of[steps.tasks]])) is not None:
            fail(f"{steps.where(i)} has its {name} in scratch, which launch {launch_of[steps.tasks[i]]} does not have")
        if what == _CONSTANT:
            _check_constant(steps, k, name, expected)
        else:
            _check_bytes(steps, k, name, expected)


def _operands(like: Signature) -> Iterator[str]:
    """What the operands of a record are."""
    for k, (part, constant) in enumerate(zip(like.parts, like.constant, strict=True)):
        yield _CONSTANT if constant else _BUFFER if part is None else _INPUT if k else _OUTPUT
    for _ in range(like.tables):
        yield _CONSTANT


def _may_be(base: np.ndarray, what: str, expected: Expected) -> np.ndarray:
    """Whether operands may lie there, [n]."""
    if what == _CONSTANT:
        return np.asarray(base == CONSTANTS)
    if what == _BUFFER:
        return np.asarray(base == ARENA)
    outputs = [expected.io[name] for name in expected.outputs]
    ends = np.isin(base, outputs) if what == _OUTPUT else (base >= FIRST_IO) & (base < len(expected.base_bytes))
    return np.asarray((base == SCRATCH) | (base == ARENA) | ends)


def _check_constant(steps: StepGroup, k: int, name: str, expected: Expected) -> None:
    """Constants lie in one piece, whose bytes only the kernel that packed them knows."""
    if (i := first(~np.isin(steps.origins[:, k], expected.constants))) is not None:
        fail(f"{steps.where(i)} has its {name} at byte {steps.origins[i, k]} of the constants, where none begins")


def _check_bytes(steps: StepGroup, k: int, name: str, expected: Expected) -> None:
    operand, origins, base = steps.like.operands[k], steps.origins[:, k], steps.bases[:, k]
    align = max(operand.align, operand.dtype.itemsize)
    if (i := first(origins % align != 0)) is not None:
        fail(f"{steps.where(i)} has its {name} at byte {origins[i]}, no multiple of {align}")
    start, end = steps.bytes_of(k)
    room, least = np.asarray(expected.base_bytes, np.int64)[base], np.zeros_like(base)
    if steps.like.parts[k] is None:
        least = np.where(base == ARENA, expected.arena, least)
    else:
        room = np.where(base == ARENA, expected.arena, room)
    if (i := first((end > start) & (start < least) | (end > room))) is not None:
        where = f"bytes {start[i]}:{end[i]} of base {base[i]}, not in {least[i]}:{room[i]}"
        fail(f"{steps.where(i)} has its {name} at {where}")
