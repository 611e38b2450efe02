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
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Reorder
from brickrt.ops.operators.product import Product
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.row_bands import bands_of
from brickrt.runtime.cuda.groups.group_buffers import GroupAction, GroupBuffers
from brickrt.runtime.cuda.groups.group_geometry import outside
from brickrt.runtime.cuda.kernels.kernel_context import ARENA
from brickrt.runtime.cuda.schedule.argument_table import ArgumentTable, KernelRecords
from brickrt.runtime.lowering.operands import OperandPlaces, Origin
from brickrt.runtime.lowering.task_graph import Allocation, Steps

ELEMENTS, PRODUCT = 4096, 16384  # of a piece; of one of a product


@dataclass(frozen=True, eq=False)
class NodeSteps:
    """Steps of a node some of whose tensors lie at `places`."""

    steps: Steps
    places: Mapping[str, Allocation]

    @property
    def tasks(self) -> np.ndarray:
        """The task of each step, [n]."""
        return self.steps.tasks

    def records(self, table: ArgumentTable) -> KernelRecords:
        """Those of the node's own kernel."""
        return table.placed(self.places).add(self.steps)


@dataclass(frozen=True, eq=False)
class RestSteps(NodeSteps):
    """Steps of what is left of a node after a share of it, which a library computed, there or in the output."""

    share: Coverage
    product: tuple[Operand, Origin] | None = None

    def records(self, table: ArgumentTable) -> KernelRecords:
        """Those of a kernel of what is left."""
        return table.placed(self.places).add_rest(self.steps, self.share, self.product)


@dataclass(frozen=True, eq=False)
class OpSteps:
    """Steps of an operator for the sake of `node`, on operands at origins, of which the output is the first."""

    node: Node
    op: Op
    operands: tuple[Operand, ...]
    origins: tuple[Origin, ...]
    boxes: Boxes
    tasks: np.ndarray

    def records(self, table: ArgumentTable) -> KernelRecords:
        """Those of the operator's kernel."""
        positions = np.zeros(len(self.tasks), np.int64)
        return table.add_op(self.node, self.op, self.operands, self.origins, self.boxes, self.tasks, positions)


GroupSteps = NodeSteps | OpSteps


@dataclass(frozen=True, eq=False)
class StepTasks:
    """Tasks of extra steps, which brick of the group's each is of, and the index that the steps get among all."""

    index: int
    tasks: np.ndarray
    bricks: np.ndarray


