"""What a GPU would run, run on the host: the PTX that NVRTC makes of kernels, against their NumPy definitions.

The cases are those of the tests of families, a few of each, architectures in turn.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.ops.cuda.kernel import THREADS
from brickrt.ops.cuda.products.block_tile import cores
from brickrt.ops.operators.move import Reorder
from brickrt.ops.operators.reduce import Reduce
from brickrt.plan.device.device_spec import PRESETS
from brickrt.runtime.cuda.kernels import compile as compiling
from tests.ops.cuda.elementwise import test_map as map_tests
from tests.ops.cuda.moves import test_move as move_tests
from tests.ops.cuda.moves import test_take as take_tests
from tests.ops.cuda.printing import test_expressions as expressions_tests
from tests.ops.cuda.products import test_block_tile as block_tile_tests
from tests.ops.cuda.products import test_conv as conv_tests
from tests.ops.cuda.products import test_conv_transpose as conv_transpose_tests
from tests.ops.cuda.products import test_matmul as matmul_tests
from tests.ops.cuda.reductions import test_pool as pool_tests
from tests.ops.cuda.reductions import test_reduce as reduce_tests
from tests.ops.cuda.reductions import test_rowwise as rowwise_tests
from tests.runtime.cuda import test_runs as run_tests
from tests.support.cuda import host_kernels
from tests.support.cuda.cases.fused_cases import images, rows
from tests.support.cuda.cases.kernel_cases import values
from tests.support.cuda.cases.product_cases import TOLERANCE, close, operands
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.fused_runs import check_fused
from tests.support.cuda.host_kernels import expected, needs_compiler, stored
from tests.support.ptx import expressions
from tests.support.ptx.build import compiled
from tests.support.ptx.driver import PtxDriver
from tests.support.ptx.single import Single

pytestmark = needs_compiler
ARCHITECTURES = "sm_80", "sm_90"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(autouse=True)
def _compiler():
    try:
        compiling._compiler()
    except BrickError as e:
        pytest.skip(str(e))


@pytest.fixture
def single(request, monkeypatch):
    """All kernels that the tests of families run are PTX, and some were run."""
    one = Single(monkeypatch, request.param)
    yield one
    assert one.launches


def aligned(array):
    """As device memory is."""
    return host_kernels._aligned(array).view(array.dtype).reshape(array.shape)


def in_turn(cases: Iterable[Any], names: str = "case") -> Callable:
    """Parameters of a test, which uses `single`."""
    rows = [(*(c if "," in names else [c]), ARCHITECTURES[k % 2]) for k, c in enumerate(cases)]
    return pytest.mark.parametrize(f"{names},single", rows, indirect=["single"], ids=str)


@in_turn([((2, 8, 5, 7), (8, 1, 1))], "a,b")
def test_maps(a, b, single):
    map_tests.test_broadcasting_in_all_layouts(a, b)


@in_turn([1])
def test_maps_in_scratch(case, single):
    map_tests.test_scratch_and_misaligned_operands(["last", "plain", "last"], case)


@pytest.mark.parametrize("test", [
    partial(expressions_tests.test_floats, np.dtype(np.float32)), expressions_tests.test_powers_of_mixed_types,
], ids=["floats", "powers"])  # fmt: skip
def test_expressions(test, monkeypatch):
    """With the device's own functions."""
    monkeypatch.setattr(expressions_tests, "run", partial(expressions.run, arch="sm_90"))
    test()


@in_turn(["float16"])
def test_moves(case, single):
    x = values((2, 21, 6, 11), case)
    move_tests.check(Reorder("plain"), x, layouts=["last", "plain"])
    move_tests.check(Reorder("last"), x, layouts=["plain", "last"])


@in_turn([((-1, 0, 1, 2, 3, 4, -1), (0, 0, 1, 1, 2, 2, 3, 3))])
def test_take(case, single):
    take_tests.test_take((None, None, *case), ["last", "last"])


@in_turn([(None, 2, 2)])
def test_interp(case, single):
    take_tests.test_interp(case, ["last", "last"])


@in_turn(["odd", "depthwise", "few per group"])
def test_conv(case, single):
    """Whole vectors are in `test_tiles`."""
    conv_tests.test_convolutions(case)


@in_turn([("odd", "tf32"), ("volume", BFLOAT16), ("even", np.float16)], "case,dtype")
def test_conv_on_tensor_cores(case, dtype, single):
    """As above, of tf32."""
    conv_tests.test_on_tensor_cores(case, dtype)


