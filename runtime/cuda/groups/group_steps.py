"""What kernels do for a group of bricks, besides the calls of a library: each piece of a brick is a block's task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from brickrt.graph.ir import Node
from brickrt.ops.base import Op
from brickrt.ops.cuda.cudnn.coverage import Coverage
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.expr import const
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Reorder
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.row_bands import bands_of
from brickrt.runtime.cuda.groups.cudnn_layers import Places
from brickrt.runtime.cuda.groups.group_buffers import GroupBuffers, GroupStage
from brickrt.runtime.cuda.groups.group_geometry import outside
from brickrt.runtime.cuda.kernels.kernel_context import ARENA
from brickrt.runtime.cuda.schedule.argument_table import Origin, RecordRows, Records, byte_offsets
from brickrt.runtime.lowering.task_graph import Allocation, Steps

ELEMENTS, PRODUCT = 4096, 16384  # of a piece; of one of a product


@dataclass(frozen=True, eq=False)
class NodeWork:
    """Steps of a node some of whose tensors lie at `places`."""

    steps: Steps
    places: Mapping[str, Allocation]

    @property
    def tasks(self) -> np.ndarray:
        return self.steps.tasks

    def rows(self, records: Records) -> RecordRows:
        return records.where(self.places).add(self.steps)


@dataclass(frozen=True, eq=False)
class RestWork(NodeWork):
    """Steps of what is left of a node after a share of it, which a library computed, there or in the output."""

    share: Coverage
    product: tuple[Operand, Origin] | None = None

    def rows(self, records: Records) -> RecordRows:
        return records.where(self.places).add_rest(self.steps, self.share, self.product)


@dataclass(frozen=True, eq=False)
class OpWork:
    """Steps of an operator for the sake of `node`, on operands at origins, of which the output is the first."""

    node: Node
    op: Op
    operands: tuple[Operand, ...]
    origins: tuple[Origin, ...]
    boxes: Boxes
    tasks: np.ndarray

    def rows(self, records: Records) -> RecordRows:
        ranks = np.zeros(len(self.tasks), np.int64)
        return records.of_op(self.node, self.op, self.operands, self.origins, self.boxes, self.tasks, ranks)


GroupWork = NodeWork | OpWork


@dataclass(frozen=True, eq=False)
class WorkPart:
    """Index of the rows that a work becomes, its tasks, and of which brick of the room each is."""

    row: int
    tasks: np.ndarray
    bricks: np.ndarray


@dataclass
class Works:
    """`found` are all works so far, whose rows are numbered from `row` on, and their tasks from `task` on."""

    records: Places
    row: int
    task: int
    found: list[GroupWork] = field(default_factory=list)

    def of(self, room: GroupBuffers, stage: GroupStage) -> list[WorkPart]:
        """What kernels do in a stage of all groups."""
        if stage.kind == "call":
            return []
        if stage.kind in ("node", "rest"):
            return [self._node(room, stage)]
        if stage.kind == "scatter":
            return [self._copy(room, stage)]
        if stage.kind == "crop":
            return [self._crop(room, stage)]
        parts = [self._copy(room, stage)] if stage.kind == "gather" else []
        numbers, boxes = outside(
            room.bricks.held(stage.tensor), self.records.tasks.plan.graph.types[stage.tensor].shape
        )
        return [*parts, self._fill(room, stage, numbers, boxes)] if len(numbers) else parts

    def rest_of(self, steps: Steps, share: Coverage) -> WorkPart:
        """What is left of a whole layer."""
        part = self._new(np.arange(len(steps.tasks)))
        self.found.append(RestWork(replace(steps, tasks=part.tasks), {}, share))
        return part

    def _new(self, bricks: np.ndarray) -> WorkPart:
        part = WorkPart(self.row + len(self.found), self.task + np.arange(len(bricks)), bricks)
        self.task += len(bricks)
        return part

    def _node(self, room: GroupBuffers, stage: GroupStage) -> WorkPart:
        """The node's own kernel, or that of what is left of it, where bricks have what it reads inside of them."""
        tasks, held = self.records.tasks, room.bricks.inner
        node, left = tasks.plan.graph.nodes[stage.node], stage.kind == "rest"
        product = isinstance(node.op, Conv | ConvTranspose | MatMul) and not left
        bricks, boxes = cut(room, room.bricks.computed(stage.tensor), PRODUCT if product else ELEMENTS)
        part = self._new(bricks)
        read = node.inputs[room.bricks.read(stage.node) :]
        names = {tasks.root(name) for name in (*read, node.output)} & held
        origins = {name: room.origins(name)[bricks] for name in names}
        steps = Steps(stage.node, boxes, part.tasks, np.zeros(len(bricks), np.int64), origins)
        places = {name: room.place(name) for name in names}
        self.found.append(self._rest(room, stage, steps, places, bricks) if left else NodeWork(steps, places))
        return part

    def _rest(
        self, room: GroupBuffers, stage: GroupStage, steps: Steps, places: Mapping[str, Allocation], bricks: np.ndarray
    ) -> RestWork:
        operand, start = room.product(stage.node), room.place(room.bricks.result(stage.node)).offset
        first = room.origins(stage.tensor)[bricks]
        origin = ARENA, start - byte_offsets(operand, first)
        return RestWork(steps, places, room.bricks.library[stage.node], (operand, origin))

    def _copy(self, room: GroupBuffers, stage: GroupStage) -> WorkPart:
        """From where a tensor is stored whole to the bricks, or back."""
        plan, name = self.records.tasks.plan, stage.tensor
        first = np.arange(0, len(room.bricks), room.sharing(name))
        pieces, boxes = cut(room, room.bricks.computed(name).take(first), ELEMENTS)
        bricks = first[pieces]
        part = self._new(bricks)
        whole, own = self.records.operand(name), room.operand(name)
        steps = Steps(stage.node, boxes, part.tasks, np.zeros(len(bricks), np.int64), {})
        operands = own, whole
        origins = _origin(room, name, own, bricks), self.records.origin(name, whole, steps)
        op = Reorder(room.bricks.layout(name))
        if stage.kind == "scatter":
            op, operands, origins = Reorder(plan.layouts[name]), operands[::-1], origins[::-1]
        self.found.append(OpWork(plan.graph.nodes[stage.node], op, operands, origins, boxes, part.tasks))
        return part

    def _crop(self, room: GroupBuffers, stage: GroupStage) -> WorkPart:
        """A window of a tensor's buffers, with its zeros, in buffers of its own; by their indices."""
        box, store = room.bricks.reads[stage.read], room.bricks.stores[stage.tensor]
        lo = np.zeros_like(box.lo)
        lo[:, 0] = room.slot_of(stage.read) * box.extents[0, 0]
        bricks, boxes = cut(room, Boxes(lo, lo + box.extents), ELEMENTS)
        part, own = self._new(bricks), room.packed(stage.read)
        wide = room.operand(stage.tensor)
        first = box.lo - store.lo
        first[:, 0] += room.slot_of(stage.read) * (store.extents[0] - box.extents[0, 0])
        where = room.place(stage.tensor).offset + byte_offsets(wide, first[bricks])
        origins = (ARENA, np.full(len(bricks), room.place(stage.read).offset, np.int64)), (ARENA, where)
        node = self.records.tasks.plan.graph.nodes[stage.node]
        operands = own, replace(wide, type=own.type)
        self.found.append(OpWork(node, Reorder("last"), operands, origins, boxes, part.tasks))
        return part

    def _fill(self, room: GroupBuffers, stage: GroupStage, numbers: np.ndarray, boxes: Boxes) -> WorkPart:
        """Zeros where windows reach over the ends of the tensor: in its buffers, whose indices never are negative."""
        part, operand, place = self._new(numbers), room.packed(stage.tensor), room.place(stage.tensor)
        shift = room.origins(stage.tensor)[numbers]
        boxes = Boxes(boxes.lo - shift, boxes.hi - shift)
        where = ARENA, np.full(len(boxes), place.offset, np.int64)
        node = self.records.tasks.plan.graph.nodes[stage.node]
        self.found.append(OpWork(node, Map(const(0, operand.dtype)), (operand,), (where,), boxes, part.tasks))
        return part


def _origin(room: GroupBuffers, name: str, operand: Operand, bricks: np.ndarray) -> Origin:
    return ARENA, room.place(name).offset - byte_offsets(operand, room.origins(name)[bricks])


def cut(room: GroupBuffers, boxes: Boxes, elements: int) -> tuple[np.ndarray, Boxes]:
    """Boxes in pieces of about so many elements, along the first dimension of space, or of matrices the rows: of which
    box each is, and it."""
    axis = boxes.rank - 2 if room.bricks.matrices else 2 if boxes.rank > 2 else 0
    rows = int(boxes.extents[:, axis].max(initial=1))
    row = int(boxes.volumes.max(initial=1)) // max(1, rows)
    band = max(1, elements // max(1, row))
    count = max(1, -(-rows // band))
    pieces, of = bands_of(boxes, band, count, axis), np.repeat(np.arange(len(boxes)), count)
    some = np.flatnonzero(pieces.volumes)
    return of[some], pieces.take(some)