@dataclass
class GroupStepList:
    """`found` are all extra steps so far, which are numbered from `index` on, and their tasks from `task` on."""

    places: OperandPlaces[Operand]
    index: int
    task: int
    found: list[GroupSteps] = field(default_factory=list)

    def of(self, buffers: GroupBuffers, action: GroupAction) -> list[StepTasks]:
        """What kernels do in an action of all groups."""
        if action.kind == "call":
            return []
        if action.kind in ("node", "rest"):
            return [self._node(buffers, action)]
        if action.kind == "scatter":
            return [self._copy(buffers, action)]
        if action.kind == "crop":
            return [self._crop(buffers, action)]
        parts = [self._copy(buffers, action)] if action.kind == "gather" else []
        numbers, boxes = outside(
            buffers.bricks.held(action.tensor), self.places.tasks.plan.graph.types[action.tensor].shape
        )
        return [*parts, self._fill(buffers, action, numbers, boxes)] if len(numbers) else parts

    def rest_of(self, steps: Steps, share: Coverage) -> StepTasks:
        """What is left of a whole layer."""
        part = self._new(np.arange(len(steps.tasks)))
        self.found.append(RestSteps(replace(steps, tasks=part.tasks), {}, share))
        return part

    def _new(self, bricks: np.ndarray) -> StepTasks:
        part = StepTasks(self.index + len(self.found), self.task + np.arange(len(bricks)), bricks)
        self.task += len(bricks)
        return part

    def _node(self, buffers: GroupBuffers, action: GroupAction) -> StepTasks:
        """The node's own kernel, or that of what is left of it, where bricks have what it reads inside of them."""
        tasks, held = self.places.tasks, buffers.bricks.inner
        node, left = tasks.plan.graph.nodes[action.node], action.kind == "rest"
        product = isinstance(node.op, Product) and not left
        bricks, boxes = cut(buffers, buffers.bricks.computed(action.tensor), PRODUCT if product else ELEMENTS)
        part = self._new(bricks)
        read = node.inputs[buffers.bricks.read(action.node) :]
        names = {tasks.root(name) for name in (*read, node.output)} & held
        origins = {name: buffers.origins(name)[bricks] for name in names}
        steps = Steps(action.node, boxes, part.tasks, np.zeros(len(bricks), np.int64), origins)
        places = {name: buffers.place(name) for name in names}
        self.found.append(self._rest(buffers, action, steps, places, bricks) if left else NodeSteps(steps, places))
        return part

    def _rest(
        self,
        buffers: GroupBuffers,
        action: GroupAction,
        steps: Steps,
        places: Mapping[str, Allocation],
        bricks: np.ndarray,
    ) -> RestSteps:
        operand, start = buffers.product(action.node), buffers.place(buffers.bricks.result(action.node)).offset
        first = buffers.origins(action.tensor)[bricks]
        origin = ARENA, start - operand.byte_offsets(first)
        return RestSteps(steps, places, buffers.bricks.library[action.node], (operand, origin))

    def _copy(self, buffers: GroupBuffers, action: GroupAction) -> StepTasks:
        """From where a tensor is stored whole to the bricks, or back."""
        plan, name = self.places.tasks.plan, action.tensor
        first = np.arange(0, len(buffers.bricks), buffers.sharing(name))
        pieces, boxes = cut(buffers, buffers.bricks.computed(name).take(first), ELEMENTS)
        bricks = first[pieces]
        part = self._new(bricks)
        whole, own = self.places.operand(name), buffers.operand(name)
        steps = Steps(action.node, boxes, part.tasks, np.zeros(len(bricks), np.int64), {})
        operands = own, whole
        origins = _origin(buffers, name, own, bricks), self.places.origin(name, whole, steps)
        op = Reorder(buffers.bricks.layout(name))
        if action.kind == "scatter":
            op, operands, origins = Reorder(plan.layouts[name]), operands[::-1], origins[::-1]
        self.found.append(OpSteps(plan.graph.nodes[action.node], op, operands, origins, boxes, part.tasks))
        return part

    def _crop(self, buffers: GroupBuffers, action: GroupAction) -> StepTasks:
        """A window of a tensor's buffers, with its zeros, in buffers of its own; by their indices."""
        box, store = buffers.bricks.reads[action.read], buffers.bricks.stores[action.tensor]
        lo = np.zeros_like(box.lo)
        lo[:, 0] = buffers.slot_of(action.read) * box.extents[0, 0]
        bricks, boxes = cut(buffers, Boxes(lo, lo + box.extents), ELEMENTS)
        part, own = self._new(bricks), buffers.packed(action.read)
        wide = buffers.operand(action.tensor)
        first = box.lo - store.lo
        first[:, 0] += buffers.slot_of(action.read) * (store.extents[0] - box.extents[0, 0])
        where = buffers.place(action.tensor).offset + wide.byte_offsets(first[bricks])
        origins = (ARENA, np.full(len(bricks), buffers.place(action.read).offset, np.int64)), (ARENA, where)
        node = self.places.tasks.plan.graph.nodes[action.node]
        operands = own, replace(wide, type=own.type)
        self.found.append(OpSteps(node, Reorder("last"), operands, origins, boxes, part.tasks))
        return part

    def _fill(self, buffers: GroupBuffers, action: GroupAction, numbers: np.ndarray, boxes: Boxes) -> StepTasks:
        """Zeros where windows reach over the ends of the tensor: in its buffers, whose indices never are negative."""
        part, operand, place = self._new(numbers), buffers.packed(action.tensor), buffers.place(action.tensor)
        shift = buffers.origins(action.tensor)[numbers]
        boxes = Boxes(boxes.lo - shift, boxes.hi - shift)
        where = ARENA, np.full(len(boxes), place.offset, np.int64)
        node = self.places.tasks.plan.graph.nodes[action.node]
        self.found.append(OpSteps(node, Map(const(0, operand.dtype)), (operand,), (where,), boxes, part.tasks))
        return part


def _origin(buffers: GroupBuffers, name: str, operand: Operand, bricks: np.ndarray) -> Origin:
    return ARENA, buffers.place(name).offset - operand.byte_offsets(buffers.origins(name)[bricks])


def cut(buffers: GroupBuffers, boxes: Boxes, elements: int) -> tuple[np.ndarray, Boxes]:
    """Boxes in pieces of about so many elements, along the first dimension of space, or of matrices the rows: of which
    box each is, and it."""
    axis = boxes.rank - 2 if buffers.bricks.matrices else 2 if boxes.rank > 2 else 0
    rows = int(boxes.extents[:, axis].max(initial=1))
    row = int(boxes.volumes.max(initial=1)) // max(1, rows)
    band = max(1, elements // max(1, row))
    count = max(1, -(-rows // band))
    pieces, of = bands_of(boxes, band, count, axis), np.repeat(np.arange(len(boxes)), count)
    some = np.flatnonzero(pieces.volumes)
    return of[some], pieces.take(some)
