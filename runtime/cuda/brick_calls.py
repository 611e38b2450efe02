"""Convolutions of a group of bricks as calls of a library: the bricks are the batch, and nothing is padded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.ops.conv import Conv, ConvTranspose
from brickrt.ops.cuda.cudnn_form import SEVERAL_PARTS, Unfit, form_of
from brickrt.ops.cuda.cudnn_share import Share, inputs_of, parts_of, shared
from brickrt.ops.cuda.operand import Operand, dense
from brickrt.ops.types import Shape
from brickrt.runtime.cuda.brick_boxes import spread
from brickrt.runtime.cuda.brick_memory import Room
from brickrt.runtime.cuda.cudnn import Layer, Places, offset_of, precision_of, stored
from brickrt.runtime.parts import root_of
from brickrt.runtime.task_graph import TaskGraph


def check_group(tasks: TaskGraph, nodes: tuple[int, ...], k: int, share: Share) -> None:
    """Raises Unfit where a share of convolution `k` of a padded subgraph reads what no group gathers."""
    graph = tasks.plan.graph
    node, inner = graph.nodes[k], {graph.nodes[other].output for other in nodes}
    assert isinstance(node.op, Conv | ConvTranspose)
    if share == "all" and parts_of(node.op) > 1:
        raise Unfit(SEVERAL_PARTS)
    for i, name in enumerate(node.inputs[: inputs_of(node.op, share, len(node.inputs))]):
        whole = i >= node.op.main and not spread(graph.types[name], graph.out(node).rank)
        if name in tasks.parts and root_of(tasks.parts, name) in inner:
            raise Unfit(f"'{name}' is a part of another tensor of the brick")
        if i not in (0, *range(node.op.main, len(node.inputs))):
            if name in inner:
                raise Unfit(f"'{name}' is no constant")
        elif not whole and (name in graph.constants or graph.types[name].rank != graph.out(node).rank):
            raise Unfit(f"'{name}' has values that differ between bricks")


def group_layer(records: Places, room: Room, steps: int, arrays: dict[tuple[int, int], np.ndarray]) -> Layer:
    """The call that computes a node, whose steps have this index, of all slots. Raises Unfit.

    `arrays` are constant inputs as they are uploaded, by node and number of the input: calls for others share them.
    """
    tasks, k = records.tasks, records.tasks.steps[steps].node
    graph, bricks = tasks.plan.graph, room.bricks
    node = graph.nodes[k]
    assert isinstance(node.op, Conv | ConvTranspose)
    op, names = shared(node.op, bricks.library[k]), node.inputs[: bricks.read(k)]
    out, ins = room.packed(bricks.result(k)), list[Operand]()
    places: list[int | np.ndarray] = [room.place(bricks.result(k)).offset]
    packed = [name in graph.constants for name in names]
    for i, name in enumerate(names):
        operand = records.operand(name)
        if (k, i) in bricks.reads:
            operand = room.packed(bricks.key((k, i)))
            if operand.shape[0] != out.shape[0]:
                raise Unfit(f"'{name}' is one for all images of a brick")
            places.append(room.place(bricks.key((k, i))).offset)
        elif packed[i]:
            if (k, i) not in arrays:
                lies = dense(operand.type, "last") if i == 1 else operand
                arrays[k, i] = stored(lies, graph.constants[name])
            places.append(arrays[k, i])
        else:
            places.append(offset_of(records, name, operand, steps))
        ins.append(operand)
    form = form_of(_unpadded(op, out.shape[2:]), ins, out, packed, precision_of(tasks))
    return Layer(steps, form, tuple(places), bricks.library[k])


def _unpadded(op: Conv | ConvTranspose, extents: Shape) -> Conv | ConvTranspose:
    """The convolution of a window into one with these extents. A transposed one cuts off what the first elements of
    its window, and the last, give to outputs beyond."""
    pads = ends = (0,) * len(op.kernel)
    if isinstance(op, Conv):
        return replace(op, pads=pads, pads_end=ends)
    spans = op.window.spans
    pads = tuple((span - 1) // s * s for span, s in zip(spans, op.strides, strict=True))
    ends = tuple(max(0, (e - 1) // s * s + span - e) for e, span, s in zip(extents, spans, op.strides, strict=True))
    return replace(op, pads=pads, pads_end=ends, output_padding=(0,) * len(op.kernel))
