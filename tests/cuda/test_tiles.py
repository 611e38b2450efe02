"""Every tile computes the same product; none needs more registers than two blocks on a multiprocessor leave it."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from host_kernels import compiled, expected, needs_compiler, source_of
from test_conv import conv, operands

from brickrt.graph.errors import BrickError
from brickrt.ops.cuda.conv import ProductConv
from brickrt.ops.cuda.kernel import THREADS, make_kernel
from brickrt.ops.cuda.operand import dense
from brickrt.ops.cuda.tile import LANE_TILES, SHARED, WARP_TILES, cores
from brickrt.ops.types import TensorType
from brickrt.runtime.cuda.compile import compile_modules

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
KINDS = {
    "fp32": (np.float32, "fp32"),
    "tf32": (np.float32, "tf32"),
    "f16": (np.float16, "fp32"),
    "bf16": (BFLOAT16, "fp32"),
}


def kernel(kind, x, channels, core=None):
    """A convolution of 3 x 3, channels innermost, that uses `core`, if that is given."""
    dtype, precision = KINDS[kind]
    op = conv((3, 3), pads=(1, 1), bias=True)
    types = [TensorType(a.shape, a.dtype) for a in operands(op, x, channels, dtype)]
    out = op.infer(types)
    ins = [dense(t, layout) for t, layout in zip(types, ("last", "plain", "plain"))]
    made = make_kernel(op, ins, dense(out, "last"), [False, True, True], precision, out.shape)
    assert isinstance(made, ProductConv)
    if core:
        made.__dict__["core"] = core
    return made


def test_tiles_fit_into_shared_memory():
    for dtype, precision in KINDS.values():
        found = list(cores(np.dtype(dtype), precision))
        assert len(found) == len(WARP_TILES if found[0].warps else LANE_TILES)
        assert all(c.shared <= SHARED for c in found)


def test_small_boxes_have_small_tiles():
    tiles = [kernel("fp32", (1, 64, *edges), 64).core.tile for edges in ((4, 4), (8, 8), (64, 64))]
    assert [(t.m, t.n) for t in tiles] == [(16, 64), (64, 64), (128, 64)]


@needs_compiler
@pytest.mark.parametrize("kind", ["fp32", "tf32"])
def test_all_tiles_compute_the_same(kind):
    """One library with a kernel per tile, on an output that no tile divides."""
    dtype, precision = KINDS[kind]
    first = kernel(kind, (1, 24, 11, 13), 136)
    made = [kernel(kind, (1, 24, 11, 13), 136, core) for core in cores(np.dtype(dtype), precision)]
    texts = []
    for k, each in enumerate(made):
        texts.append(source_of(each).replace("device_function", f"f{k}").replace("(run,", f"(run{k},"))
    boxes = "struct Boxes { const int* box; char* const* at; long long rank; };\n"
    library = compiled(boxes + "".join(texts).replace(boxes, ""))
    x, w, bias = operands(first.op, (1, 24, 11, 13), 136, dtype)
    wanted = expected(first.op, [x, w, bias])
    box = np.array([0, 0, 0, 0, *wanted.shape], np.int32)
    for k, each in enumerate(made):
        held = [np.zeros((1, 11, 13, 136), dtype), np.ascontiguousarray(np.moveaxis(x, 1, -1)), each.pack(1, w), bias]
        at = (ctypes.c_void_p * 4)(*(a.ctypes.data for a in held))
        context = (ctypes.c_int64 * 3)(box.ctypes.data, ctypes.addressof(at), 4)
        shared = ctypes.c_longlong(each.shared)
        getattr(library, f"run{k}")(1, THREADS, shared, ctypes.byref(context), 0, 1, 0, 0, 1)
        result = np.moveaxis(held[0], -1, 1)
        tolerance = (1e-5 if kind == "fp32" else 2e-3) * np.abs(wanted).max()
        np.testing.assert_allclose(result, wanted, atol=tolerance, err_msg=str(each.core.tile))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_no_tile_spills(arch):
    made = []
    for kind, (dtype, precision) in KINDS.items():
        for core in cores(np.dtype(dtype), precision):
            made.append((kind, core.tile, kernel(kind, (1, 64, 28, 28), 64, core)))
    sources = [source_of(each).replace("Boxes, 64, 1", f"Boxes, {THREADS}, 2") for _, _, each in made]
    try:
        modules = compile_modules(sources, arch)
    except BrickError as e:
        if "missing" in str(e) or "need" in str(e):
            pytest.skip(str(e))
        raise
    for (kind, tile, _), module in zip(made, modules):
        spilled = [f for f in module.functions if f.stack or f.spill_stores or f.spill_loads or f.registers > 128]
        assert not spilled, (kind, tile, spilled)
