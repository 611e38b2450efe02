"""What a program's tables are to do, as far as `validate.py` checks it: from the task graph, not from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from brickrt.graph.ir import Node
from brickrt.ops.cuda.cudnn.coverage import Product, inputs_of, parts_of
from brickrt.ops.cuda.operand import Operand
from brickrt.runtime.cuda.groups.cudnn_layers import Layer
from brickrt.runtime.cuda.groups.group_steps import NodeWork, OpWork, RestWork
from brickrt.runtime.cuda.kernels.kernel_context import ARENA, FIRST_END, SCRATCH
from brickrt.runtime.cuda.schedule.argument_table import RecordRows, Records, byte_offsets
from tests.support.verify.steps import reach
from tests.support.verify.types import OperandView, Signature, Use
from brickrt.runtime.lowering.inplace_slices import start_of
from brickrt.runtime.lowering.task_graph import TaskGraph


def signature(records: Records, i: int, rows: RecordRows, kernel: int) -> Signature:
    """Of rows that are among those of steps `i`, and call kernel `kernel`."""
    node, parts = _parts(records, i, rows)
    own, tables = rows.kernel, len(rows.kernel.tables())
    return Signature(node.name, kernel, own.op, (own.out, *own.ins), (False, *own.packed), parts, tables)


def _parts(records: Records, i: int, rows: RecordRows) -> tuple[Node, tuple[OperandView | None, ...]]:
    """The node that rows are for, and what their operands are."""
    tasks, steps = records.tasks, records.tasks.steps
    graph = tasks.plan.graph
    if i < len(steps):
        node = graph.nodes[steps[i].node]
        names = (node.output, *node.inputs) if rows is records.rows[i] else (node.output, node.output)
        return node, tuple(part_of(tasks, name) for name in names)
    work = records.works[i - len(steps)]
    if isinstance(work, OpWork):
        return work.node, tuple(_at(tasks, work, k) for k in range(len(work.operands)))
    assert isinstance(work, NodeWork)
    node = graph.nodes[work.steps.node]
    names = node.output, *node.inputs
    out, *ins = (None if tasks.root(name) in work.places else part_of(tasks, name) for name in names)
    if isinstance(work, RestWork):
        ins = _left(node, work, rows, out, ins)
    return node, (out, *ins)


def _left(
    node: Node, work: RestWork, rows: RecordRows, out: OperandView | None, ins: list[OperandView | None]
) -> list[OperandView | None]:
    """The inputs of what is left of a node: parts of its product, those of the bias, and what the library does not
    read."""
    assert isinstance(node.op, Product)
    count, left = parts_of(node.op), ins[inputs_of(node.op, work.share, len(ins)) :]
    products = [None if work.product else out] * count
    if not (node.op.bias and work.share == "product"):
        return [*products, *left]
    bias, *left = left
    operands = rows.kernel.ins[count : 2 * count]
    pieces = [bias and _piece(bias, operand, k) for k, operand in enumerate(operands)]
    return [*products, *pieces, *left]


def _piece(bias: OperandView, operand: Operand, k: int) -> OperandView:
    """One of equal parts of a bias, with as many dimensions as the operand that it is."""
    start = bias.start if operand.rank == len(bias.start) else (bias.start[0], *[0] * (operand.rank - 1))
    return OperandView(bias.tensor, (start[0] + k * operand.shape[0], *start[1:]))


def part_of(tasks: TaskGraph, name: str) -> OperandView | None:
    """What a tensor is in the memory of the one that it lies in; None of constants."""
    graph = tasks.plan.graph
    if name in graph.constants:
        return None
    return OperandView(tasks.root(name), tuple(start_of(tasks.parts, name, graph.types[name].rank)[0].tolist()))


def _at(tasks: TaskGraph, work: OpWork, k: int) -> OperandView | None:
    """Which tensor of the node an operand is that is brought to bricks, or from them; None of buffers."""
    (base, offsets), operand = work.origins[k], work.operands[k]
    if base == ARENA and (reach(operand, offsets, work.boxes)[0] >= tasks.arena_bytes).all():
        return None
    for name in (work.node.output, *work.node.inputs):
        part = part_of(tasks, name)
        if part is None or len(part.start) != operand.rank or part.tensor not in tasks.places:
            continue
        if base_of(tasks, part.tensor) == base:
            shift = byte_offsets(operand, np.array([part.start], np.int64))
            if (offsets == tasks.places[part.tensor].offset + shift).all():
                return part
    return None


def base_of(tasks: TaskGraph, name: str) -> int:
    """Of a stored tensor."""
    place = tasks.places[name]
    if place.kind in ("input", "output"):
        return FIRST_END + place.slot + (len(tasks.plan.graph.inputs) if place.kind == "output" else 0)
    return ARENA if place.kind == "arena" else SCRATCH


def uses(tasks: TaskGraph, calls: Mapping[int, Layer]) -> Iterator[Use]:
    """What calls of a library, by launch, read and write in the arena."""
    graph = tasks.plan.graph
    for k, layer in calls.items():
        node = graph.nodes[tasks.steps[layer.steps].node]
        for i, (place, tensor) in enumerate(zip(layer.places, layer.form.tensors, strict=True)):
            if isinstance(place, int):
                part = part_of(tasks, (node.output, *node.inputs)[i]) if place < tasks.arena_bytes else None
                yield Use(k, node.name, part.tensor if part else None, i == 0, place, place + tensor.nbytes)
