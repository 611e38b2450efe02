"""Which kernels share code: what one of a size is compiled to is good for those of others, with the table of theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import brickrt.ops.cpu.all_kernels  # noqa: F401 (registers the kernels)
from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.kernel import Kernel, choose_kernel
from brickrt.ops.cpu.operand import Operand, dense
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.cpu.sized_kernel import emit_sized, in_words, outline
from brickrt.ops.cpu.strassen.kernel import StrassenKernel
from brickrt.ops.cpu.winograd.kernel import WinogradMaker
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Reorder, Take
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import middle
from tests.support.cpu.harness import HOST, check, run_kernel

F32 = np.dtype(np.float32)
LANES = HOST.lanes


def operand(*shape: int, block: int = 1) -> Operand:
    """A dense tensor."""
    return dense(TensorType(shape, F32), block)


def kernel(op: Op, *ins: Operand, block: int = 1, packed: tuple[int, ...] = (), maker=None) -> Kernel:
    """That of the whole output; inputs `packed` are constants."""
    out = dense(op.infer([each.type for each in ins]), block)
    cls = maker or choose_kernel(op, ins, out, HOST)
    _, classes = cls.classify(op, ins, out, Boxes.whole(out.shape), HOST)
    return cls(op, ins, out, HOST, tuple(i in packed for i in range(len(ins))), classes[0])


def taps(extent: int, outputs: int) -> AxisTaps:
    """Two taps an output."""
    first = [min(i * extent // outputs, extent - 2) for i in range(outputs)]
    return AxisTaps(tuple((i, i + 1) for i in first), ((0.25, 0.75),) * outputs)


def resized(n: int) -> Kernel:
    op = Interp((None, None, taps(n, 2 * n), taps(n + 3, 3 * n)))
    return kernel(op, operand(1, 2 * LANES, n, n + 3, block=LANES), block=LANES)


def nearest(n: int) -> Kernel:
    table = tuple(i // 2 for i in range(2 * n))
    return kernel(Take((None, None, table, table)), operand(1, 3, n, n))


def doubled(n: int) -> Kernel:
    table = tuple(i // 2 for i in range(2 * n))
    return kernel(Take((None, None, table, table)), operand(1, 2 * LANES, n, n, block=LANES), block=LANES)


def joined(n: int) -> Kernel:
    ins = operand(1, 2 * LANES, n, n + 1, block=LANES), operand(1, LANES, n, n + 1, block=LANES)
    return kernel(Concat(1), *ins, block=LANES)


def laid_out_plainly(n: int) -> Kernel:
    return kernel(Reorder("plain"), operand(1, 2 * LANES + 3, n, n + 1, block=LANES))


def mean(n: int) -> Kernel:
    post = apply("div", arg(0, F32), const(n * n, F32))
    return kernel(Reduce("sum", (2, 3), True, None, post), operand(1, 2 * LANES, n, n, block=LANES), block=LANES)


def with_positions(n: int) -> Kernel:
    op = Map(apply("add", arg(0, F32), arg(1, F32)))
    return kernel(op, operand(1, n, 48), operand(1, n, 48), packed=(1,))


def first_token(n: int) -> Kernel:
    """A row of a tensor of n rows, times a matrix."""
    a = Operand(TensorType((1, 1, 48), F32), (48 * n, 48, 1))
    return kernel(MatMul(), a, operand(48, 32), packed=(1,))


def scores(n: int) -> Kernel:
    return kernel(MatMul(), operand(1, 4, n, 32), operand(1, 4, 32, n))


def winograd(n: int) -> Kernel:
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, False, None)
    ins = operand(1, 2 * LANES, n, n, block=LANES), operand(2 * LANES, 2 * LANES, 3, 3)
    return kernel(op, *ins, block=LANES, packed=(1,), maker=WinogradMaker(4))


def row_of_edges(n: int) -> Kernel:
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, False, None)
    ins = operand(1, 2 * LANES, 40, n, block=LANES), operand(2 * LANES, 2 * LANES, 3, 3)
    return kernel(op, *ins, block=LANES, packed=(1,), maker=ConvKernel)


def winograd_of_channels(c: int) -> Kernel:
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, True, None)
    ins = operand(1, c, 20, 20, block=LANES), operand(2 * c, c, 3, 3), operand(2 * c)
    return kernel(op, *ins, block=LANES, packed=(1, 2), maker=WinogradMaker(4))


def pointwise(c: int) -> Kernel:
    op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1, True, apply("add", arg(0, F32), arg(1, F32)))
    ins = operand(1, c, 8, 20, block=LANES), operand(4 * c, c, 1, 1), operand(4 * c)
    return kernel(op, *ins, operand(1, 4 * c, 8, 20, block=LANES), block=LANES, packed=(1, 2), maker=ConvKernel)


def depthwise(c: int) -> Kernel:
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), c, True, None)
    ins = operand(1, c, 9, 40, block=LANES), operand(c, 1, 3, 3), operand(c)
    return kernel(op, *ins, block=LANES, packed=(1, 2))


def strassen(c: int) -> Kernel:
    op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1, True, None)
    ins = operand(1, 8 * LANES, 20, 20, block=LANES), operand(c, 8 * LANES, 1, 1), operand(c)
    return kernel(op, *ins, block=LANES, packed=(1, 2), maker=StrassenKernel)


def scaled(c: int) -> Kernel:
    op = Map(apply("mul", arg(0, F32), arg(1, F32)))
    return kernel(op, operand(1, c, 9, 9, block=LANES), operand(1, c, 1, 1), block=LANES, packed=(1,))


def highest(c: int) -> Kernel:
    return kernel(Pool("max", (2, 2), (2, 2), (1, 1), (0, 0), (0, 0)), operand(1, c, 18, 18, block=LANES), block=LANES)


@pytest.mark.parametrize(
    ("made", "sizes"),
    [
        (winograd_of_channels, [2 * LANES, 4 * LANES, 18 * LANES]),
        (pointwise, [2 * LANES, 5 * LANES]),
        (depthwise, [LANES, 3 * LANES, 5 * LANES + 1]),
        (strassen, [8 * LANES, 12 * LANES, 100 * LANES]),
        (scaled, [LANES, 3 * LANES]),
        (highest, [LANES, 3 * LANES]),
        (resized, [20, 33, 150]),
        (nearest, [20, 33, 150]),
        (doubled, [5, 9, 16, 17, 150]),
        (joined, [2, 7, 16, 17, 150]),
        (laid_out_plainly, [2, 7, 16, 17, 150]),
        (mean, [40, 57, 64]),
        (with_positions, [17, 30, 512]),
        (first_token, [7, 30, 512]),
        (scores, [30, 64, 62]),  # of few whole vectors, too
        (winograd, [9, 12, 17, 24, 33, 80, 200]),  # register tiles of all numbers of tiles
        (row_of_edges, [41, 66, 97, 111]),
    ],
)
def test_sizes_share_code(made: Callable[[int], Kernel], sizes: list[int]):
    first = made(sizes[0])
    _, table = emit_sized(replace(first, broad=True), "k")
    program = SizeProgram.of(table.answers, table.entries)
    for n in sizes:
        shape = outline(made(n))
        assert shape.text == outline(first).text, n
        assert program.table(shape.numbers) is not None, n


def test_tables_begin_at_words():
    tables = [np.arange(3, dtype=np.int64), np.ones(3, np.float32), np.ones(1, np.float64)]
    words = in_words(tables)
    assert words[:3].tolist() == [0, 1, 2] and len(words) == 3 + 2 + 1
    assert words[3:].view(np.float32)[:4].tolist() == [1, 1, 1, 0] and words[5:].view(np.float64)[0] == 1


@pytest.mark.parametrize("n", [6, 11, 30])
def test_what_is_looked_up_is_that_of_the_size(n):
    """The harness runs the first code that fits: all sizes but one run that of another."""
    x = np.random.default_rng(n).standard_normal((1, LANES, n, n + 3)).astype(np.float32)
    op = Interp((None, None, taps(n, 2 * n), taps(n + 3, 3 * n)))
    check(op, [x], blocks=[LANES], out_block=LANES)
    table = tuple(i * n // (3 * n) for i in range(3 * n))
    check(Take((None, None, table, None)), [x])


@pytest.mark.parametrize("n", [2, 3, 7, 16, 33])
def test_copies_of_images_in_blocks_run_the_code_of_others(n):
    """Channels that do not fill the last block, too."""
    rng, c = np.random.default_rng(n), 2 * LANES + 3
    x, y = (rng.standard_normal((2, c, n, n + 1)).astype(np.float32) for c in (LANES, c))
    table = tuple(i // 2 for i in range(2 * n))
    check(Take((None, None, table, None)), [y], blocks=[LANES], out_block=LANES)
    check(Concat(1), [x, y], blocks=[LANES, LANES], out_block=LANES)
    check(Reorder("plain"), [y], blocks=[LANES])
    check(Reorder("blocked"), [y], out_block=LANES)


def of_channels(count: int, *sides: int, cut: bool) -> dict:
    """Boxes of all channels, and of all but the first block; if `cut`, of none, of a part of one row and of parts
    of more rows as well, which have kernels of their own."""
    boxes = [Boxes.one((0, lo, 0, 0), (1, count, *sides)) for lo in (0, LANES)]
    rows = Boxes.one((0, 0, 2, 3), (1, count, 3, 9))
    more = [Boxes.one((0,) * 4, (0,) * 4), rows, middle((1, count, *sides), LANES)] if cut else []
    return {"boxes": [*boxes, *more], "scratch": False}


@pytest.mark.parametrize(
    ("c", "cut"),
    [(2 * LANES, True), *((c, False) for c in (3 * LANES, 4 * LANES, 5 * LANES + 3, 9 * LANES + 1))],
)
def test_channels_run_the_code_of_others(c, cut):
    """Weights, biases and operands of an epilogue too; blocks that are partial, and tiles of blocks that are."""
    rng, relu = np.random.default_rng(c), apply("max", arg(0, F32), const(0, F32))
    x = rng.standard_normal((1, c, 11, 23)).astype(np.float32)
    w = (rng.standard_normal((c + LANES, c, 3, 3)) / c).astype(np.float32)
    bias, single = w[:, 0, 0, 0].copy(), w[:c, :1].copy()
    same, flat = ((1, 1), (1, 1)), ((0, 0), (0, 0))
    layout = {"blocks": [LANES, 1, 1], "out_block": LANES, "packed": [False, True, True]}
    given, fewer = layout | of_channels(c + LANES, 11, 23, cut=cut), layout | of_channels(c, 6, 23, cut=cut)
    conv = Conv((3, 3), (1, 1), (1, 1), *same, 1, True, relu)
    check(conv, [x, w, bias], kernel_cls=WinogradMaker(4), rtol=1e-4, atol=1e-4, **given)
    check(conv, [x, w, bias], kernel_cls=ConvKernel, **given)
    check(Conv((3, 3), (2, 1), (1, 1), *same, c, True, relu), [x, single, bias[:c]], **fewer)
    pointwise = Conv((1, 1), (1, 1), (1, 1), *flat, 1, True, relu)
    check(pointwise, [x, w[:, :, :1, :1], bias], kernel_cls=ConvKernel, **given)
    check(pointwise, [x, w[:, :, :1, :1], bias], kernel_cls=StrassenKernel, rtol=1e-4, atol=1e-4, **given)
    pool = Pool("average", (3, 3), (1, 2), (1, 1), *same)
    check(pool, [x], blocks=[LANES], out_block=LANES, **of_channels(c, 11, 12, cut=cut))


@pytest.mark.parametrize("n", [18, 37, 200])
def test_means_divide_by_their_own_number(n):
    x = np.random.default_rng(n).standard_normal((2, 5, n)).astype(np.float32)
    op = Reduce("sum", (2,), True, None, apply("div", arg(0, F32), const(n, F32)))
    got = run_kernel(op, [x], Boxes.whole((2, 5, 1)))
    np.testing.assert_allclose(got, x.astype(np.float64).mean(2, keepdims=True), rtol=1e-5, atol=1e-6)
