"""What a program's tables must do, as far as `validate.py` checks it: from the task graph, not from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from brickrt.graph.ir import Node
from brickrt.ops.cuda.cudnn.coverage import inputs_of
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.operators.product import Product, parts_of
from brickrt.runtime.cuda.blueprint import Blueprint
from brickrt.runtime.cuda.groups.cudnn_layers import Layer
from brickrt.runtime.cuda.groups.group_steps import NodeSteps, OpSteps, RestSteps
from brickrt.runtime.cuda.kernels.kernel_context import ARENA
from brickrt.runtime.cuda.schedule.argument_table import ArgumentTable, KernelRecords, device_places
from brickrt.runtime.lowering.inplace_slices import start_of
from brickrt.runtime.lowering.record_order import order_records
from brickrt.runtime.lowering.task_graph import TaskGraph
from tests.support.verify.steps import reach
from tests.support.verify.types import CheckedLaunch, CheckedTables, Expected, OperandView, Signature, Use
from tests.support.verify.validate import validate


def verify_program(blueprint: Blueprint) -> None:
    """Raises ValueError where the tables are not what kernels rely on, or do not do what the task graph says."""
    validate(checked_tables(blueprint), expected_of(blueprint))


def checked_tables(blueprint: Blueprint) -> CheckedTables:
    """The tables of a program, as the checks take them."""
    launches, tables = blueprint.launches, blueprint.tables
    firsts = np.cumsum([0, *(len(launch.tasks) for launch in launches)]).tolist()
    pieces = [
        CheckedLaunch(
            *(begin, len(launch.tasks), kernels, launch.kind == "persistent", launch.after),
            scratch=launch.kind in ("bricks", "fused"),
            fused=launch.kind == "fused",
        )
        for begin, launch, kernels in zip(firsts, launches, blueprint.units.kernels, strict=False)
    ]
    return CheckedTables(tables.table.task_at, tables.table.records, tables.dep_offsets, tables.deps, pieces)


def expected_of(blueprint: Blueprint) -> Expected:
    """What the tables of a program must do."""
    tasks, numbered, tables = blueprint.tasks, blueprint.units.numbered, blueprint.tables
    places, types = tasks.allocations, tasks.plan.graph.types
    number = np.full(len(blueprint.owner), -1, np.int64)
    number[tables.order] = np.arange(len(tables))
    found = order_records([(one.tasks, one.positions, one.words) for one, _ in numbered], number)
    like = np.repeat(np.arange(len(numbered)), [len(one.tasks) for one, _ in numbered])
    base = device_places(tasks).base
    return Expected(
        signatures=list(_signatures(blueprint)),
        tasks=found.tasks[found.order],
        like=like[found.order],
        owner=blueprint.owner[tables.order],
        dep_offsets=tasks.dep_offsets,
        deps=tasks.deps,
        base_bytes=_base_bytes(blueprint),
        arena=tasks.arena_bytes,
        constants=np.array(sorted(offset for offset, _ in blueprint.arguments.packed.pieces), np.int64),
        io={name: base(name) for name, at in places.items() if at.kind in ("input", "output")},
        outputs=[name for name, at in places.items() if at.kind == "output" and types[name].size],
        uses=list(uses(tasks, {k: layer for k, (layer, _) in blueprint.calls.layers.items()})),
    )


def _base_bytes(blueprint: Blueprint) -> list[int]:
    """Sizes of what the bases point to: one block's scratch, arena, constants, inputs and outputs."""
    tasks, graph = blueprint.tasks, blueprint.tasks.plan.graph
    io = (graph.types[name].nbytes for name in (*graph.inputs, *graph.outputs))
    scratch = max([tasks.scratch_bytes, *tasks.fused_bytes.values()])
    return [scratch, blueprint.arena_bytes, blueprint.arguments.packed.nbytes, *io]


