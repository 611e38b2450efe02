"""Every tile computes the same product; none needs more registers than two blocks on a multiprocessor leave it."""

import ctypes
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.ops.cuda.kernel import BLOCKS, THREADS, make_kernel
from brickrt.ops.cuda.operand import dense
from brickrt.ops.cuda.products.block_tile import LANE_TILES, MOST_BUFFERS, WARP_TILES, choose_core, cores
from brickrt.ops.cuda.products.conv import ProductConv
from brickrt.ops.cuda.shared_memory import room
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import PRESETS
from brickrt.plan.tiling.gpu_tiles import TILE_SIZES, tiles
from brickrt.runtime.cuda.kernels.compile import compile_module
from tests.support.cuda.cases.product_cases import ProductCase, conv, operands
from tests.support.cuda.host_kernels import compiled, expected, needs_compiler, source_of

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


@pytest.mark.parametrize("device", PRESETS)
def test_tiles_leave_room_for_a_second_block(device):
    """With as many buffers as fit then; the tiles themselves are the same for all devices."""
    most = PRESETS[device].l1
    for dtype, precision in KINDS.values():
        found = list(cores(np.dtype(dtype), precision, most))
        assert [c.tile for c in found] == list(WARP_TILES if found[0].warps else LANE_TILES)
        for core in found:
            assert 2 <= core.buffers <= MOST_BUFFERS and core.shared <= room(most, BLOCKS)
            more = replace(core, buffers=core.buffers + 1)
            assert core.buffers == MOST_BUFFERS or more.shared > room(most, BLOCKS)


def test_large_devices_have_more_buffers():
    buffers = {}
    for name, device in PRESETS.items():
        (first, *_) = cores(np.dtype(np.float16), "fp32", device.l1)
        buffers[name] = first.buffers
    assert buffers == {"h200": 4, "h100": 4, "a100": 3, "l40s": 2, "rtx4090": 2}


def test_shallow_products_have_no_buffers_that_stay_empty():
    for depth, buffers in ((16, 2), (32, 2), (64, 3), (96, 4), (1024, 4)):
        core = choose_core(np.dtype(np.float16), "fp32", 1 << 16, 128, depth, most=PRESETS["h200"].l1)
        assert (core.tile.m, core.tile.n, core.buffers) == (128, 128, buffers)


def test_layers_are_cut_in_tiles_that_kernels_have():
    kinds = {kind: tiles(TensorType((1,), dtype), precision) for kind, (dtype, precision) in KINDS.items()}
    assert kinds["fp32"] == list(TILE_SIZES[1:]) and kinds["tf32"] == kinds["f16"] == list(TILE_SIZES)
    assert tiles(TensorType((1,), np.float64), "fp32") and tiles(TensorType((1,), np.int8), "fp32")


def test_small_boxes_have_small_tiles():
    tiles = [kernel("fp32", (1, 64, *edges), 64).core.tile for edges in ((4, 4), (8, 8), (64, 64))]
    assert [(t.m, t.n) for t in tiles] == [(16, 64), (64, 64), (128, 64)]


def together(kernels, threads, blocks):
    """One module with kernels run0, run1…"""
    boxes = "struct Boxes { const int* box; char* const* at; long long rank; };\n"
    texts = []
    for k, each in enumerate(kernels):
        text = source_of(each).replace("device_function", f"f{k}").replace(boxes, "")
        texts.append(text.replace("(run, Boxes, 64, 1)", f"(run{k}, Boxes, {threads}, {blocks})"))
    return boxes + "".join(texts)


def spilled(kernels, arch):
    """Functions that need the stack or too many registers where two blocks share a multiprocessor."""
    try:
        functions = compile_module(together(kernels, THREADS, 2), arch).functions
    except BrickError as e:
        if "missing" in str(e) or "need" in str(e):
            pytest.skip(str(e))
        raise
    assert len(functions) >= len(kernels)
    return [f for f in functions if f.stack or f.spill_stores or f.spill_loads or f.registers > 128]


