"""Random operators with inputs they accept: small, odd, strided, dilated, grouped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from brickrt.ops.base import Op
from brickrt.ops.expr import Expr, apply, arg, cast, const, substitute
from brickrt.ops.operators.block_matmul import BlockMatMul
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.gather_rows import GatherRows
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Reorder, Take, Transpose, View
from brickrt.ops.operators.partial_moments import PartialMoments
from brickrt.ops.operators.partial_reduce import PartialReduce
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce, RunningSum
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.ops.operators.sampling.deformed_columns import DeformedColumns
from brickrt.ops.operators.sampling.grid_sample import GridSample, Mode
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp
from brickrt.ops.types import Boxes, TensorType

F32 = np.dtype(np.float32)
Draw = Callable[[st.SearchStrategy], int]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class OperatorCase:
    """An operator and its inputs."""

    op: Op
    arrays: tuple[np.ndarray, ...]

    @property
    def ins(self) -> list[TensorType]:
        return [TensorType(a.shape, a.dtype) for a in self.arrays]


def integers(lo: int, hi: int) -> st.SearchStrategy[int]:
    return st.integers(lo, hi)


def ints(draw: Draw, count: int, lo: int, hi: int) -> tuple[int, ...]:
    return tuple(draw(integers(lo, hi)) for _ in range(count))


def make_arrays(draw: Draw, shapes: list[Shape], dtype: np.dtype = F32) -> tuple[np.ndarray, ...]:
    """Small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(draw(integers(0, 1000)))
    return tuple(rng.integers(-4, 5, shape).astype(dtype) for shape in shapes)


def operand_shape(draw: Draw, shape: Shape) -> Shape:
    """A shape that broadcasts to `shape`."""
    tail = shape[draw(integers(0, len(shape))) :]
    return tuple(1 if draw(st.booleans()) else e for e in tail)


def epilogue(draw: Draw, shape: Shape) -> tuple[Expr | None, list[Shape]]:
    """A random epilogue and the shapes of its extra operands."""
    product = arg(0, F32)
    kind = draw(st.sampled_from(["none", "relu", "add", "scale"]))
    if kind == "none":
        return None, []
    if kind == "relu":
        return apply("max", product, const(0, F32)), []
    if kind == "add":
        return apply("add", product, arg(1, F32)), [operand_shape(draw, shape)]
    both = apply("add", apply("mul", product, arg(1, F32)), arg(2, F32))
    return both, [operand_shape(draw, shape), operand_shape(draw, shape)]


def gated(tail: Expr | None, parts: int) -> Expr | None:
    """An epilogue of the product of so many parts."""
    if parts == 1:
        return tail
    gate: Expr = arg(0, F32)
    for k in range(1, parts):
        gate = apply("mul", gate, arg(k, F32))
    return gate if tail is None else substitute(tail, {0: gate} | {k: arg(k + parts - 1, F32) for k in (1, 2)})


def fitted(op: Op, shapes: list[Shape]) -> Shape | None:
    """The shape of the output; None if the parameters leave none."""
    try:
        return op.infer([TensorType(s, F32) for s in shapes]).shape
    except ValueError:
        return None


