"""Cuts a layer that runs on its own into tasks: few and large, but enough for all cores.

Rows are cut across the full width. Where weights have more bytes than the image, output channels (columns of a product)
are cut first, so that a task reads only its own weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.products.conv_geometry import MOST_PIXELS, chunk_channels, windows
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.recurrence import BATCH, DIRECTION, Recurrence
from brickrt.ops.operators.reduce import Reduce, RunningSum
from brickrt.ops.operators.rowwise import Rowwise, reduced_axes
from brickrt.ops.types import Shape
from brickrt.plan.cost.constants import SHARED_US, UNEVEN_LAYER
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.cost.strassen import LEVELS, strassen_brick
from brickrt.plan.cost.tile_products import TILES
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.geometry.bricks import quotients
from brickrt.plan.tiling.gpu_tiles import gpu_brick
from brickrt.plan.tiling.tile_bricks import tile_brick
from brickrt.plan.tiling.winograd_tiles import winograd_brick

COLUMNS = 64  # columns of a product, or of sums so far, are cut in multiples of this
CHUNK = 2**14  # elements of a row that is cut because nothing else can be
ROW_TILE = 4  # rows that a piece has a multiple of, where it can
EVEN_SEGMENTS = 4  # segments of a piece of a signal, at which whole ones leave pieces even enough


def layer_brick(cost: CostModel, k: int) -> Shape:
    """The brick shape of node `k` that makes its layerwise tasks."""
    node = cost.graph.nodes[k]
    shape = cost.graph.out(node).shape
    whole = tuple(max(1, extent) for extent in shape)
    if isinstance(node.op, View) or not shape:
        return whole
    if cost.device.kind == "cuda":
        return gpu_brick(cost, k)
    want = _wanted_tasks(cost, k)
    if isinstance(node.op, Recurrence):
        return _recurrent_brick(list(whole), min(want, cost.device.cores), cost.device.cores)
    if isinstance(node.op, RunningSum):
        return _running_brick(list(whole), node.op.axis, want, cost.device)
    if cost.algorithms.get(k) in LEVELS:
        return strassen_brick(cost.graph, node, cost.device, cost.algorithms[k], cost.constant_bytes, want)
    if cost.algorithms.get(k) == TILES:
        return tile_brick(cost, k, want)
    if k in cost.algorithms:
        return winograd_brick(cost, k, want)
    if cost.node_costs[k].image and len(shape) >= 2:
        return _image_brick(cost, k, list(whole), want)
    if isinstance(node.op, MatMul):
        return _product_brick(cost, k, list(whole), want)
    return _plain_brick(list(whole), want, cost.device, node.op)


def _wanted_tasks(cost: CostModel, k: int) -> int:
    """Tasks enough to keep all cores evenly busy, of which none is too short."""
    device, own = cost.device, cost.node_costs[k]
    busy_us = max(own.core_us, (cost.traffic_us(k) + cost.constants_us([k])) * device.cores)
    at_once = min(device.cores, int(busy_us / SHARED_US))
    return max(1, at_once, min(device.tasks_per_core * device.cores, int(busy_us / device.min_task_us)))


def _image_brick(cost: CostModel, k: int, brick: list[int], want: int) -> Shape:
    device = cost.device
    batch, channels = brick[0], brick[1]
    alone = cost.node_costs[k].core_us / batch >= device.min_task_us
    brick[0] = 1 if alone else _edge(batch, want, device.cores)
    want = _left(want, batch, brick[0])
    unit = _channel_unit(cost, k, channels)
    op = cost.graph.nodes[k].op
    if unit and brick[0] == 1 and isinstance(op, Conv) and (_sweeps_chunks(cost, k, op) or _reads_once(cost, k, op)):
        return _least_read_brick(cost, k, op, brick, want, unit)
    if unit and _weights_lead(cost, k):
        brick[1] = _edge(channels, want, device.cores, unit)
        want = _left(want, channels, brick[1])
    slabs = max(want, _slabs_for_cache(cost, k)) if alone else want
    pieces = math.prod(-(-extent // edge) for extent, edge in zip((batch, channels), brick, strict=False))
    axes, cores = _slab_axes(op, brick), device.cores
    if _reduces_rows(op, brick):  # each slab reduces all of them
        slabs = cores = -(-cores // pieces)
    elif slabs == 1 and pieces > 1 and _rounds(pieces, cores) > UNEVEN_LAYER:
        slabs = cores
    rows, segment = 1, _segment(cost, k)
    for axis in axes:
        extent = brick[axis]
        parts = slabs if axis == axes[-1] else min(slabs, -(-extent // ROW_TILE))  # thin planes would be all halo
        whole = axis == len(brick) - 1 and extent >= EVEN_SEGMENTS * parts * segment
        brick[axis] = _edge(extent, parts, cores, segment if whole else 1)
        slabs, rows = _left(slabs, extent, brick[axis]), rows * extent
    if unit and rows < want and brick[1] == channels:
        brick[1] = _edge(channels, -(-want // rows), device.cores, unit)
    return tuple(brick)


def _slab_axes(op: Op, shape: Sequence[int]) -> Sequence[int]:
    """The axes along which images are cut into slabs: where they can, those that are not reduced."""
    axes = range(2, min(len(shape), max(3, len(shape) - 1)))
    return [axis for axis in axes if axis not in reduced_axes(op)] or axes


def _reduces_rows(op: Op, shape: Sequence[int]) -> bool:
    """Whether an operator reads all of an image for each slab of it."""
    return any(axis in reduced_axes(op) for axis in _slab_axes(op, shape))


def _segment(cost: CostModel, k: int) -> int:
    """What lengths of segments that reductions take of node `k`'s output have as a multiple, 1 where none does: pieces
    of whole segments can reduce them."""
    graph = cost.graph
    readers = (graph.nodes[reader].op for reader in graph.consumers.get(graph.nodes[k].output, ()))
    return math.lcm(*(op.length for op in readers if isinstance(op, Segmented)))


def _sweeps_chunks(cost: CostModel, k: int, op: Conv) -> bool:
    """Whether the kernel of a direct convolution sweeps input channels in chunks."""
    node, lanes = cost.graph.nodes[k], cost.device.lanes
    channels = cost.graph.ins(node)[0].shape[1] // op.groups
    few = chunk_channels(channels, math.prod(op.kernel), lanes, lanes) < channels
    return few and node.inputs[1] in cost.graph.constants


def _reads_once(cost: CostModel, k: int, op: Conv) -> bool:
    """Whether tasks should read weights once, as kernels that ask for them at an even pace do: these are more than an
    image, and than L2 where that does not hold it."""
    spilt = cost.node_costs[k].const_bytes > cost.device.l2
    plain = cost.device.shares_chunks and op.groups == 1 and not _computed_weights(cost, k)
    return plain and _weights_lead(cost, k) and (spilt or _slabs_for_cache(cost, k) == 1)


def _least_read_brick(cost: CostModel, k: int, op: Conv, brick: list[int], want: int, unit: int) -> Shape:
    """Pieces of channels, which read all of an image each, and of rows, which read all weights: those `want` or more
    tasks of an image that read least, evenly many on all cores where kernels share chunks of weights."""
    shared = cost.device.shares_chunks
    own, cores, shape = cost.node_costs[k], cost.device.cores, cost.graph.ins(cost.graph.nodes[k])[0].shape
    window, image, wide = windows(op, shape[2:])[0], own.in_bytes / shape[0], _wide_bytes(cost, k)

    def cut(pieces: int) -> tuple[int, int]:
        channels = _edge(brick[1], pieces, cores, unit)
        return channels, _edge(brick[2], _left(want, brick[1], channels), cores)

    def read(edges: tuple[int, int]) -> tuple[int, bool, float]:
        channels, rows = edges
        pieces = -(-brick[1] // channels)
        shares = [window.read(lo, min(lo + rows, brick[2])) for lo in range(0, brick[2], rows)]
        inputs, taps = (sum(share) for share in zip(*shares, strict=True))
        tasks = pieces * len(shares)
        uneven = shared and tasks > 1 and _rounds(tasks, cores) > UNEVEN_LAYER
        return -min(want, tasks), uneven, pieces * inputs * image + taps * wide

    edges = min((cut(pieces) for pieces in range(1, want * (1 + shared) + 1)), key=read)
    return (brick[0], *edges, *brick[3:])


def _channel_unit(cost: CostModel, k: int, channels: int) -> int:
    """The multiple at which channels may be cut, of groups where a block begins with one; 0 where they may not."""
    node, lanes = cost.graph.nodes[k], cost.device.lanes
    if cost.layouts[node.output] != "blocked":
        return 0
    if isinstance(node.op, Reduce | Rowwise):
        return lanes if 1 not in node.op.axes else 0
    if not isinstance(node.op, Conv):
        return 0
    if node.op.groups == 1:
        return 4 * lanes if channels >= 8 * lanes and not cost.device.double_pumped else lanes
    width = channels // node.op.groups
    return math.lcm(width, lanes) if node.op.gate_parts == 1 and width > 1 else 0


def _weights_lead(cost: CostModel, k: int) -> bool:
    """Whether cutting channels moves less than cutting rows; what reduces rows has none to cut."""
    node = cost.graph.nodes[k]
    shape = cost.graph.out(node).shape
    reduces = isinstance(node.op, Reduce) or _reduces_rows(node.op, shape)
    return reduces or _wide_bytes(cost, k) + _computed_weights(cost, k) > _image_bytes(cost, k) / max(1, shape[0])


def _wide_bytes(cost: CostModel, k: int) -> int:
    """Bytes of the constants of node `k` as they are multiplied: each task widens weights of float16 that it reads."""
    node, own = cost.graph.nodes[k], cost.node_costs[k]
    narrow = isinstance(node.op, Product) and cost.graph.types[node.inputs[1]].dtype == np.float16
    return 2 * own.const_bytes if narrow else own.const_bytes


def _computed_weights(cost: CostModel, k: int) -> int:
    """Bytes of the weights of a convolution where they are no constants."""
    node = cost.graph.nodes[k]
    computed = isinstance(node.op, Conv) and node.inputs[1] not in cost.graph.constants
    return cost.graph.types[node.inputs[1]].nbytes if computed else 0


def _image_bytes(cost: CostModel, k: int) -> int:
    """Bytes of what node `k` reads of images."""
    return cost.node_costs[k].in_bytes - _computed_weights(cost, k)


def _slabs_for_cache(cost: CostModel, k: int) -> int:
    """Slabs of one image such that what each reads stays in half of L2."""
    batch = max(1, cost.graph.out(cost.graph.nodes[k]).shape[0])
    return math.ceil(_image_bytes(cost, k) / batch / (cost.device.l2 / 2))


def _left(parts: int, extent: int, edge: int) -> int:
    """Parts that each piece is still to be cut in once an axis of `extent` is cut at `edge`."""
    return -(-parts // -(-extent // edge))


def _edge(extent: int, parts: int, cores: int, unit: int = 1) -> int:
    """The edge, a multiple of `unit`, that makes `parts` pieces or some more and keeps the cores evenly busy."""
    if parts <= 1:
        return extent
    units = -(-extent // unit)

    def idle(edge: int) -> tuple[float, bool, int]:
        pieces = math.ceil(units / edge)
        busy = _rounds(pieces, cores) * pieces * edge / units if unit == 1 else _busiest(extent, edge * unit, cores)
        return round(busy, 1), unit == 1 and edge % ROW_TILE != 0, -edge

    fewest = max(cores, parts - cores + 1) if parts >= cores else parts
    shares = [*quotients(units, fewest, 2 * parts), *(one + 1 for one in quotients(units - 1, fewest, 2 * parts))]
    edges = {max(1, edge) for edge in shares}
    return min(extent, min(edges, key=idle) * unit)


def _busiest(extent: int, edge: int, cores: int) -> float:
    """How many times its fair share the busiest core gets of pieces with this edge; the last may be smaller."""
    pieces = -(-extent // edge)
    full, more = divmod(pieces - 1, cores)
    most = (full + 1) * edge if more else full * edge + extent - (pieces - 1) * edge
    return most * cores / extent


def _rounds(pieces: int, cores: int) -> float:
    """How many times longer equal pieces take than if all cores were busy to the end."""
    return math.ceil(pieces / cores) * cores / pieces


def _product_brick(cost: CostModel, k: int, brick: list[int], want: int) -> Shape:
    """Cuts batches first, then columns where the second operand is the larger, then rows: in a piece for each core, and
    more of them where the second operand, which each piece reads, stays in the caches. Rows that share chunks of it and
    fit in half of L2 stay whole beside columns that keep the cores evenly busy."""
    node, cores = cost.graph.nodes[k], cost.device.cores
    a, b = (cost.graph.types[name] for name in node.inputs[:2])
    want = _cut_leading(brick, range(len(brick) - 2), want, cores)
    rows, columns = brick[-2:]
    if math.prod(b.shape[-2:]) > math.prod(a.shape[-2:]) or rows < want:
        brick[-1] = _edge(columns, want, cores, COLUMNS)
        want = _left(want, columns, brick[-1])
    pieces, read = -(-columns // brick[-1]), math.prod(a.shape[-2:]) * a.dtype.itemsize
    shared = cost.device.shares_chunks and 1 < rows <= MOST_PIXELS and read <= cost.device.l2 / 2
    if shared and pieces > 1 and _rounds(pieces, cores) <= UNEVEN_LAYER:
        return tuple(brick)
    anew = math.prod(b.shape[-2:]) * b.dtype.itemsize > cost.device.fast_bytes
    brick[-2] = _edge(rows, min(want, cores) if anew else want, cores)
    return tuple(brick)


def _recurrent_brick(brick: list[int], want: int, cores: int) -> Shape:
    """Cuts directions, then sequences: each piece reads all weights in each step, so there are no more than cores."""
    _cut_leading(brick, (DIRECTION, BATCH), want, cores)
    return tuple(brick)


def _running_brick(brick: list[int], axis: int, want: int, device: DeviceSpec) -> Shape:
    """Cuts what is not added: leading dimensions, then columns where cores have nothing to do, as long rows are read
    faster."""
    last = len(brick) - 1
    want = _cut_leading(brick, [d for d in range(last) if d != axis], want, device.cores)
    _cut_leading(brick, (last,), min(want, device.cores), device.cores, COLUMNS)
    return tuple(brick)


def _plain_brick(brick: list[int], want: int, device: DeviceSpec, op: Op) -> Shape:
    """Cuts leading dimensions, those that are cut last only while cores have nothing to do; the last only where it
    holds all elements."""
    last, cut_last, unit = brick[-1], *_cut_last(op, device)
    if math.prod(brick[:-1]) > 1:
        want = _cut_leading(brick, [axis for axis in range(len(brick) - 1) if axis not in cut_last], want, device.cores)
        late = [axis for axis in range(len(brick) - 1) if axis in cut_last]
        _cut_leading(brick, late, min(want, device.cores), device.cores, unit)
    elif last >= 2 * CHUNK:
        brick[-1] = max(CHUNK, -(-last // want))
    return tuple(brick)


def _cut_last(op: Op, device: DeviceSpec) -> tuple[Shape, int]:
    """The axes of which an operator reads more than it needs where they are cut, and the multiple at which they may be:
    what it reduces, and what lies side by side in what it turns, of which vectors are read."""
    return ((op.perm.index(len(op.perm) - 1),), device.lanes) if isinstance(op, Transpose) else (reduced_axes(op), 1)


def _cut_leading(brick: list[int], axes: Sequence[int], want: int, cores: int, unit: int = 1) -> int:
    """Cuts `axes` in order, at multiples of `unit`, until there are about `want` parts; returns how many are still
    wanted of each."""
    for axis in axes:
        extent = brick[axis]
        brick[axis] = _edge(extent, want, cores, unit)
        want = _left(want, extent, brick[axis])
    return want
