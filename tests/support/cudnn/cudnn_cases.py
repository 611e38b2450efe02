"""Products, their forms and arrays, which tests of what cuDNN computes share."""

import ml_dtypes
import numpy as np

from brickrt.ops.cuda.cudnn.make_form import as_convolution, form_of
from brickrt.ops.cuda.operand import dense
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import TensorType

F32, F16, BF16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
X = arg(0, F32)
ZERO, SIX = const(0, F32), const(6, F32)
RELU = apply("max", X, ZERO)
RELU6 = apply("min", apply("max", X, ZERO), SIX)
SILU = apply("mul", X, apply("sigmoid", X))
RESIDUAL = apply("max", apply("add", X, arg(1, F32)), ZERO)
HARDSWISH = apply("mul", X, apply("div", apply("min", apply("max", apply("add", X, const(3, F32)), ZERO), SIX), SIX))
GELU = apply(
    "mul",
    apply("mul", X, const(0.5, F32)),
    apply("add", const(1, F32), apply("erf", apply("mul", X, const(0.7071, F32)))),
)


def conv(kernel, strides=1, dilations=1, pads=0, ends=None, groups=1, bias=False, epilogue=None):
    n = len(kernel)
    return Conv(
        kernel,
        (strides,) * n,
        (dilations,) * n,
        (pads,) * n,
        (pads if ends is None else ends,) * n,
        groups,
        bias,
        epilogue,
    )


def transposed(kernel, strides=1, dilations=1, pads=0, extra=0, groups=1, bias=False, epilogue=None):
    n = len(kernel)
    settings = [(v,) * n for v in (strides, dilations, pads, pads, extra)]
    return ConvTranspose(kernel, *settings, groups, bias, epilogue)


def filled(shape, dtype=F32, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def lies(op, arrays, packed=True):
    """Operands of inputs and output: images with channels innermost; weights constant where `packed`."""
    types = [TensorType(a.shape, a.dtype) for a in arrays]
    layout = "plain" if isinstance(op, MatMul) else "last"
    ins = [dense(t, "plain" if k == 1 and packed else layout) for k, t in enumerate(types)]
    constant = [(k == 1 and packed) or (op.bias and k == 2) for k in range(len(ins))]
    return ins, dense(op.infer(types), layout), constant


def form(op, arrays, precision="fp32", packed=True):
    ins, out, constant = lies(op, arrays, packed)
    ways = as_convolution(op, out.type, constant, precision)
    return form_of(op, ins, out, constant, precision, ways[0])


def aligned(array):
    room = np.zeros(array.nbytes + 64, np.uint8)
    part = room[-room.ctypes.data % 64 :][: array.nbytes]
    part[:] = np.frombuffer(array.tobytes(), np.uint8)
    return part


CONVS = [
    (conv((3, 3), pads=1), (2, 4, 7, 9), 6),
    (conv((3, 3), 2, 2, 2, 1), (1, 3, 11, 8), 5),
    (conv((3, 3), pads=1, groups=2, bias=True), (1, 6, 5, 5), 4),
    (conv((3, 3), pads=1, groups=8), (2, 8, 6, 5), 8),
    (conv((1, 1), bias=True), (2, 5, 4, 3), 7),
    (conv((5,), 2, 1, 2, 1, bias=True), (2, 4, 17), 6),
    (conv((3, 2, 3), 1, 1, 1, bias=True), (1, 3, 4, 5, 6), 4),
]
TRANSPOSED = [
    (transposed((3, 3), 2, 1, 1, 1), (1, 4, 5, 6), 3),
    (transposed((2, 2), 2, bias=True), (2, 4, 3, 3), 6),
    (transposed((4, 4), 2, 1, 1, groups=2, bias=True), (1, 4, 4, 5), 3),
    (transposed((3,), 3, 2, 1, 2), (2, 3, 7), 4),
    (transposed((2, 3, 2), 2, 1, 1), (1, 2, 3, 4, 3), 3),
]
LEAKY = apply("where", apply("lt", X, ZERO), apply("mul", X, const(0.1, F32)), X)
EPILOGUES = {"leaky": LEAKY, "relu": RELU, "relu6": RELU6, "silu": SILU, "hardswish": HARDSWISH, "gelu": GELU}
MATRICES = [
    ((5, 7), (7, 3), ()),
    ((2, 3, 5, 7), (2, 3, 7, 4), ()),
    ((2, 3, 5, 7), (7, 4), ()),
    ((2, 5, 7), (1, 7, 4), (2, 5, 4)),
    ((5, 7), (3, 7, 4), (4,)),
    ((2, 5, 7), (2, 7, 4), (5, 4)),
    ((2, 5, 7), (7, 4), (1, 1, 4)),
]


def measured_by(frontend):
    """Seconds of the plan that a run is of: asked of the frontend."""

    def measure(run, sizes, workspace):
        memory = [aligned(np.zeros(n, np.uint8)) for n in [*sizes, max(workspace, 1)]]
        run([m.ctypes.data for m in memory[:-1]], memory[-1].ctypes.data)
        return frontend.plans[frontend.ran[-1]].seconds

    return measure