@in_turn(["overlapping"])
def test_conv_transpose(case, single):
    conv_transpose_tests.test_boxes_cover_the_output_in_uneven_parts(case)


@in_turn(["odd", "batches"])
def test_matmul(case, single):
    matmul_tests.test_boxes_cover_the_output_in_uneven_parts(case)


@in_turn([("even", "tf32", "constant"), ("batches", "bfloat16", "variable")], "shapes,dtype,weights")
def test_matmul_on_tensor_cores(shapes, dtype, weights, single):
    matmul_tests.test_on_tensor_cores(shapes, dtype, weights)


@in_turn([("max-dilated", "last"), ("average-pad", "plain")], "case,layout")
def test_pool(case, layout, single):
    pool_tests.test_pools(case, layout)


@in_turn([reduce_tests.CASES[2], reduce_tests.CASES[10]])
def test_reduce_axes(case, single):
    shape, axes, keepdims, inner, outer = case
    reduce_tests.check(Reduce("sum", axes, keepdims), [reduce_tests.values(shape, reduce_tests.F32)], [inner, outer])


@in_turn([rowwise_tests.SOFTMAX[3], rowwise_tests.SOFTMAX[6], rowwise_tests.SOFTMAX[9]])
def test_softmax(case, single):
    rowwise_tests.test_softmax(case)


def check_tiles(kind, arch, chosen):
    """Some tiles of a kind, on an output that none divides."""
    shape, columns, (dtype, precision) = (1, 24, 11, 13), 136, block_tile_tests.KINDS[kind]
    most = next(device.l1 for device in PRESETS.values() if device.isa == arch)
    found = list(cores(np.dtype(dtype), precision, most))[chosen]
    made = [block_tile_tests.kernel(kind, shape, columns, core) for core in found]
    library = compiled(block_tile_tests.together(made, THREADS, 2), arch)
    arrays = operands(made[0].op, shape, columns, dtype)
    wanted = expected(made[0].op, arrays)
    box = np.array([0, 0, 0, 0, *wanted.shape], np.int32)
    for k, each in enumerate(made):
        result = aligned(np.zeros((1, 11, 13, columns), dtype))
        held = [result, *map(aligned, (stored(arrays[0], "last"), each.pack(1, arrays[1]), arrays[2]))]
        at = np.array([a.ctypes.data for a in held])
        context = np.array([box.ctypes.data, at.ctypes.data, 4])
        ranges = [(a.ctypes.data, a.nbytes) for a in (box, at, *held)]
        run = library.kernel(f"run{k}", lambda *_, known=ranges: known)
        run(1, THREADS, ctypes.c_longlong(each.shared), ctypes.c_void_p(context.ctypes.data), 0, 1, 0, 0, 1)
        tolerance = 2e-3 if precision == "tf32" else TOLERANCE[np.dtype(dtype).name]
        close(np.moveaxis(result, -1, 1), wanted, tolerance)


@pytest.mark.parametrize(("kind", "arch", "tile"), [("tf32", "sm_90", 3), ("fp32", "sm_80", 8)])
def test_tiles(kind, arch, tile):
    """Some that are split along the depth."""
    check_tiles(kind, arch, slice(tile, tile + 1))


@pytest.mark.parametrize(("strategy", "launch", "arch"), [
    ("memoized", "persistent", "sm_90"), ("padded", "graph", "sm_80"),
])  # fmt: skip
def test_launches(monkeypatch, strategy, launch, arch):
    """Blocks take tickets, and wait for what others compute. Fused bricks are in the test below."""
    proto, driver = run_tests.chain(), PtxDriver(arch=arch)
    runtime = runtime_on(monkeypatch, driver, proto, launch, strategy=strategy, brick=4)
    first = runtime.execute({"x": run_tests.X})["y"]
    run_tests.check(first, run_tests.on_cpu(proto))
    np.testing.assert_array_equal(runtime.execute({"x": run_tests.X})["y"], first)
    driver.check()
    stats = runtime.stats
    assert stats.complete_first + stats.waits + stats.revisits == stats.tasks >= 16


@pytest.mark.parametrize(("made", "precision", "arch"), [(images, "fp16", "sm_90"), (rows, "tf32", "sm_80")])
def test_every_family_in_fused_bricks(monkeypatch, made, precision, arch):
    """What one step leaves in shared memory the next one reads, by other threads."""
    driver = PtxDriver(arch=arch)
    check_fused(monkeypatch, driver, made(), precision)
