"""What the checks of `validate.py` are given: tables, and what they must do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cuda.operand import Operand


@dataclass(frozen=True)
class CheckedLaunch:
    """Tasks that one kernel launch runs, or a call of a library.

    By tickets, tasks may wait for others of the launch, and say that they are complete; in turn they do neither.
    Their records number kernels from `kernels.start` on. The launches `after`, all earlier ones, are complete before it
    begins. Blocks have `scratch` or not, which is theirs alone where it is `fused`, in shared memory.
    """

    first: int
    count: int
    kernels: range
    tickets: bool = False
    after: tuple[int, ...] = ()
    scratch: bool = False
    fused: bool = False


@dataclass(frozen=True, eq=False)
class CheckedTables:
    """As the words of `Context` point to them; launches in the order in which they are issued."""

    task_at: np.ndarray
    records: np.ndarray
    dep_offsets: np.ndarray
    deps: np.ndarray
    launches: Sequence[CheckedLaunch]

    def __len__(self) -> int:
        return len(self.task_at) - 1


@dataclass(frozen=True)
class OperandView:
    """An operand's element 0 is element `start` of what lies at the beginning of the stored `tensor`, in strides of the
    operand."""

    tensor: str
    start: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """What steps of one sort must look like: those of `node` that call kernel `kernel`.

    `operands` has the output first, then the inputs of `op`; after them come addresses of `tables` constant arrays.
    `constant[k]`: the operand is one. `parts[k]` says of which tensor it is; None of constants, and of buffers that
    groups of bricks have in the arena.
    """

    node: str
    kernel: int
    op: Op
    operands: tuple[Operand, ...]
    constant: tuple[bool, ...]
    parts: tuple[OperandView | None, ...]
    tables: int = 0

    @property
    def words(self) -> int:
        """Operands of a record."""
        return len(self.operands) + self.tables

    @property
    def rank(self) -> int:
        return self.operands[0].rank


@dataclass(frozen=True)
class Use:
    """A call of a library, launch `launch`, reads or writes bytes `start` … `end` − 1 of the arena: all of `tensor`, or
    if that is None buffers of bricks."""

    launch: int
    node: str
    tensor: str | None
    writes: bool
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Expected:
    """What tables must do.

    Steps, in the order of the tables, are of `tasks`, and like `signatures[like]`, [steps]. The tables' task t is task
    `owner[t]` of the graph, or a part of it; there task g waits for `deps[dep_offsets[g]:dep_offsets[g + 1]]`.
    `base_bytes` are the sizes of what the bases point to; of scratch, that of one slot. Below byte `arena` there are
    tensors, from there on buffers of bricks. `constants` are the ascending offsets at which constants begin, `io` the
    bases of the caller's tensors; `outputs` are to be written.
    """

    signatures: Sequence[Signature]
    tasks: np.ndarray
    like: np.ndarray
    owner: np.ndarray
    dep_offsets: np.ndarray
    deps: np.ndarray
    base_bytes: Sequence[int]
    arena: int
    constants: np.ndarray
    io: Mapping[str, int]
    outputs: Sequence[str]
    uses: Sequence[Use] = ()


def fail(text: str) -> NoReturn:
    """Ends the checks with this line."""
    raise ValueError(text)


def first(broken: np.ndarray | np.bool_) -> int | None:
    """Index of the first true element, if any."""
    broken = np.asarray(broken)
    k = int(broken.argmax()) if broken.size else 0
    return k if broken.size and broken[k] else None


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Each once, ascending."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate([np.ones(min(len(ordered), 1), bool), ordered[1:] != ordered[:-1]])]