def _signatures(blueprint: Blueprint) -> Iterator[Signature]:
    """Those of all records, in the order of `Units.numbered`."""
    units, numbered = blueprint.units, iter(blueprint.units.numbered)
    firsts = {launch.steps: kernels.start for launch, kernels in zip(blueprint.launches, units.kernels, strict=True)}
    for steps, first in firsts.items():
        for i, records in ((step, records) for step in steps for records in units.arguments.of(step)):
            same, number = next(numbered)
            assert same is records
            yield signature(units.arguments, i, records, first + number)
    assert next(numbered, None) is None


def signature(table: ArgumentTable, i: int, records: KernelRecords, kernel: int) -> Signature:
    """What records that are among those of steps `i`, and call kernel `kernel`, must look like."""
    node, parts = _parts(table, i, records)
    own, tables = records.kernel, len(records.kernel.tables())
    return Signature(node.name, kernel, own.op, (own.out, *own.ins), (False, *own.packed), parts, tables)


def _parts(table: ArgumentTable, i: int, records: KernelRecords) -> tuple[Node, tuple[OperandView | None, ...]]:
    """The node that records are for, and what their operands are."""
    tasks, steps = table.tasks, table.tasks.steps
    graph = tasks.plan.graph
    if i < len(steps):
        node = graph.nodes[steps[i].node]
        names = (node.output, *node.inputs) if records is table.records[i] else (node.output, node.output)
        return node, tuple(part_of(tasks, name) for name in names)
    extra = table.extra[i - len(steps)]
    if isinstance(extra, OpSteps):
        return extra.node, tuple(_at(tasks, extra, k) for k in range(len(extra.operands)))
    assert isinstance(extra, NodeSteps)
    node = graph.nodes[extra.steps.node]
    names = node.output, *node.inputs
    out, *ins = (None if tasks.root(name) in extra.places else part_of(tasks, name) for name in names)
    if isinstance(extra, RestSteps):
        ins = _left(node, extra, records, out, ins)
    return node, (out, *ins)


def _left(
    node: Node, extra: RestSteps, records: KernelRecords, out: OperandView | None, ins: list[OperandView | None]
) -> list[OperandView | None]:
    """The inputs of what is left of a node: parts of its product, those of the bias, and what the library does not
    read."""
    assert isinstance(node.op, Product)
    count, left = parts_of(node.op), ins[inputs_of(node.op, extra.share, len(ins)) :]
    products = [None if extra.product else out] * count
    if not (node.op.bias and extra.share == "product"):
        return [*products, *left]
    bias, *left = left
    operands = records.kernel.ins[count : 2 * count]
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
    return OperandView(
        tasks.root(name), tuple(start_of(tasks.inplace_slices, name, graph.types[name].rank)[0].tolist())
    )


def _at(tasks: TaskGraph, extra: OpSteps, k: int) -> OperandView | None:
    """Which tensor of the node an operand is that is brought to bricks, or from them; None of buffers."""
    (base, offsets), operand = extra.origins[k], extra.operands[k]
    if base == ARENA and (reach(operand, offsets, extra.boxes)[0] >= tasks.arena_bytes).all():
        return None
    for name in (extra.node.output, *extra.node.inputs):
        part = part_of(tasks, name)
        if part is None or len(part.start) != operand.rank or part.tensor not in tasks.allocations:
            continue
        if device_places(tasks).base(part.tensor) == base:
            shift = operand.byte_offsets(np.array([part.start], np.int64))
            if (offsets == tasks.allocations[part.tensor].offset + shift).all():
                return part
    return None


def uses(tasks: TaskGraph, calls: Mapping[int, Layer]) -> Iterator[Use]:
    """What calls of a library, by launch, read and write in the arena."""
    graph = tasks.plan.graph
    for k, layer in calls.items():
        node = graph.nodes[tasks.steps[layer.steps].node]
        for i, (place, tensor) in enumerate(zip(layer.places, layer.form.tensors, strict=True)):
            if isinstance(place, int):
                part = part_of(tasks, (node.output, *node.inputs)[i]) if place < tasks.arena_bytes else None
                yield Use(k, node.name, part.tensor if part else None, i == 0, place, place + tensor.nbytes)
