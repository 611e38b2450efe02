"""Transpose, Reorder and View kernels against the NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

import brickrt.ops.cpu.moves.transpose  # noqa: F401 (registers the kernels)
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.operators.move import Reorder, Transpose, View
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.few_boxes import check_few
from tests.support.cpu.harness import AVX2, HOST, call

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]
WIDTHS = [("bool", AVX2), ("uint16", HOST), ("int64", AVX2), ("float64", HOST)]


def sample(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(7)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return rng.standard_normal(shape).astype(kind)
    return rng.integers(0, 2 if kind.kind == "b" else 100, shape).astype(kind)


TILED = [  # by tiles of vectors, which are others on each instruction set
    ((37, 41), (1, 0)),
    ((16, 32), (1, 0)),
    ((3, 50), (1, 0)),
    ((2, 3, 19, 18), (0, 2, 3, 1)),
    ((2, 19, 18, 3), (0, 3, 1, 2)),
]
INTERLEAVED = [  # full vectors of lines that lie by turns in one memory
    ((2, 53, 2), (0, 2, 1)),
    ((2, 5, 13, 3), (0, 3, 1, 2)),
    ((67, 8), (1, 0)),
    ((2, 3, 16, 4, 5), (4, 0, 1, 2, 3)),
    ((4, 3, 70), (0, 2, 1)),
    ((2, 8, 53), (0, 2, 1)),
    ((1, 4, 2, 3, 18), (0, 1, 3, 4, 2)),
]
FEW = [
    ((5,), (0,)),
    ((1, 7, 4, 21), (0, 2, 1, 3)),
    ((2, 3, 4, 5, 6), (4, 2, 0, 3, 1)),
    ((2, 1, 3, 2, 5, 4), (0, 3, 1, 4, 2, 5)),
    ((1, 4, 2, 2, 3, 5), (0, 1, 4, 2, 5, 3)),
]


@pytest.mark.parametrize(
    ("shape", "perm", "isa"),
    [
        *((*each, isa) for each in TILED + INTERLEAVED for isa in (HOST, AVX2)),
        *((*each, (HOST, AVX2)[k % 2]) for k, each in enumerate(FEW)),
    ],
)
def test_transpose(shape, perm, isa):
    check_few(Transpose(perm), [sample(shape)], isa)


@pytest.mark.parametrize(("dtype", "isa"), WIDTHS)
def test_transpose_of_every_width(dtype, isa):
    check_few(Transpose((0, 2, 1)), [sample((2, 19, 37), dtype)], isa)


@pytest.mark.parametrize(("dtype", "isa"), WIDTHS)
def test_lines_by_turns_of_every_width(dtype, isa):
    check_few(Transpose((0, 2, 1)), [sample((2, 53, 3), dtype)], isa)
    check_few(Transpose((0, 2, 1)), [sample((2, 5, 53), dtype)], isa)


@pytest.mark.parametrize("isa", ISAS)
def test_transpose_of_blocked_space(isa):
    check_few(Transpose((0, 1, 3, 2)), [sample((1, 37, 5, 6))], isa, blocks=[isa.lanes], out_block=isa.lanes)


SHAPES = [(1, 16, 4, 33), (2, 35, 5, 7), (1, 3, 9, 17), (2, 1, 20), (1, 40, 1, 1), (3, 21), (1, 20, 2, 3, 4)]


@pytest.mark.parametrize(("shape", "turn"), [(shape, k % 2) for k, shape in enumerate(SHAPES)])
def test_reorder(shape, turn):
    """To blocks on one instruction set, from them on the other, by turns."""
    x = sample(shape)
    to, back = ((HOST, AVX2), (AVX2, HOST))[turn]
    check_few(Reorder("blocked"), [x], to, out_block=to.lanes)
    check_few(Reorder("plain"), [x], back, blocks=[back.lanes])
    check_few(Reorder("plain"), [x], to)
    check_few(Reorder("blocked"), [x], back, blocks=[back.lanes], out_block=back.lanes)


@pytest.mark.parametrize(("dtype", "isa"), WIDTHS)
def test_reorder_of_every_width(dtype, isa):
    x = sample((1, 21, 3, 18), dtype)
    check_few(Reorder("blocked"), [x], isa, out_block=isa.lanes)
    check_few(Reorder("plain"), [x], isa, blocks=[isa.lanes])


def test_reorder_writes_zeros_to_tail_lanes():
    x = sample((1, 5, 2, 3))
    types = TensorType(x.shape, x.dtype)
    kernel = choose_kernel(Reorder("blocked"), [dense(types)], dense(types, 16), HOST)(
        Reorder("blocked"), (dense(types),), dense(types, 16), HOST, (False,)
    )
    out = np.full((1, 1, 2, 3, 16), np.nan, np.float32)
    call(kernel, [out.ctypes.data, x.ctypes.data], Boxes.whole(x.shape))
    assert (out[..., 5:] == 0).all()
    np.testing.assert_array_equal(out[..., :5], np.moveaxis(x[:, None], 2, -1))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("before", "after"),
    [((2, 3, 4), (24,)), ((24,), (2, 3, 4)), ((2, 6, 5), (4, 15)), ((1,), ()), ((), (1, 1)), ((7, 1, 3), (7, 3))],
)
def test_view(before, after, isa):
    check_few(View(after), [sample(before)], isa)


def test_layouts_nobody_takes():
    kind = TensorType((1, 32, 4, 4), np.dtype("float32"))
    blocked, plain = dense(kind, 16), dense(kind)
    isa = Isa(16, 32)
    for op, ins, out in [
        (Transpose((0, 2, 1, 3)), blocked, blocked),
        (View((1, 32, 16)), blocked, plain),
        (Reorder("blocked"), dense(kind, 8), blocked),
    ]:
        with pytest.raises(LookupError, match=r"reorder|plain"):
            choose_kernel(op, [ins], out, isa)
