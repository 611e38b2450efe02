"""Products of a group of bricks as calls of a library: the bricks are the batch, and nothing is padded."""

from __future__ import annotations

import math
from dataclasses import replace

from brickrt.ops.cuda.cudnn.coverage import Coverage, covered, inputs_of
from brickrt.ops.cuda.cudnn.form import Unfit
from brickrt.ops.cuda.cudnn.make_form import SEVERAL_PARTS, as_convolution, form_of, weights
from brickrt.ops.cuda.operand import Operand, dense
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product, parts_of
from brickrt.ops.types import Shape, TensorType
from brickrt.runtime.cuda.groups.cudnn_layers import Layer, StoredConstant, offset_of
from brickrt.runtime.cuda.groups.group_buffers import GroupBuffers
from brickrt.runtime.cuda.groups.group_geometry import Key
from brickrt.runtime.cuda.groups.product_windows import is_window
from brickrt.runtime.cuda.schedule.argument_table import precision_of
from brickrt.runtime.lowering.inplace_slices import root_of
from brickrt.runtime.lowering.operands import OperandPlaces
from brickrt.runtime.lowering.task_graph import TaskGraph


def check_group(tasks: TaskGraph, nodes: tuple[int, ...], k: int, share: Coverage) -> None:
    """Raises Unfit where a share of product `k` of a padded subgraph reads what no group gathers."""
    graph = tasks.plan.graph
    node, inner = graph.nodes[k], {graph.nodes[other].output for other in nodes}
    assert isinstance(node.op, Product)
    if share == "all" and parts_of(node.op) > 1:
        raise Unfit(SEVERAL_PARTS)
    for i, name in enumerate(node.inputs[: inputs_of(node.op, share, len(node.inputs))]):
        kind, rank = graph.types[name], graph.out(node).rank
        if (root := root_of(tasks.inplace_slices, name)) in inner and not _of_channels(tasks, name, root):
            raise Unfit(f"'{name}' is a part of another tensor of the brick")
        if is_window(node.op, i, kind, rank) or (name in inner and i >= node.op.main):
            if name in graph.constants or kind.rank != rank:
                raise Unfit(f"'{name}' has values that differ between bricks")
        elif name in inner:
            raise Unfit(f"'{name}' is no constant")


def _of_channels(tasks: TaskGraph, name: str, root: str) -> bool:
    """Whether a part of a tensor ends where that does, but for channels: beyond the ends lie zeros."""
    ends = (tasks.plan.graph.types[one].shape for one in (name, root))
    return all(a == b for axis, (a, b) in enumerate(zip(*ends, strict=True)) if axis != 1)


def group_layer(places: OperandPlaces[Operand], buffers: GroupBuffers, steps: int, way: bool) -> Layer:
    """The call that computes a node, whose steps have this index, of all slots; a matrix product as a convolution if
    `way` says so. Raises Unfit."""
    tasks, k = places.tasks, places.tasks.steps[steps].node
    graph, bricks = tasks.plan.graph, buffers.bricks
    node, result = graph.nodes[k], bricks.result(k)
    assert isinstance(node.op, Product)
    names = node.inputs[: bricks.read(k)]
    packed = [name in graph.constants for name in names]
    keys = {i: bricks.key((k, i)) for i in range(len(names)) if (k, i) in bricks.reads}
    for i, key in keys.items():
        if bricks.extents(key)[0] != bricks.extents(result)[0]:
            raise Unfit(f"'{names[i]}' is one for all images of a brick")
    ins = [_slots(buffers, node.op, keys[i], i) if i in keys else places.operand(name) for i, name in enumerate(names)]
    out, op = (
        _slots(buffers, node.op, result),
        _unpadded(covered(node.op, bricks.library[k]), bricks.extents(result)[2:]),
    )
    form = form_of(op, ins, out, packed, precision_of(tasks), way)
    found: list[int | StoredConstant] = [buffers.place(result).offset]
    for i, name in enumerate(names):
        if i in keys:
            found.append(buffers.place(keys[i]).offset)
        elif packed[i]:
            found.append(StoredConstant(name, weights(op, ins[i], form) if i == 1 else ins[i]))
        else:
            found.append(offset_of(places, name, ins[i], steps))
    return Layer(steps, form, tuple(found), bricks.library[k])


def ways_of(tasks: TaskGraph, buffers: GroupBuffers, k: int) -> tuple[bool, ...]:
    """See `as_convolution`, of a product of all slots."""
    graph = tasks.plan.graph
    node = graph.nodes[k]
    packed = [name in graph.constants for name in node.inputs]
    return as_convolution(node.op, buffers.packed(buffers.bricks.result(k)).type, packed, precision_of(tasks))


def _slots(buffers: GroupBuffers, op: Product, key: Key, i: int = 0) -> Operand:
    """A buffer as the library takes it. Of matrices, the rows of bricks that have input 1 in common follow one another:
    [bricks, rows, columns]."""
    packed = buffers.packed(key)
    if not isinstance(op, MatMul) or packed.rank == 2:
        return packed
    *batch, rows, columns = packed.shape
    alike = buffers.alike if i != 1 else 1
    if alike > 1 and rows != buffers.bricks.boxes.extents[0, -2]:
        raise Unfit("an operand broadcasts over rows")
    return dense(TensorType((math.prod(batch) // alike, alike * rows, columns), packed.dtype))


def _unpadded(op: Product, extents: Shape) -> Product:
    """The convolution of a window into one with these extents. A transposed one cuts off what the first elements of
    its window, and the last, give to outputs beyond."""
    if isinstance(op, MatMul):
        return op
    pads = ends = (0,) * len(op.kernel)
    if isinstance(op, Conv):
        return replace(op, pads=pads, pads_end=ends)
    spans = op.window.spans
    pads = tuple((span - 1) // s * s for span, s in zip(spans, op.strides, strict=True))
    ends = tuple(max(0, (e - 1) // s * s + span - e) for e, span, s in zip(extents, spans, op.strides, strict=True))
    return replace(op, pads=pads, pads_end=ends, output_padding=(0,) * len(op.kernel))
