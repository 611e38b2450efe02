"""Decides which matrix products and pointwise convolutions are computed by Strassen's scheme, and cuts them into tasks.

One level of it multiplies an eighth less, but adds up quarters of the first operand once per task and reads 7/4 of the
weights: it needs many rows to make up for the weights, and many columns to make up for the sums. Two levels do all that
twice. Times are microseconds of one core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.cpu.strassen.sizes import BLOCKS, PRODUCTS, chunks_of, fits, group_columns, most_rows
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Shape
from brickrt.plan.cost.constants import (
    LAYER_CACHE_SHARE,
    MADE_PANEL,
    MEASURED_MARGIN,
    MOST_MEMORY,
    NARROW_ENDS,
    NARROW_HELD,
    NARROW_PANELS,
    NARROW_ROWS,
    NARROW_SUMS,
    OUTPUT,
    PACED_SUM,
    PAIRED_ROW,
    PAIRED_ROWS,
    PAIRED_TIME,
    PREFETCHED_UNHIDDEN_SHARE,
    PRODUCT_SHARE,
    SPILT_FACTORS,
    STRASSEN_LEAST,
    STRASSEN_MARGIN,
    STRASSEN_SHARE,
    SUM,
    UNEVEN_STRASSEN,
)
from brickrt.plan.cost.roofline import compute_us, overlapped_us, products_at_a_time, read_us
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.geometry.bricks import even_edges

HELD = "-held"  # ends, before the next, those of algorithms that do so once for all boxes that a worker computes
RAW = "-raw"  # ends the names of algorithms that make what they read of weights while they run
INTEGERS = "-integers"  # as does this, of quantized integers
PAIRED = "paired"  # Winograd's inner product (`ops/cpu/paired/scheme.py`), which halves nothing
LEVELS = {"strassen": 1, "strassen2": 2, "strassen2" + RAW: 2, PAIRED: 0}  # by algorithm: how often all is halved
FLOAT32, FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)
F32_BYTES, F16_BYTES = FLOAT32.itemsize, FLOAT16.itemsize


def growth(levels: int) -> float:
    """How much larger the operands of all products are than the matrix they are sums of."""
    return (7 / 4) ** levels


def time_share(algorithm: str) -> float:
    """How long the products of an algorithm take, in parts of the direct one's time."""
    return PAIRED_TIME if algorithm == PAIRED else (7 / 8) ** LEVELS[algorithm]


def keeps_weights(algorithm: str) -> bool:
    """Whether an algorithm leaves weights in memory as they are, and transforms them while it runs."""
    return algorithm.endswith((RAW, INTEGERS))


def weight_types(algorithm: str) -> tuple[np.dtype, ...]:
    """The types of the weights of an algorithm of `LEVELS`."""
    if algorithm == PAIRED:
        return (FLOAT32, FLOAT16)
    return (FLOAT16,) if keeps_weights(algorithm) else (FLOAT32,)


def stored_growth(algorithm: str) -> float:
    """How much larger weights are in memory by one of these algorithms."""
    return 1.0 if keeps_weights(algorithm) else growth(LEVELS[algorithm])


def may_use(graph: Graph, node: Node, algorithm: str) -> bool:
    """Whether kernels of the scheme compute a node; its images are blocked."""
    op, kinds = node.op, [*graph.ins(node), graph.out(node)]
    return (
        isinstance(op, MatMul | Conv)
        and all(name in graph.constants for name in node.inputs[1 : 2 + op.bias])
        and kinds[0].dtype == kinds[-1].dtype == FLOAT32
        and kinds[1].dtype in weight_types(algorithm)
        and fits(op, kinds[1].shape)
        and kinds[-1].size > 0
    )


def possible_schemes(graph: Graph, node: Node, device: DeviceSpec, constants: int) -> list[str]:
    """The levels of the scheme by which a product may be computed, in a graph with so many bytes of constants. For
    pairs, and for sums of weights that are made meanwhile, vectors of eight lanes have too few registers."""
    known = [name for name in LEVELS if name != PAIRED or device.pairs]
    wide = [name for name in known if not device.narrow or (name != PAIRED and not keeps_weights(name))]
    names = [name for name in wide if may_use(graph, node, name)]
    return [name for name in names if constants * stored_growth(name) <= MOST_MEMORY * device.memory]


