"""The records of a program: for every step, which kernel, where its operands begin, and its box (words: kernel_context.py).

An operand is written as (base, byte offset) such that adding the strides of any index gives the element: the virtual
origin. Records are kept by the index of the steps that they are of; a launch numbers its own kernels, so that equal
launches of other programs have equal texts.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

import brickrt.ops.cuda.all_kernels  # noqa: F401  (makes the kernels known)
from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Node
from brickrt.ops.base import Op
from brickrt.ops.cuda.cudnn.coverage import Coverage, inputs_of, parts_of, remainder
from brickrt.ops.cuda.kernel import Kernel, Precision, make_kernel
from brickrt.ops.cuda.operand import VECTOR, Operand, dense
from brickrt.ops.expr import arg
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from brickrt.runtime.cuda.kernels.kernel_context import (
    ARENA,
    BASE_SHIFT,
    CONSTANTS,
    FIRST_END,
    HEAD_WORDS,
    MOST_BASES,
    MOST_OPERANDS,
    MOST_RANK,
    SCRATCH,
)
from brickrt.runtime.cuda.memory.constants import Constants
from brickrt.runtime.lowering.inplace_slices import start_of
from brickrt.runtime.lowering.task_graph import Allocation, ScratchMoves, Steps, TaskGraph

Origin = tuple[int, np.ndarray]  # base, byte offset per step
Source = Origin | np.ndarray  # of an operand, or the constant that it is


@dataclass(frozen=True, eq=False)
class RecordRows:
    """Records of the steps of one kernel, int64 [n, words], whose first word is still to be set; their tasks, ranks."""

    kernel: Kernel
    tasks: np.ndarray
    ranks: np.ndarray
    words: np.ndarray


class ExtraSteps(Protocol):
    """Steps that are not among the task graph's."""

    def rows(self, records: Records) -> RecordRows: ...