@needs_compiler
@pytest.mark.parametrize("kind", ["fp32", "tf32"])
def test_all_tiles_compute_the_same(kind):
    """On an output that no tile divides."""
    dtype, precision = KINDS[kind]
    made = [kernel(kind, (1, 24, 11, 13), 136, core) for core in cores(np.dtype(dtype), precision)]
    x, w, bias = operands(made[0].op, (1, 24, 11, 13), 136, dtype)
    wanted = expected(made[0].op, [x, w, bias])
    for each, result in zip(made, results(made, x, w, bias), strict=True):
        tolerance = (1e-5 if kind == "fp32" else 2e-3) * np.abs(wanted).max()
        np.testing.assert_allclose(result, wanted, atol=tolerance, err_msg=str(each.core.tile))


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "places"), [("fp32", (0, 3, -1)), ("tf32", (0, 3, -1)), ("f16", (0, -1)), ("bf16", (3,))]
)
def test_buffers_change_no_bit(kind, places):
    """Fewer, as many and more than the depth fills. Both kinds of halves have the same copies, and
    share the tiles."""
    dtype, precision = KINDS[kind]
    found = list(cores(np.dtype(dtype), precision))
    made = [
        kernel(kind, (1, 24, 11, 13), 136, replace(core, buffers=buffers))
        for core in (found[place] for place in places)
        for buffers in range(2, MOST_BUFFERS + 1)
    ]
    bits = [result.tobytes() for result in results(made, *operands(made[0].op, (1, 24, 11, 13), 136, dtype))]
    per_tile = MOST_BUFFERS - 1
    for k in range(0, len(made), per_tile):
        assert len({each.core.buffers for each in made[k : k + per_tile]}) == per_tile
        assert len(set(bits[k : k + per_tile])) == 1, made[k].core.tile


def results(made, x, w, bias):
    """What kernels of one convolution compute on the host, in one library."""
    library = compiled(together(made, 64, 1))
    extents = made[0].out.shape
    box = np.array([0, 0, 0, 0, *extents], np.int32)
    found = []
    for k, each in enumerate(made):
        held = [
            np.zeros((extents[0], *extents[2:], extents[1]), x.dtype),
            np.ascontiguousarray(np.moveaxis(x, 1, -1)),
            each.pack(1, w),
            bias,
        ]
        at = (ctypes.c_void_p * 4)(*(a.ctypes.data for a in held))
        context = (ctypes.c_int64 * 3)(box.ctypes.data, ctypes.addressof(at), 4)
        shared = ctypes.c_longlong(each.shared)
        getattr(library, f"run{k}")(1, THREADS, shared, ctypes.byref(context), 0, 1, 0, 0, 1)
        found.append(np.moveaxis(held[0], -1, 1))
    return found


def conv_kernel(case, dtype, precision="fp32", layout="last"):
    types = [TensorType(a.shape, a.dtype) for a in operands(case.op, case.x, case.channels, dtype)]
    out = case.op.infer(types)
    ins = [dense(t, layout if k == 0 else "plain") for k, t in enumerate(types)]
    packed = [k > 0 for k in range(len(types))]
    return make_kernel(case.op, ins, dense(out, layout), packed, precision, out.shape)


def matmul_kernel(a, b, dtype, packed, precision="fp32"):
    types = [TensorType(a, dtype), TensorType(b, dtype)]
    out = MatMul().infer(types)
    return make_kernel(MatMul(), [dense(t) for t in types], dense(out), [False, packed], precision, out.shape)


@pytest.mark.parametrize(("arch", "first"), [("sm_80", 0), ("sm_90", 1)])
def test_other_kernels_do_not_spill(arch, first):
    """Every other one on each architecture: most cases in one type on one of them, and in another on the other."""
    wide = ProductCase((1, 96, 28, 28), 96, conv((7, 7), pads=(3, 3), groups=96, bias=True))
    small = ProductCase((1, 96, 28, 28), 96, conv((3, 3), pads=(1, 1), groups=96, bias=True))
    image = ProductCase((1, 3, 64, 64), 64, conv((7, 7), (2, 2), None, (3, 3), bias=True))
    volume = ProductCase((1, 16, 16, 16, 16), 32, conv((3, 3, 3), pads=(1, 1, 1)))
    groups = ProductCase((1, 128, 14, 14), 128, conv((3, 3), pads=(1, 1), groups=32))
    kernels = [conv_kernel(c, np.float32) for c in (wide, small, image, volume, groups)]
    kernels += [conv_kernel(c, np.float16) for c in (wide, small, image, volume)]
    kernels += [conv_kernel(small, np.float64), conv_kernel(image, np.int32)]
    kernels += [matmul_kernel((4, 197, 64), (4, 64, 197), BFLOAT16, False)]
    kernels += [matmul_kernel((12, 197, 64), (12, 64, 200), np.float16, False)]
    kernels += [matmul_kernel((2, 197, 768), (768, 768), np.float32, True, "tf32")]
    assert not spilled(kernels[first::2], arch)