def choose_product(graph: Graph, node: Node, device: DeviceSpec, constants: int) -> str | None:
    """The algorithm modelled fastest for a product, cut as `strassen_brick` does; None for the direct one. Where
    elements of K can be paired, Strassen's scheme was never faster, takes up to four times the memory and errs more.
    Where a core multiplies two vectors of eight lanes a cycle, sums are not worth what they save, nor are they for few
    rows by vectors of eight lanes at all."""
    names = possible_schemes(graph, node, device, constants)
    names = [PAIRED] if PAIRED in names else names
    if device.narrow:
        names = [name for name in names if _Work.of(graph, node, device, name, constants).pays_narrow]
    times = {name: product_us(graph, node, device, name, constants) for name in names}
    best = min(times, key=times.__getitem__, default=None)
    if best is None:
        return None
    measured = device.double_pumped or device.paces_weights or device.narrow
    margin = MEASURED_MARGIN if measured else STRASSEN_MARGIN
    direct = product_us(graph, node, device, None, constants)
    return best if times[best] < min(margin * direct, direct - STRASSEN_LEAST) else None


def product_us(graph: Graph, node: Node, device: DeviceSpec, algorithm: str | None, constants: int) -> float:
    """Modelled time of a product, in a graph with so many bytes of constants."""
    if algorithm is not None:
        work = _Work.of(graph, node, device, algorithm, constants)
        brick = np.asarray([work.brick(device.tasks_per_core * device.cores)], np.int64)
        return float(work.busy_us(brick)[0]) * device.cores
    out, weights = graph.out(node), graph.ins(node)[1]
    columns = out.shape[column_dim(node)]
    depth = weights.shape[-2] if isinstance(node.op, MatMul) else weights.size // columns
    constants = constants if node.inputs[1] in graph.constants else 0
    vectors = out.size // columns * depth * -(-columns // device.lanes)
    at_a_time = products_at_a_time(graph.ins(node)[0].dtype, device)
    share = PRODUCT_SHARE if device.paces_weights and isinstance(node.op, Conv) else STRASSEN_SHARE
    arithmetic = compute_us(vectors / at_a_time, device, share)
    read = _far_us(out.size // columns * depth * 4, _moved(graph, node), device)
    return overlapped_us(arithmetic, read_us(weights.nbytes, max(weights.nbytes, constants), device) + read)


def column_dim(node: Node) -> int:
    """The dimension of the output along which lie the columns of the weights."""
    return 1 if isinstance(node.op, Conv) else -1


def strassen_brick(graph: Graph, node: Node, device: DeviceSpec, algorithm: str, constants: int, most: int) -> Shape:
    """The brick of a node's output that makes up to `most` tasks, or few more."""
    return _Work.of(graph, node, device, algorithm, constants).brick(most)


@dataclass(frozen=True)
class _Work:
    """A product by an algorithm of `LEVELS`, in a graph with `constants` bytes of constants.

    It is [batch…, M, K] × [K, N], or with `pixels` [images, K, sides…] × [K, N] = [images, N, sides…].
    """

    out: Shape
    pixels: bool
    depth: int
    algorithm: str
    constants: int
    moved: int  # bytes of the tensor that is read and of the output
    each: int  # bytes of a weight in the file
    device: DeviceSpec

    @staticmethod
    def of(graph: Graph, node: Node, device: DeviceSpec, algorithm: str, constants: int) -> _Work:
        depth, pixels = graph.ins(node)[0].shape[column_dim(node)], isinstance(node.op, Conv)
        moved = _moved(graph, node)
        each = graph.ins(node)[1].dtype.itemsize
        return _Work(graph.out(node).shape, pixels, depth, algorithm, constants, moved, each, device)

    @property
    def levels(self) -> int:
        """How often everything is halved."""
        return LEVELS[self.algorithm]

    @property
    def weight_bytes(self) -> float:
        """Bytes of memory for each weight."""
        return self.each * stored_growth(self.algorithm)

    @cached_property
    def chunks(self) -> tuple[int, int]:
        """How many chunks K is computed in, and the elements of one."""
        return chunks_of(self.depth, self.device.lanes, self.levels, self.device.paces_weights)

    @property
    def unit(self) -> int:
        """Columns of a group of register tiles: bricks are cut at multiples of it."""
        return group_columns(self.device.lanes, self.levels)

    @property
    def pays_narrow(self) -> bool:
        """Whether the scheme was found to be faster by vectors of eight lanes."""
        return self.device.one_a_cycle and self.whole_rows >= NARROW_ROWS

    @property
    def whole_rows(self) -> int:
        """Rows of each matrix."""
        return int(self.split(np.asarray([self.out], np.int64))[1][0])

    def brick(self, most: int) -> Shape:
        """The best brick for up to `most` pieces, or as many as it takes for first factors to fit a quarter of L2; by
        vectors of eight lanes, what `matrix_us` takes for near."""
        near = NARROW_HELD if self.device.narrow else 1 / 4
        return _best_brick(self, max(most, math.ceil(self.first_bytes(self.whole_rows) / (near * self.device.l2))))

    def best_brick(self, most: int) -> Shape:
        """The brick modelled fastest of those that make fewer than twice `most` tasks."""

        tries = np.stack(np.meshgrid(*self.edges(most), indexing="ij"), axis=-1).reshape(-1, len(self.out))
        counts = self.counts(tries)
        few = counts.prod(axis=1) < 2 * most
        tries, rounds = tries[few], self.rounds(counts[few])
        waits = 1 + UNEVEN_STRASSEN / rounds * (self.device.cores > 1)
        us = self.busy_us(tries) * waits + rounds * self.device.task_overhead_us
        return tuple(tries[np.argmin(us)].tolist())

    def edges(self, most: int) -> list[list[int]]:
        """Edges to try, per dimension. Rows of pixels stay whole."""
        units = [1] * len(self.out)
        units[1 if self.pixels else -1] = self.unit
        if self.pixels and len(self.out) > 3:
            units[-1] = self.out[-1]
        return [even_edges(extent, unit, most) for extent, unit in zip(self.out, units, strict=True)]

    def split(self, shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shapes of the output, or counts along it, [n, d], as (matrices, rows of each, columns), [n] each."""
        if self.pixels:
            return shapes[:, 0], shapes[:, 2:].prod(axis=1), shapes[:, 1]
        return shapes[:, :-2].prod(axis=1), shapes[:, -2], shapes[:, -1]

    def counts(self, bricks: np.ndarray) -> np.ndarray:
        """Bricks along each dimension, [n, d]."""
        return -(-np.asarray(self.out, np.int64) // bricks)

    def rounds(self, counts: np.ndarray) -> np.ndarray:
        """Tasks of the core that has most, [n]."""
        return -(-counts.prod(axis=1) // self.device.cores)

    def busy_us(self, bricks: np.ndarray) -> np.ndarray:
        """Time of one core's share of the tasks, for bricks [n, d].

        The weights of its columns come from where all constants lie once, together for all cores that need them.
        """
        counts = self.counts(bricks)
        *boxes, pieces = self.split(counts)
        matrices, rows, columns = self.split(bricks)
        cores, rounds = self.device.cores, self.rounds(counts)
        sweeps = rounds * matrices
        sharers = np.minimum(cores, boxes[0] * boxes[1])
        pieces = np.minimum(rounds, -(-pieces * sharers // cores))
        weights = math.prod(self.chunks) * columns * self.weight_bytes
        far, near = (read_us(weights, held, self.device) for held in (np.maximum(weights, self.constants), weights))
        first = far / sharers + near * (1 - 1 / sharers)
        streamed = pieces * first + (sweeps - pieces) * near
        read = self.far_us(sweeps * rows * self.depth * 4)
        arithmetic = sweeps * self.matrix_us(rows, columns)
        hidden = PREFETCHED_UNHIDDEN_SHARE * np.minimum(arithmetic, streamed)
        return np.maximum(arithmetic, streamed) + hidden + read

    def far_us(self, nbytes: np.ndarray) -> np.ndarray:
        """See `_far_us`."""
        return _far_us(1.0, self.moved, self.device) * nbytes

    def matrix_us(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Time of one matrix of each box: products of whole groups of tiles, sums, outputs."""
        device, depth, levels = self.device, math.prod(self.chunks), self.levels
        chunks, parts = self.chunks[0], 2**levels
        rows, groups = -(-rows // parts) * parts, -(-columns // self.unit)
        taken = np.maximum(rows, PAIRED_ROWS) if self.algorithm == PAIRED else rows
        wide = groups * self.unit // device.lanes
        products = compute_us(1.0, device, STRASSEN_SHARE) * (taken * depth * wide * time_share(self.algorithm))
        if device.narrow:
            return self.narrow_us(products, rows, wide)
        if keeps_weights(self.algorithm):
            products = products + compute_us(MADE_PANEL, device, 1.0) * (growth(levels) * depth * wide)
        filled = 1 + np.minimum(1.0, self.first_bytes(rows) / device.l2)
        each = PAIRED_ROW if self.algorithm == PAIRED else 0.0
        sums = SUM[levels] * filled * (PACED_SUM if device.paces_weights and levels else 1.0)
        moved = rows * (each + depth * sums + wide * device.lanes * chunks * OUTPUT[levels])
        return products + read_us(1.0, 0, device) * moved + SPILT_FACTORS * self.behind_us(rows, wide, device.l2)

    def narrow_us(self, products: np.ndarray, rows: np.ndarray, wide: np.ndarray) -> np.ndarray:
        """The same by vectors of eight lanes, whose `products` alone take so long. Register tiles are small, so that
        many end, and each reads its panels anew."""
        device, levels = self.device, self.levels
        panels = F32_BYTES * PRODUCTS * (self.chunks[1] // 2**levels) * BLOCKS * device.lanes
        tiles = -(-rows // (2**levels * most_rows(device.registers))) * self.swept_groups(wide) * PRODUCTS**levels
        ends = compute_us(NARROW_ENDS[levels], device, STRASSEN_SHARE) * tiles
        sums = read_us(1.0, 0, device) * rows * (self.depth * SUM[levels] * NARROW_SUMS)
        slower = NARROW_PANELS if panels > device.l1 else 1.0
        return products * slower + ends + sums + self.behind_us(rows, wide, NARROW_HELD * device.l2)

    def swept_groups(self, wide: np.ndarray) -> np.ndarray:
        """Groups of tiles of `wide` vectors of columns, each once for every chunk."""
        return wide * self.device.lanes // self.unit * self.chunks[0]

    def behind_us(self, rows: np.ndarray, wide: np.ndarray, near: float) -> np.ndarray:
        """Time to read, for each group of columns, the first factors that are not among the `near` bytes at hand."""
        far = np.maximum(0.0, 1 - near / self.held_bytes(rows, wide)) * self.first_bytes(rows)
        return read_us(1.0, self.device.l2 + 1, self.device) * far * self.swept_groups(wide)

    def first_bytes(self, rows: np.ndarray | int) -> np.ndarray:
        """Bytes of the first factors of a chunk: sums of quarters of the first operand."""
        return np.asarray(rows) * (4 * self.chunks[1] * growth(self.levels))

    def held_bytes(self, rows: np.ndarray, wide: np.ndarray) -> np.ndarray:
        """Bytes that a chunk touches again and again: first factors, the second ones in use and the next, and for
        `wide` vectors of columns the sums of earlier chunks."""
        second = self.first_bytes(self.unit) * 2 / 7 ** max(0, self.levels - 1)
        earlier = 4 * rows * wide * self.device.lanes * (self.chunks[0] > 1)
        return self.first_bytes(rows) + second + earlier


@lru_cache(maxsize=512)
def _best_brick(work: _Work, most: int) -> Shape:
    return work.best_brick(most)


def _moved(graph: Graph, node: Node) -> int:
    return graph.ins(node)[0].nbytes + graph.out(node).nbytes


def _far_us(nbytes: float, moved: int, device: DeviceSpec) -> float:
    """Time to read rows if they come from memory: products overlap that, sums do not."""
    far = moved > LAYER_CACHE_SHARE * device.shared[1]
    return read_us(nbytes, math.inf, device) if far else 0.0
