"""The argument table of a program: a record for every step, which says which kernel, where its operands are, its box.

`kernels/kernel_context.py` has the words of a record. Records are kept by the index of the steps that they are of; a
launch numbers its own kernels, so that equal launches of other programs have equal texts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

import brickrt.ops.cuda.all_kernels  # noqa: F401  (makes the kernels known)
from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Node
from brickrt.ops.base import Op
from brickrt.ops.cuda.cudnn.coverage import Coverage, inputs_of, remainder
from brickrt.ops.cuda.kernel import Kernel, Precision, make_kernel
from brickrt.ops.cuda.operand import VECTOR, Operand, dense
from brickrt.ops.cuda.shared_memory import most_with
from brickrt.ops.expr import arg
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product, parts_of
from brickrt.ops.types import Boxes, TensorType
from brickrt.plan.geometry.in_place import kept_bytes, read_in_place
from brickrt.runtime.cuda.kernels.kernel_context import (
    ARENA,
    BASE_SHIFT,
    CONSTANTS,
    FIRST_IO,
    HEAD_WORDS,
    MOST_BASES,
    MOST_OPERANDS,
    MOST_RANK,
    SCRATCH,
)
from brickrt.runtime.cuda.memory.constants import PackedConstants
from brickrt.runtime.lowering.operands import Bases, OperandPlaces, Origin
from brickrt.runtime.lowering.owned_constants import OwnedConstants
from brickrt.runtime.lowering.task_graph import Allocation, ScratchMoves, Steps, TaskGraph

Source = Origin | np.ndarray  # where an operand lies, or the constant that it is


@dataclass(frozen=True, eq=False)
class KernelRecords:
    """Records of steps that call one kernel, int64 [n, words], whose first word is set later; their tasks and
    positions."""

    kernel: Kernel
    tasks: np.ndarray
    positions: np.ndarray
    words: np.ndarray


class ExtraSteps(Protocol):
    """Steps that the task graph does not have."""

    def records(self, table: ArgumentTable) -> KernelRecords:
        """Their records, made by the table of their program."""
        ...


@dataclass
class ArgumentTable:
    """Makes all records: `records[i]` are those of the graph's steps i, then follow those of the `extra` steps;
    `row_moves[name]` are those that move rows of a scratch tensor.

    Steps whose index is in `skipped` get none: a library computes them, or extra steps do.
    """

    tasks: TaskGraph
    skipped: frozenset[int] = frozenset()
    extra: Sequence[ExtraSteps] = ()
    values: OwnedConstants | None = None
    packed: PackedConstants = field(default_factory=PackedConstants)
    records: list[KernelRecords | None] = field(default_factory=list)
    row_moves: dict[str, list[KernelRecords]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.tasks.plan.graph
        count = len(graph.inputs) + len(graph.outputs)
        if FIRST_IO + count > MOST_BASES:
            raise BrickError(f"the CUDA engine takes at most {MOST_BASES - FIRST_IO} inputs and outputs, not {count}")
        self.places, self._values = device_places(self.tasks), self.values or OwnedConstants(self.tasks)
        extra = [steps.records(self) for steps in self.extra]
        for i, steps in enumerate(self.tasks.steps):
            self.records.append(self.add(steps) if len(steps.boxes) and i not in self.skipped else None)
            for name in filter(self.places.is_constant, graph.nodes[steps.node].inputs):
                self._values.done(name)
        self.records += extra
        for moves in self.tasks.scratch_moves:
            self.row_moves.setdefault(moves.tensor, []).append(self._move_rows(moves))

    def of(self, i: int) -> list[KernelRecords]:
        """All records of steps `i`, those that move rows of the node's output included."""
        own = self.records[i]
        if i >= len(self.tasks.steps):
            return [own] if own else []
        steps = self.tasks.steps[i]
        moves = self.row_moves.get(self.tasks.plan.graph.nodes[steps.node].output, ())
        return [*([own] if own else ()), *moves]

    def placed(self, places: Mapping[str, Allocation]) -> ArgumentTable:
        """The same table for tensors that lie at other places."""
        other = copy.copy(self)
        other.tasks = replace(self.tasks, allocations={**self.tasks.allocations, **places})
        other.places = device_places(other.tasks)
        return other

    # ---- steps

    def add(self, steps: Steps) -> KernelRecords:
        """The records of one node's steps."""
        node = self.tasks.plan.graph.nodes[steps.node]
        held = [self._held(name, steps) for name in (node.output, *node.inputs)]
        if steps.node in self._in_place:
            held[1] = replace(held[1][0], shared=True), held[1][1]
        return self._add(steps, node.op, held)

    def add_rest(self, steps: Steps, share: Coverage, product: tuple[Operand, Origin] | None = None) -> KernelRecords:
        """The records of what a node does after its product, which a library left there, or in the output."""
        graph = self.tasks.plan.graph
        node, op = graph.nodes[steps.node], graph.nodes[steps.node].op
        assert isinstance(op, Product)
        out, left = self._held(node.output, steps), node.inputs[inputs_of(op, share, len(node.inputs)) :]
        others, parts = [self._held(name, steps) for name in left], parts_of(op)
        if op.bias and share == "product":
            (bias, source), *others = others
            if not isinstance(op, MatMul):
                bias = dense(TensorType((bias.shape[0], *[1] * (out[0].rank - 2)), bias.dtype))
            others = [*_parts(bias, source, parts, 0), *others]
        held = [out, *_parts(*(product or out), parts, 1), *others]
        return self._add(steps, remainder(op, share, graph.types[node.inputs[0]].dtype), held)

    def add_op(
        self,
        node: Node,
        op: Op,
        operands: Sequence[Operand],
        origins: Sequence[Origin],
        boxes: Boxes,
        tasks: np.ndarray,
        positions: np.ndarray,
    ) -> KernelRecords:
        """The records of an operator that is not the node's own, on operands of which the output is the first."""
        operands = [_aligned(operand, origin) for operand, origin in zip(operands, origins, strict=True)]
        kernel = self._kernel(node, op, operands, (False,) * (len(operands) - 1), boxes)
        return KernelRecords(kernel, tasks, positions, words_of(origins, boxes))

    def _held(self, name: str, steps: Steps) -> tuple[Operand, Source]:
        """A tensor that steps read or write."""
        operand = self.places.operand(name)
        constant = self.places.is_constant(name)
        return operand, self._values[name] if constant else self.places.origin(name, operand, steps)

    def _add(self, steps: Steps, op: Op, held: Sequence[tuple[Operand, Source]]) -> KernelRecords:
        """The records of an operator on tensors of which the output is the first."""
        node, n = self.tasks.plan.graph.nodes[steps.node], len(steps.boxes)
        constant = tuple(isinstance(source, np.ndarray) for _, source in held[1:])
        operands = [o if isinstance(source, np.ndarray) else _aligned(o, source) for o, source in held]
        kernel = self._kernel(node, op, operands, constant, steps.boxes)
        origins = [
            (CONSTANTS, np.full(n, self.packed.add_packed(kernel, k - 1, source)))
            if isinstance(source, np.ndarray)
            else source
            for k, (_, source) in enumerate(held)
        ]
        _check_sizes(node, len(held) + len(kernel.tables()), steps.boxes.rank)
        origins += [(CONSTANTS, np.full(n, self.packed.add(table))) for table in kernel.tables()]
        return KernelRecords(kernel, steps.tasks, steps.positions, words_of(origins, steps.boxes))

    def _move_rows(self, moves: ScratchMoves) -> KernelRecords:
        """The records that move rows inside the scratch of a tensor."""
        operand, origins = self.places.moved(moves)
        graph = self.tasks.plan.graph
        node = graph.nodes[graph.producers[moves.tensor]]
        op, operands = Map(arg(0, operand.dtype)), (operand, operand)
        return self.add_op(node, op, operands, origins, moves.boxes, moves.tasks, moves.positions)

    def _most_shared(self, node: Node) -> int:
        """Bytes of shared memory that the kernels of a node may count on."""
        return self._fused.get(node.output, self.tasks.plan.device.l1)

    @cached_property
    def _fused(self) -> dict[str, int]:
        """The same of the nodes of fused bricks, by what they compute."""
        plan, found = self.tasks.plan, dict[str, int]()
        for s in plan.subgraphs:
            if s.strategy == "fused":
                most = most_with(kept_bytes(plan.graph, plan.layouts, s.nodes, plan.options.precision))
                found |= {plan.graph.nodes[k].output: most for k in s.members}
        return found

    @cached_property
    def _in_place(self) -> frozenset[int]:
        """The nodes of fused bricks that read their first factor in place."""
        plan = self.tasks.plan
        fused = (s.nodes for s in plan.subgraphs if s.strategy == "fused")
        given = plan.graph, plan.layouts
        return frozenset(k for nodes in fused for k in read_in_place(*given, nodes, plan.options.precision))

    def _kernel(self, node: Node, op: Op, operands: Sequence[Operand], packed: Sequence[bool], boxes: Boxes) -> Kernel:
        """The kernel of `op` on operands of which the output is the first. Raises BrickError naming the node."""
        largest = tuple(int(e) for e in boxes.extents.max(axis=0, initial=0))
        how = precision_of(self.tasks), largest, self._most_shared(node)
        try:
            return make_kernel(op, operands[1:], operands[0], packed, *how)
        except LookupError as e:
            raise BrickError(f"node '{node.name}': {e.args[0]}; use --device cpu") from None


