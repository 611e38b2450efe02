"""Products of matrices as CUDA kernels, run on the host, against their NumPy definition."""

import numpy as np
import pytest

from brickrt.ops.cuda.kernel import THREADS
from brickrt.ops.operators.matmul import MatMul
from tests.support.cuda.cases.product_cases import TOLERANCE, close, silu, some_boxes, values
from tests.support.cuda.host_kernels import expected, needs_compiler, run_on_host

pytestmark = needs_compiler


def check(a, b, dtype=np.float32, packed=False, extras=(), op=None, boxes=None, precision="fp32", layouts=None):
    op = op or MatMul()
    shapes = [a, b, *[b[-1:]] * op.bias, *extras]
    arrays = [values(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    wanted = expected(op, arrays)
    constant = [False, packed, *[packed] * op.bias, *[False] * len(extras)]
    boxes = boxes and some_boxes(wanted.shape)
    result = run_on_host(op, arrays, layouts, constant, boxes, precision, THREADS)
    name = np.dtype(dtype).name
    close(result, wanted, 2e-3 if precision == "tf32" else TOLERANCE.get(name, 0))


SHAPES = {
    "even": ((64, 32), (32, 48)),
    "odd": ((13, 7), (7, 11)),
    "row": ((1, 200), (200, 40)),
    "column": ((40, 16), (16, 1)),
    "batches": ((2, 3, 9, 16), (2, 3, 16, 12)),
    "broadcast": ((4, 1, 6, 8), (3, 8, 8)),
    "folded": ((2, 3, 5, 20), (20, 8)),
    "many": ((2, 1, 2, 1, 3, 5, 8), (8, 8)),
    "few": ((12, 8), (3, 8, 16)),
}


@pytest.mark.parametrize("shapes", SHAPES)
def test_products(shapes):
    check(*SHAPES[shapes])


@pytest.mark.parametrize("shapes", ["even", "odd", "few", "many"])
def test_products_with_constants(shapes):
    check(*SHAPES[shapes], packed=True)


ON_TENSOR_CORES = [
    ("even", "tf32", "constant"),
    ("odd", "tf32", "variable"),
    ("even", "float16", "variable"),
    ("odd", "float16", "constant"),
    ("batches", "float16", "constant"),
    ("odd", "bfloat16", "variable"),
    ("batches", "bfloat16", "variable"),
]


@pytest.mark.parametrize(("shapes", "dtype", "weights"), ON_TENSOR_CORES)
def test_on_tensor_cores(shapes, dtype, weights):
    precision, kind = ("tf32", np.float32) if dtype == "tf32" else ("fp32", np.dtype(dtype))
    check(*SHAPES[shapes], kind, weights == "constant", precision=precision)


@pytest.mark.parametrize("depth", [40, 7])
@pytest.mark.parametrize("dtype", ["tf32", "float16", "float32"])
def test_factors_whose_columns_lie_together(depth, dtype):
    precision, kind = ("tf32", np.float32) if dtype == "tf32" else ("fp32", np.dtype(dtype))
    layouts = ["plain", "last", "plain"]
    check((2, 19, depth), (2, depth, 21), kind, boxes=True, precision=precision, layouts=layouts)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int8], ids=str)
def test_other_types(dtype):
    check((5, 33, 20), (5, 20, 17), dtype)


@pytest.mark.parametrize("shapes", ["odd", "batches", "folded"])
def test_boxes_cover_the_output_in_uneven_parts(shapes):
    check(*SHAPES[shapes], boxes=True, packed=True)


@pytest.mark.parametrize("columns", [24, 7])
def test_epilogues(columns):
    op = MatMul(bias=True, epilogue=silu(np.float32))
    check((2, 9, 16), (16, columns), op=op, extras=[(columns,), (2, 9, columns)], boxes=True, packed=True)