@dataclass
class Records:
    """`rows[i]` are those of the graph's steps i, then those of `works`; `carried[name]` those that move rows of a
    scratch tensor.

    Steps whose index is in `skipped` get none: others than kernels compute them, or `works` do.
    """

    tasks: TaskGraph
    skipped: frozenset[int] = frozenset()
    works: Sequence[ExtraSteps] = ()
    constants: Constants = field(default_factory=Constants)
    rows: list[RecordRows | None] = field(default_factory=list)
    carried: dict[str, list[RecordRows]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.tasks.plan.graph
        ends = len(graph.inputs) + len(graph.outputs)
        if FIRST_END + ends > MOST_BASES:
            raise BrickError(f"the CUDA engine takes at most {MOST_BASES - FIRST_END} inputs and outputs, not {ends}")
        left = Counter(name for steps in self.tasks.steps for name in graph.nodes[steps.node].inputs)
        made = [work.rows(self) for work in self.works]
        for i, steps in enumerate(self.tasks.steps):
            self.rows.append(self.add(steps) if len(steps.boxes) and i not in self.skipped else None)
            self.release(graph.nodes[steps.node].inputs, left)
        self.rows += made
        for carries in self.tasks.scratch_moves:
            self.carried.setdefault(carries.tensor, []).append(self.carry(carries))

    def of(self, i: int) -> list[RecordRows]:
        """All records of steps `i`, those that move rows of the node's output included."""
        own = self.rows[i]
        if i >= len(self.tasks.steps):
            return [own] if own else []
        steps = self.tasks.steps[i]
        moves = self.carried.get(self.tasks.plan.graph.nodes[steps.node].output, ())
        return [*([own] if own else ()), *moves]

    # ---- operands

    def operand(self, name: str) -> Operand:
        """How a tensor lies in memory; of parts, views and scratch the alignment is still to be found."""
        graph, layouts = self.tasks.plan.graph, self.tasks.plan.layouts
        kind = graph.types[name]
        if name in graph.constants:
            return dense(kind, layouts[name])
        if name in self.tasks.inplace_slices:
            return replace(self.operand(self.tasks.inplace_slices[name].source), type=kind)
        if self.tasks.root(name) != name:
            return dense(kind)
        return dense(kind, layouts[name], self.tasks.allocations[name].extents)

    def origin(self, name: str, operand: Operand, steps: Steps) -> Origin:
        """Where the virtual origin of a tensor is that is no constant."""
        root = self.tasks.root(name)
        place = self.tasks.allocations[root]
        offsets = np.full(len(steps.boxes), place.offset + self.shift(name, operand), np.int64)
        if place.kind in ("scratch", "group"):
            base = SCRATCH if place.kind == "scratch" else ARENA
            return base, offsets - byte_offsets(operand, steps.origins[root])
        if place.kind == "arena":
            return ARENA, offsets
        inputs = len(self.tasks.plan.graph.inputs)
        return FIRST_END + place.slot + (inputs if place.kind == "output" else 0), offsets

    def shift(self, name: str, operand: Operand) -> int:
        """Bytes from the origin of the stored tensor to that of a part of it."""
        return int(byte_offsets(operand, start_of(self.tasks.inplace_slices, name, operand.rank))[0])

    # ---- steps

    def add(self, steps: Steps) -> RecordRows:
        """The kernel and the records of one node's steps."""
        node = self.tasks.plan.graph.nodes[steps.node]
        return self._add(steps, node.op, [self.held(name, steps) for name in (node.output, *node.inputs)])

    def add_rest(self, steps: Steps, share: Coverage, product: tuple[Operand, Origin] | None = None) -> RecordRows:
        """Likewise of what a node does after its product, which a library left there, or in the output."""
        graph = self.tasks.plan.graph
        node, op = graph.nodes[steps.node], graph.nodes[steps.node].op
        assert isinstance(op, Conv | ConvTranspose | MatMul)
        out, left = self.held(node.output, steps), node.inputs[inputs_of(op, share, len(node.inputs)) :]
        others, parts = [self.held(name, steps) for name in left], parts_of(op)
        if op.bias and share == "product":
            (bias, source), *others = others
            if not isinstance(op, MatMul):
                bias = dense(TensorType((bias.shape[0], *[1] * (out[0].rank - 2)), bias.dtype))
            others = [*_parts(bias, source, parts, 0), *others]
        held = [out, *_parts(*(product or out), parts, 1), *others]
        return self._add(steps, remainder(op, share, graph.types[node.inputs[0]].dtype), held)

    def held(self, name: str, steps: Steps) -> tuple[Operand, Source]:
        """A tensor that steps read or write."""
        operand, constants = self.operand(name), self.tasks.plan.graph.constants
        return operand, constants[name] if name in constants else self.origin(name, operand, steps)

    def _add(self, steps: Steps, op: Op, held: Sequence[tuple[Operand, Source]]) -> RecordRows:
        """Records of an operator on tensors of which the output is the first."""
        node, n = self.tasks.plan.graph.nodes[steps.node], len(steps.boxes)
        packed = tuple(isinstance(source, np.ndarray) for _, source in held[1:])
        operands = [o if isinstance(source, np.ndarray) else _aligned(o, source) for o, source in held]
        kernel = self.kernel(node, op, operands, packed, steps.boxes)
        places = [
            (CONSTANTS, np.full(n, self.constants.add_packed(kernel, k - 1, source)))
            if isinstance(source, np.ndarray)
            else source
            for k, (_, source) in enumerate(held)
        ]
        self.check(node, len(held) + len(kernel.tables()), steps.boxes.rank)
        places += [(CONSTANTS, np.full(n, self.constants.add(table))) for table in kernel.tables()]
        return RecordRows(kernel, steps.tasks, steps.ranks, words_of(places, steps.boxes))

    def carry(self, carries: ScratchMoves) -> RecordRows:
        """The records that move rows inside the scratch of a tensor."""
        operand, start = self.operand(carries.tensor), self.tasks.allocations[carries.tensor].offset
        places: list[Origin] = [
            (SCRATCH, start - byte_offsets(operand, origins)) for origins in (carries.after, carries.before)
        ]
        node = self.tasks.plan.graph.nodes[self.tasks.plan.graph.producers[carries.tensor]]
        op, operands = Map(arg(0, operand.dtype)), (operand, operand)
        return self.of_op(node, op, operands, places, carries.boxes, carries.tasks, carries.ranks)

    def of_op(
        self,
        node: Node,
        op: Op,
        operands: Sequence[Operand],
        places: Sequence[Origin],
        boxes: Boxes,
        tasks: np.ndarray,
        ranks: np.ndarray,
    ) -> RecordRows:
        """Records of an operator that is not the node's own, on operands of which the output is the first."""
        operands = [_aligned(operand, at) for operand, at in zip(operands, places, strict=True)]
        kernel = self.kernel(node, op, operands, (False,) * (len(operands) - 1), boxes)
        return RecordRows(kernel, tasks, ranks, words_of(places, boxes))

    def where(self, places: Mapping[str, Allocation]) -> Records:
        """Records of the same program for tensors that lie elsewhere."""
        other = copy.copy(self)
        other.tasks = replace(self.tasks, allocations={**self.tasks.allocations, **places})
        return other

    def kernel(self, node: Node, op: Op, operands: Sequence[Operand], packed: Sequence[bool], boxes: Boxes) -> Kernel:
        """The kernel of `op` on operands of which the output is the first. Raises BrickError naming the node."""
        largest = tuple(int(e) for e in boxes.extents.max(axis=0, initial=0))
        precision: Precision = "tf32" if self.tasks.plan.options.precision == "tf32" else "fp32"
        try:
            return make_kernel(op, operands[1:], operands[0], packed, precision, largest)
        except LookupError as e:
            raise BrickError(f"node '{node.name}': {e.args[0]}; use --device cpu") from None

    def check(self, node: Node, operands: int, rank: int) -> None:
        """Raises BrickError for what a record has no room for."""
        if operands > MOST_OPERANDS or rank > MOST_RANK:
            limits = f"at most {MOST_OPERANDS} tensors of {MOST_RANK} dimensions"
            raise BrickError(
                f"node '{node.name}': CUDA kernels take {limits}, not {operands} of {rank}; use --device cpu"
            )

    def release(self, names: Sequence[str], left: Counter[str]) -> None:
        """Gives up constants that no step is still to read: a packed copy is what stays. Their types remain known."""
        constants = self.tasks.plan.graph.constants
        for name in names:
            left[name] -= 1
            if name in constants and not left[name]:
                constants[name] = np.broadcast_to(np.zeros((), constants[name].dtype), constants[name].shape)


def words_of(places: Sequence[Origin], boxes: Boxes) -> np.ndarray:
    """Records without the number of their kernel, int64 [n, words]."""
    n, rank, operands = len(boxes), boxes.rank, len(places)
    words = np.empty((n, HEAD_WORDS + operands + rank), np.uint64)
    words[:, 1] = operands | rank << 32
    for k, (base, offsets) in enumerate(places):
        mask = np.uint64((1 << BASE_SHIFT) - 1)
        words[:, HEAD_WORDS + k] = offsets.astype(np.int64).view(np.uint64) & mask | np.uint64(base << BASE_SHIFT)
    box = words[:, HEAD_WORDS + operands :]
    box[:] = boxes.lo.astype(np.uint64) | boxes.hi.astype(np.uint64) << np.uint64(32)
    return words.view(np.int64)


def byte_offsets(operand: Operand, indices: np.ndarray) -> np.ndarray:
    """Bytes from the virtual origin to elements [n, d]."""
    return indices @ np.asarray(operand.strides, np.int64) * operand.dtype.itemsize


def _parts(operand: Operand, source: Source, parts: int, axis: int) -> list[tuple[Operand, Source]]:
    """Equal parts of a tensor along an axis."""
    if parts == 1:
        return [(operand, source)]
    shape = list(operand.shape)
    shape[axis] //= parts
    part, each = replace(operand, type=TensorType(tuple(shape), operand.dtype)), shape[axis]
    if isinstance(source, np.ndarray):
        return [(part, piece) for piece in np.split(source, parts, axis)]
    step = each * operand.strides[axis] * operand.dtype.itemsize
    return [(part, (source[0], source[1] + k * step)) for k in range(parts)]


def _aligned(operand: Operand, origin: Origin) -> Operand:
    """The operand with what its virtual origins allow; bases begin at multiples of more."""
    return replace(operand, align=math.gcd(VECTOR, operand.align, int(np.gcd.reduce(origin[1], initial=0))))


@dataclass(frozen=True, eq=False)
class TaskTable:
    """`records` of all tasks in order; those of task t begin at word `task_at[t]`, int32 [T + 1]."""

    task_at: np.ndarray
    records: np.ndarray


def make_table(numbered: Sequence[tuple[RecordRows, int]], place: np.ndarray, tasks: int) -> TaskTable:
    """The records of `tasks` tasks, of which t is number `place[t]`; each rows' kernel has the number beside it."""
    none = np.zeros(0, np.int64)
    at = place[np.concatenate([none, *(rows.tasks for rows, _ in numbered)])]
    ranks = np.concatenate([none, *(rows.ranks for rows, _ in numbered)])
    sizes = np.concatenate([none, *(np.full(len(rows.tasks), rows.words.shape[1]) for rows, _ in numbered)])
    order = np.lexsort((ranks, at))
    starts = np.empty_like(sizes)
    starts[order] = np.cumsum(sizes[order]) - sizes[order]
    records, row = np.empty(int(sizes.sum()), np.int64), 0
    for rows, number in numbered:
        n, width = rows.words.shape
        words = rows.words.copy()
        words[:, 0] = number
        records[starts[row : row + n, None] + np.arange(width)] = words
        row += n
    task_at = np.concatenate([[0], np.cumsum(np.bincount(at, weights=sizes, minlength=tasks))])
    if task_at[-1] >= 1 << 31:
        raise BrickError("the plan has too many bricks for the CUDA engine: use larger ones with --brick")
    return TaskTable(task_at.astype(np.int32), records)