@st.composite
def convolutions(draw: Draw, transposed: bool, plain: bool = False) -> OperatorCase:
    """With `plain`, no epilogue, and no padding where clipping it could leave a gap of a dilated window at the edge."""
    rank, groups = draw(integers(1, 3)), draw(integers(1, 3))
    top = 9 if rank < 3 else 5
    parts = 1 if transposed or plain else draw(integers(1, 3))
    c, m = groups * draw(integers(1, 3)), groups * parts * draw(integers(1, 3))
    kernel, strides, dilations = ints(draw, rank, 1, 3), ints(draw, rank, 1, 3), ints(draw, rank, 1, 2)
    top_pad = 0 if plain and not transposed else 4
    pads, pads_end = ints(draw, rank, 0, top_pad), ints(draw, rank, 0, top_pad)
    x = (draw(integers(1, 2)), c, *ints(draw, rank, 1, top))
    bias = draw(st.booleans()) and not plain
    scaled = groups == 1 and not (transposed or plain) and draw(st.booleans())
    settings = (kernel, strides, dilations, pads, pads_end)
    extra = tuple(draw(integers(0, s - 1)) for s in strides)

    def build(tail: Expr | None) -> Op:
        if transposed:
            return ConvTranspose(*settings, extra, groups, bias, tail)
        return Conv(*settings, groups, bias, gated(tail, parts), parts, scaled)

    w = (c, m // groups, *kernel) if transposed else (m, c // groups, *kernel)
    shapes: list[Shape] = [x, w] + ([(m,)] if bias else [])
    shapes += [(draw(st.sampled_from([1, x[0]])), c, *(1,) * rank)] if scaled else []
    out = fitted(build(None), shapes)
    if out is None:
        pads = pads_end = (0,) * rank
        settings = (kernel, strides, (1,) * rank, pads, pads_end)
        shapes[0] = (*x[:2], *(max(e, k) for e, k in zip(x[2:], kernel, strict=True)))
        out = fitted(build(None), shapes)
    assert out is not None
    tail, extras = (None, []) if plain else epilogue(draw, out)
    return OperatorCase(build(tail), make_arrays(draw, shapes + extras))


@st.composite
def pools(draw: Draw) -> OperatorCase:
    rank = draw(integers(1, 3))
    kind = draw(st.sampled_from(["max", "average", "lp"]))
    kernel, strides, dilations = ints(draw, rank, 1, 3), ints(draw, rank, 1, 4), ints(draw, rank, 1, 2)
    pads = tuple(draw(integers(0, k - 1)) for k in kernel)
    pads_end = tuple(draw(integers(0, k - 1)) for k in kernel)
    smallest = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    x = (draw(integers(1, 2)), draw(integers(1, 3)), *(e + draw(integers(0, 5)) for e in smallest))
    settings = (kind, kernel, strides, dilations, pads, pads_end, draw(st.booleans()), draw(st.booleans()))
    dtype = np.dtype(draw(st.sampled_from(["float32", "int8"]))) if kind == "max" else F32
    return OperatorCase(Pool(*settings, p=draw(integers(1, 3))), make_arrays(draw, [x], dtype))


@st.composite
def maps(draw: Draw) -> OperatorCase:
    shape = ints(draw, draw(integers(0, 4)), 1, 5)
    a, b, c = (arg(k, F32) for k in range(3))
    expr = apply("where", apply("lt", a, b), apply("mul", b, c), cast(cast(a, "int32"), F32))
    return OperatorCase(Map(expr), make_arrays(draw, [shape, operand_shape(draw, shape), operand_shape(draw, shape)]))


@st.composite
def segments(draw: Draw) -> OperatorCase:
    shape = ints(draw, draw(integers(1, 4)), 1, 9)
    combine = draw(st.sampled_from(["sum", "prod", "max", "min"]))
    return OperatorCase(PartialReduce(combine, draw(integers(1, 5))), make_arrays(draw, [shape]))


@st.composite
def moments(draw: Draw) -> OperatorCase:
    """Segments have lengths by which means are exact."""
    shape = ints(draw, draw(integers(1, 4)), 1, 9)
    return OperatorCase(PartialMoments(draw(st.sampled_from([1, 2, 4, 8]))), make_arrays(draw, [shape]))


@st.composite
def reductions(draw: Draw) -> OperatorCase:
    shape = ints(draw, draw(integers(1, 4)), 1, 5)
    axes = draw(st.sets(integers(0, len(shape) - 1), min_size=1))
    pre = post = None
    shapes = [shape]
    if draw(st.booleans()):
        difference = apply("sub", arg(0, F32), arg(1, F32))
        pre = apply("mul", difference, difference)
        shapes.append(operand_shape(draw, shape))
    if draw(st.booleans()):
        post = apply("div", arg(0, F32), const(2, F32))
    combine = draw(st.sampled_from(["sum", "prod", "max", "min"]))
    return OperatorCase(Reduce(combine, tuple(sorted(axes)), draw(st.booleans()), pre, post), make_arrays(draw, shapes))


@st.composite
def rowwises(draw: Draw) -> OperatorCase:
    """max, then a sum of differences from it, which may be kept, times an operand."""
    shape = ints(draw, draw(integers(1, 4)), 1, 5)
    axes = draw(st.sets(integers(0, len(shape) - 1), min_size=1))
    x, weight, top, total, kept = (arg(k, F32) for k in range(5))
    difference = apply("sub", x, top)
    keeps = draw(st.booleans())
    pre, value = (kept, kept) if keeps else (difference, difference)
    steps = (Step("max", x), Step("sum", pre, apply("mul", arg(0, F32), const(2, F32))))
    expr = apply("add", apply("mul", value, weight), total)
    op = Rowwise(tuple(sorted(axes)), steps, expr, difference if keeps else None)
    return OperatorCase(op, make_arrays(draw, [shape, operand_shape(draw, shape)]))


@st.composite
def takes(draw: Draw) -> OperatorCase:
    shape = ints(draw, draw(integers(0, 4)), 1, 6)
    tables = []
    for extent in shape:
        entries = st.lists(integers(-1, extent - 1), min_size=1, max_size=7).map(tuple)
        tables.append(draw(st.none() | entries))
    return OperatorCase(Take(tuple(tables), 0), make_arrays(draw, [shape]))


@st.composite
def concats(draw: Draw) -> OperatorCase:
    shape = ints(draw, draw(integers(1, 4)), 1, 4)
    axis = draw(integers(0, len(shape) - 1))
    sizes = ints(draw, draw(integers(1, 4)), 0, 4)
    shapes = [(*shape[:axis], e, *shape[axis + 1 :]) for e in (*sizes, 1)]
    return OperatorCase(Concat(axis), make_arrays(draw, shapes))


@st.composite
def transposes(draw: Draw) -> OperatorCase:
    shape = ints(draw, draw(integers(1, 4)), 1, 5)
    perm = draw(st.permutations(range(len(shape))))
    return OperatorCase(Transpose(tuple(perm)), make_arrays(draw, [shape]))


@st.composite
def views(draw: Draw) -> OperatorCase:
    """Two ways of multiplying the same small factors together."""
    factors = ints(draw, draw(integers(0, 6)), 1, 4)
    shapes = []
    for _ in range(2):
        shape, run = [], 1
        for factor in factors:
            run *= factor
            if draw(st.booleans()):
                shape.append(run)
                run = 1
        shapes.append((*shape, run) if run > 1 or draw(st.booleans()) else tuple(shape))
    return OperatorCase(View(shapes[1]), make_arrays(draw, shapes[:1]))


@st.composite
def interps(draw: Draw) -> OperatorCase:
    shape = ints(draw, draw(integers(1, 4)), 1, 5)
    rng = np.random.default_rng(draw(integers(0, 1000)))
    taps: list[AxisTaps | None] = []
    for extent in shape:
        if draw(st.booleans()):
            size = (draw(integers(1, 6)), draw(integers(1, 4)))
            indices, weights = rng.integers(0, extent, size), rng.integers(-3, 4, size) / 4
            taps.append(AxisTaps(tuple(map(tuple, indices.tolist())), tuple(map(tuple, weights.tolist()))))
        else:
            taps.append(None)
    return OperatorCase(Interp(tuple(taps)), make_arrays(draw, [shape]))


@st.composite
def products(draw: Draw) -> OperatorCase:
    batch = ints(draw, draw(integers(0, 2)), 1, 3)
    m, k, n = ints(draw, 3, 1, 5)
    bias = draw(st.booleans())
    shapes: list[Shape] = [(*operand_shape(draw, batch), m, k), (*operand_shape(draw, batch), k, n)]
    shapes += [(n,)] if bias else []
    out = fitted(MatMul(bias), shapes)
    assert out is not None
    tail, extras = epilogue(draw, out)
    return OperatorCase(MatMul(bias, tail), make_arrays(draw, shapes + extras))


@st.composite
def block_products(draw: Draw) -> OperatorCase:
    bits, batch = draw(st.sampled_from((4, 8))), ints(draw, draw(integers(0, 2)), 1, 3)
    m, half, n = ints(draw, 3, 1, 4)
    block, depth = 2 * draw(integers(1, 3)), 2 * half
    rng, blocks = np.random.default_rng(draw(integers(0, 1000))), -(-depth // block)
    x, *bias = make_arrays(draw, [(*batch, m, depth), *[(n,)] * draw(integers(0, 1))])
    q = rng.integers(0, 256, (depth * bits // 8, n)).astype(np.uint8)
    scale = (rng.integers(1, 9, (blocks, n)) / 8).astype(np.float32)
    zero = rng.integers(0, 2**bits, (blocks, n)).astype(np.uint8)
    return OperatorCase(BlockMatMul(bool(bias), block=block, bits=bits), (x, q, scale, zero, *bias))


def reorders() -> st.SearchStrategy[OperatorCase]:
    return transposes().map(lambda case: OperatorCase(Reorder("blocked"), case.arrays))


@st.composite
def boxes_of(draw: Draw, shape: Shape, n: int, empty: bool = False) -> Boxes:
    """`n` boxes of a tensor; with `empty`, boxes without elements too."""
    lo, hi = np.zeros((2, n, len(shape)), np.int64)
    for k in range(n):
        for axis, extent in enumerate(shape):
            lo[k, axis] = draw(integers(0, extent - (not empty)))
            hi[k, axis] = draw(integers(int(lo[k, axis]) + (not empty), extent))
    return Boxes(lo, hi)


@st.composite
def running_sums(draw: Draw) -> OperatorCase:
    shape = ints(draw, draw(integers(2, 4)), 1, 5)
    axis = draw(integers(0, len(shape) - 2))
    return OperatorCase(RunningSum(axis, draw(st.booleans())), make_arrays(draw, [shape]))


@st.composite
def grid_samples(draw: Draw) -> OperatorCase:
    axes = draw(integers(2, 3))
    modes: list[Mode] = ["nearest", "linear", "cubic"][: 5 - axes]
    op = GridSample(draw(st.sampled_from(modes)), draw(st.sampled_from(["zeros", "border"])), draw(st.booleans()))
    (x,) = make_arrays(draw, [(draw(integers(1, 2)), draw(integers(1, 3)), *ints(draw, axes, 1, 4))])
    rng = np.random.default_rng(draw(integers(0, 1000)))
    return OperatorCase(op, (x, rng.uniform(-1.5, 1.5, (len(x), *ints(draw, axes, 1, 4), axes)).astype(F32)))


@st.composite
def rows_of_tables(draw: Draw) -> OperatorCase:
    (table,) = make_arrays(draw, [ints(draw, 2, 1, 6)])
    rng = np.random.default_rng(draw(integers(0, 1000)))
    return OperatorCase(GatherRows(), (table, rng.integers(0, len(table), ints(draw, draw(integers(1, 3)), 1, 4))))


@st.composite
def deformed_columns(draw: Draw) -> OperatorCase:
    axes, taps, groups = draw(integers(2, 3)), draw(integers(1, 3)), draw(integers(1, 2))
    (x,) = make_arrays(draw, [(draw(integers(1, 2)), groups * draw(integers(1, 2)), *ints(draw, axes, 1, 4))])
    outputs, rng = ints(draw, axes, 1, 4), np.random.default_rng(draw(integers(0, 1000)))
    points = rng.uniform(-2, 5, (len(x), groups * taps * axes, *outputs)).astype(F32)
    factors = rng.uniform(0, 1, (len(x), groups * taps, *outputs)).astype(F32)
    return OperatorCase(DeformedColumns(taps), (x, points, factors)[: draw(integers(2, 3))])


FAMILIES: dict[str, st.SearchStrategy[OperatorCase]] = {
    "conv": convolutions(False),
    "conv_transpose": convolutions(True),
    "pool": pools(),
    "map": maps(),
    "reduce": reductions(),
    "running_sum": running_sums(),
    "segments": segments(),
    "moments": moments(),
    "rowwise": rowwises(),
    "take": takes(),
    "concat": concats(),
    "transpose": transposes(),
    "view": views(),
    "reorder": reorders(),
    "interp": interps(),
    "gather_rows": rows_of_tables(),
    "grid_sample": grid_samples(),
    "deformed_columns": deformed_columns(),
    "matmul": products(),
    "block_matmul": block_products(),
}