def device_places(tasks: TaskGraph) -> OperandPlaces[Operand]:
    """Where operands lie on the device. The alignment of slices, views and scratch is still to be found."""
    return OperandPlaces(tasks, dense, Bases(SCRATCH, ARENA, FIRST_IO))


def precision_of(tasks: TaskGraph) -> Precision:
    """How float32 products are computed."""
    return "tf32" if tasks.plan.options.precision == "tf32" else "fp32"


def words_of(origins: Sequence[Origin], boxes: Boxes) -> np.ndarray:
    """Records without the number of their kernel, int64 [n, words]."""
    n, rank, operands = len(boxes), boxes.rank, len(origins)
    words = np.empty((n, HEAD_WORDS + operands + rank), np.uint64)
    words[:, 1] = operands | rank << 32
    for k, (base, offsets) in enumerate(origins):
        mask = np.uint64((1 << BASE_SHIFT) - 1)
        words[:, HEAD_WORDS + k] = offsets.astype(np.int64).view(np.uint64) & mask | np.uint64(base << BASE_SHIFT)
    box = words[:, HEAD_WORDS + operands :]
    box[:] = boxes.lo.astype(np.uint64) | boxes.hi.astype(np.uint64) << np.uint64(32)
    return words.view(np.int64)


def _check_sizes(node: Node, operands: int, rank: int) -> None:
    """Raises BrickError for what does not fit in a record."""
    if operands > MOST_OPERANDS or rank > MOST_RANK:
        limits = f"at most {MOST_OPERANDS} tensors of {MOST_RANK} dimensions"
        raise BrickError(f"node '{node.name}': CUDA kernels take {limits}, not {operands} of {rank}; use --device cpu")


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
    """The operand with the alignment that its virtual origins have; bases begin at multiples of more."""
    return replace(operand, align=math.gcd(VECTOR, operand.align, int(np.gcd.reduce(origin[1], initial=0))))
