"""Take kernels: every kind of table, plain and blocked."""

from __future__ import annotations

import numpy as np
import pytest

import brickrt.ops.cpu.moves.take  # noqa: F401 (registers the kernels)
from brickrt.ops.affine_tables import Affine, affine, period
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.moves.index_tables import in_blocks
from brickrt.ops.cpu.operand import dense
from brickrt.ops.operators.move import Take
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.few_boxes import check_few
from tests.support.cpu.harness import AVX2, HOST, check

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]
PAD = (-1, -1, 0, 1, 2, 3, 4, 5, 6, -1)
NEAREST = (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6)
REFLECT = (2, 1, 0, 1, 2, 3, 4, 5, 6, 5)
HOLES = (0, -1, -1, 3, 6)
TABLES = {
    "slice": (None, (2, 3, 4), None, (1, 2, 3, 4, 5)),
    "steps": (None, (4, 2, 0), (6, 5, 4, 3, 2, 1, 0), (0, 2, 4, 6)),
    "pad": (None, (-1, 0, 1, 2, 3, 4, -1), PAD, PAD),
    "expand": ((0, 0, 0), None, None, (3,) * 20),
    "rows of one element": ((0, 0), None, None, (4,) * 37),
    "planes of one element": (None, None, (3,) * 9, (4,) * 37),
    "nearest": (None, None, NEAREST, NEAREST),
    "reflect": (None, None, REFLECT, REFLECT),
    "tiled": (None, None, tuple(range(7)) * 5, tuple(range(7)) * 4),
    "tiled outside": ((0, 1) * 3, (0, 1, 2, 3, 4) * 4, None, PAD),
    "tiled twice, in part": (None, None, NEAREST, tuple(range(4)) * 2),
    "gather": ((1, 0, 1), (3, 1, 1, 4), None, None),
    "holes": (None, (*HOLES[:1], 4, -1, 2), HOLES, HOLES),
    "nothing": (None, None, (-1, -1), None),
    "empty": (None, (), None, None),
}


def sample(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(7).standard_normal(shape) * 40).astype(dtype)


@pytest.mark.parametrize(("name", "isa"), [(name, (HOST, AVX2)[k % 2]) for k, name in enumerate(TABLES)])
def test_plain(name, isa):
    op = Take(TABLES[name], fill=2.5)
    x = sample((2, 5, 7, 7))
    check_few(op, [x], isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("reflects", [False, True])
def test_parts_without_the_borders_read_nothing_of_them(reflects, isa):
    """An element that all of a border repeats, or rows that it reflects, lie outside of what is there of the input."""
    rows, columns = ((*range(4, 0, -1), *range(n), *range(n - 2, n - 6, -1)) for n in (20, 40))
    if not reflects:
        rows, columns = ((0,) * 4 + tuple(range(n)) + (n - 1,) * 4 for n in (20, 40))
    lows, extents = [(0, 0, 10, 20), (0, 1, 4, 4), (1, 0, 24, 44), (0, 2, 0, 30)], (1, 1, 4, 4)
    boxes = [Boxes.one(lo, [a + n for a, n in zip(lo, extents)]) for lo in lows]
    check(Take((None, None, rows, columns)), [sample((2, 3, 20, 40))], isa, boxes=boxes, parts=boxes)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["pad", "nearest", "reflect", "holes", "nothing", "tiled"])
def test_blocked(name, isa):
    tables = (TABLES[name][0], None, *TABLES[name][2:])
    check_few(Take(tables, -1.0), [sample((2, 37, 7, 7))], isa, blocks=[isa.lanes], out_block=isa.lanes)


@pytest.mark.parametrize(
    ("table", "found"),
    [((0, 1, 2) * 2, 3), ((0, 1, 0), 0), ((0, 0), 0), ((1, 0, 1, 0), 0), ((0, 1, 0, 2), 0), ((), 0), (None, 0)],
)
def test_tables_that_repeat(table, found):
    assert period(table) == found


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("channels", [range(16, 37), range(32), range(32, 37), [*range(37), *[-1] * 0], [-1] * 16])
def test_blocked_channels(channels, isa):
    op = Take((None, tuple(channels), None, (6, 4, 2)), 3.0)
    check_few(op, [sample((1, 37, 3, 7))], isa, blocks=[isa.lanes], out_block=isa.lanes)


@pytest.mark.parametrize("shape", [(40,), (3, 21), (2, 3, 4, 5, 6), (2, 2, 2, 3, 2, 9), (1, 17, 5)])
def test_ranks(shape):
    tables = tuple((-1, *range(e - 1, -1, -1)) if axis % 2 else None for axis, e in enumerate(shape))
    check_few(Take(tables, 1.5), [sample(shape)])


@pytest.mark.parametrize(
    ("dtype", "isa"), [("bool", HOST), ("int16", AVX2), ("int64", HOST), ("float16", HOST), ("bfloat16", AVX2)]
)
def test_every_width(dtype, isa):
    op = Take((None, PAD[1:-1], (*range(3, 37), -1)), 1)
    check_few(op, [sample((2, 7, 40), dtype)], isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["uint8", "float16"])
@pytest.mark.parametrize("name", ["pad", "nearest", "holes"])
def test_blocks_of_narrow_elements(name, dtype, isa):
    tables = (TABLES[name][0], None, *TABLES[name][2:])
    check_few(Take(tables, 9), [sample((2, 37, 7, 7), dtype)], isa, blocks=[isa.lanes], out_block=isa.lanes)


@pytest.mark.parametrize(
    ("width", "isa"),
    [
        *((width, HOST) for width in (*range(1, 18), 31, 63, 64, 100, 127)),
        *((width, AVX2) for width in (1, 3, 7, 8, 9, 15, 16, 17, 31, 64, 127)),  # around its vectors and parts of them
    ],
)
def test_rows_of_any_number_of_bytes(width, isa):
    op = Take((None, (3, 0, -1), (*range(2, width + 2),)), 9)
    check_few(op, [sample((2, 4, width + 3), "int8")], isa)


def test_what_is_arithmetic():
    assert affine((-1, 3, 5, 7, -1), 5) == Affine(1, 2, 1, 4)
    assert affine((4, 4, 4), 3) == Affine(4, 0, 0, 3)
    assert affine((0, 0, 1, 1), 4) is None
    assert affine((0, -1, 2), 3) is None
    assert in_blocks(Affine(16, 1, 0, 40), 40, 16) == Affine(1, 1, 0, 3)
    assert in_blocks(Affine(8, 1, 0, 32), 32, 16) is None


def test_channels_between_lanes_are_refused():
    kind = TensorType((1, 32, 4), np.dtype("float32"))
    op = Take((None, tuple(range(8, 24)), None))
    with pytest.raises(LookupError, match="axis 1"):
        choose_kernel(op, [dense(kind, 16)], dense(op.infer([kind]), 16), HOST)
