"""Concat kernels, plain and blocked."""

from __future__ import annotations

import numpy as np
import pytest

import brickrt.ops.cpu.moves.concat  # noqa: F401 (registers the kernels)
from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.operators.move import Concat
from brickrt.ops.types import TensorType
from tests.support.cpu.few_boxes import check_few
from tests.support.cpu.harness import AVX2, HOST

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]


def parts(shape: tuple[int, ...], axis: int, extents: list[int], dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    shapes = [(*shape[:axis], e, *shape[axis + 1 :]) for e in extents]
    return [(rng.standard_normal(s) * 40).astype(dtype) for s in shapes]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_plain(axis, isa):
    check_few(Concat(axis), parts((2, 3, 4, 19), axis, [2, 1, 33, 4]), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("axis", "extents"), [(0, [1, 2]), (1, [16, 32, 5]), (1, [32, 16]), (2, [1, 4]), (3, [3, 2, 1])]
)
def test_blocked(axis, extents, isa):
    x = parts((1, 21, 2, 5), axis, extents)
    check_few(Concat(axis), x, isa, blocks=[isa.lanes] * len(x), out_block=isa.lanes)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "uint64", "bfloat16", "float64"])
def test_every_width(dtype):
    check_few(Concat(1), parts((3, 1), 1, [70, 1, 20], dtype), AVX2)


@pytest.mark.parametrize("shape", [(1,), (2, 2, 2, 2, 2, 3)])
def test_ranks(shape):
    check_few(Concat(0), parts(shape, 0, [1, 18, 0, 2]))


def test_ragged_channels_are_refused():
    kinds = [TensorType((1, c, 4), np.dtype("float32")) for c in (8, 24)]
    out = dense(Concat(1).infer(kinds), 16)
    with pytest.raises(LookupError, match="multiples of 16"):
        choose_kernel(Concat(1), [dense(k, 16) for k in kinds], out, HOST)
