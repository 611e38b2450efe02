"""Pool kernels: windows over every edge, in 1 to 3 dimensions."""

from __future__ import annotations

import numpy as np
import pytest

import brickrt.ops.cpu.pool.kernel  # noqa: F401 (registers the kernels)
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.operators.pool import Pool
from brickrt.ops.types import TensorType
from tests.support.cpu.few_boxes import check_few
from tests.support.cpu.harness import AVX2, HOST, random_boxes, run_kernel

WINDOWS = {
    "3x3/2": Pool("max", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    "2x3 uneven": Pool("max", (2, 3), (1, 2), (1, 1), (0, 2), (1, 0)),
    "dilated": Pool("max", (3, 2), (1, 1), (2, 3), (2, 1), (1, 2)),
    "ceil": Pool("max", (3, 3), (2, 3), (1, 1), (0, 1), (0, 1), ceil=True),
    "large": Pool("max", (7, 9), (1, 1), (1, 1), (3, 4), (3, 4)),
    "global": Pool("max", (11, 17), (1, 1), (1, 1), (0, 0), (0, 0)),
}


def with_kind(op: Pool, kind: str, include: bool = False, p: int = 2) -> Pool:
    return Pool(kind, op.kernel, op.strides, op.dilations, op.pads, op.pads_end, op.ceil, include, p)


def sample(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(3).standard_normal(shape) * 20).astype(dtype)


def check_both(op: Pool, x: np.ndarray, isa, blocked_isa=None) -> None:
    """Plain and blocked."""
    rounding = {"float16": 2e-3, "bfloat16": 1e-2}.get(x.dtype.name)
    tolerance = {"rtol": rounding, "atol": 1e-2} if rounding else {"rtol": 1e-5, "atol": 1e-5}
    check_few(op, [x], isa, **tolerance)
    isa = blocked_isa or isa
    blocked = {"blocks": [isa.lanes], "out_block": isa.lanes}
    check_few(op, [x], isa, **blocked, **tolerance)


@pytest.mark.parametrize("name", WINDOWS)
def test_max(name):
    """Plain on one instruction set and blocked on the other, by turns."""
    turn = list(WINDOWS).index(name) % 2
    check_both(WINDOWS[name], sample((2, 19, 11, 17)), *((HOST, AVX2), (AVX2, HOST))[turn])


@pytest.mark.parametrize(("name", "include"), [*((name, True) for name in WINDOWS), ("3x3/2", False), ("ceil", False)])
def test_average(name, include):
    check_both(with_kind(WINDOWS[name], "average", include), sample((1, 19, 11, 17)), HOST)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp(p):
    check_both(with_kind(WINDOWS["3x3/2"], "lp", p=p), sample((1, 5, 11, 17)), HOST)


@pytest.mark.parametrize(("kind", "isa"), [("max", HOST), ("average", AVX2)])
@pytest.mark.parametrize(
    ("shape", "kernel", "pads"),
    [((2, 3, 50), (4,), (2,)), ((1, 18, 5, 4, 6), (2, 3, 3), (0, 1, 1)), ((1, 2, 1), (1,), (0,))],
)
def test_other_ranks(shape, kernel, pads, kind, isa):
    ones = (1,) * len(kernel)
    check_both(Pool(kind, kernel, ones, ones, pads, pads), sample(shape), isa)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *(("max", dtype) for dtype in ("int8", "uint8", "float16")),
        *(("average", dtype) for dtype in ("int64", "float64", "bfloat16")),
    ],
)
def test_every_type(dtype, kind):
    op = with_kind(WINDOWS["3x3/2"], kind)
    x = np.abs(sample((1, 5, 7, 19))).astype(dtype) % 13
    check_both(op, x.astype(dtype), AVX2)


@pytest.mark.parametrize("block", [1, HOST.lanes])
@pytest.mark.parametrize(
    ("shape", "op"),
    [
        ((1, 3, 50), Pool("average", (3,), (3,), (1,), (1,), (1,), count_include_pad=True)),
        ((1, 3, 50), Pool("average", (6,), (1,), (1,), (2,), (3,))),
        ((1, 18, 13, 17), Pool("average", (5, 4), (1, 1), (1, 1), (2, 2), (2, 1))),
        ((1, 18, 13, 17), Pool("average", (7, 9), (2, 1), (1, 1), (3, 4), (3, 4), count_include_pad=True)),
        ((1, 3, 6, 7, 9), Pool("lp", (3, 2, 4), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 0, 2))),
    ],
)
def test_sums_have_the_same_bits_wherever_boxes_begin_and_end(shape, op, block):
    x = sample(shape)
    stored = {"blocks": [block], "out_block": block}
    out = op.infer([TensorType(shape, x.dtype)]).shape
    whole, *boxes = random_boxes(out, 6, block)
    expected = run_kernel(op, [x], whole, HOST, **stored)
    for box in boxes:
        np.testing.assert_array_equal(run_kernel(op, [x], box, HOST, **stored), expected[box.slices()])


def test_max_of_booleans():
    check_both(WINDOWS["3x3/2"], sample((1, 5, 7, 19)) > 25, HOST)


@pytest.mark.parametrize("name", ["3x3/2", "large"])
def test_nan_is_the_largest(name):
    x = sample((1, 17, 11, 17))
    x[np.random.default_rng(1).random(x.shape) < 0.01] = np.nan
    x[0, 3, :4, :4] = -np.inf
    check_both(WINDOWS[name], x, HOST)


def test_refusals():
    kind = TensorType((1, 16, 5, 5), np.dtype("float32"))
    op = WINDOWS["3x3/2"]
    with pytest.raises(LookupError, match="reorder"):
        choose_kernel(op, [dense(kind)], dense(op.infer([kind]), 16), HOST)
    flags = TensorType(kind.shape, np.dtype(bool))
    with pytest.raises(LookupError, match="booleans"):
        choose_kernel(with_kind(op, "average"), [dense(flags)], dense(op.infer([flags])), HOST)
