"""Forms of products, as a frontend that runs on the host computes them, against the NumPy definitions."""

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.cuda.cudnn.form import Unfit
from brickrt.ops.cuda.cudnn.graph import Cudnn
from brickrt.ops.cuda.cudnn.make_form import as_convolution, form_of, weights
from brickrt.ops.cuda.operand import dense
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import TensorType
from brickrt.runtime.cuda.groups import cudnn_layers as layers
from tests.support.cuda.host_kernels import expected
from tests.support.cudnn.cudnn_cases import (
    BF16,
    CONVS,
    EPILOGUES,
    F16,
    F32,
    MATRICES,
    RESIDUAL,
    TRANSPOSED,
    X,
    aligned,
    conv,
    filled,
    form,
    lies,
    measured_by,
    transposed,
)
from tests.support.cudnn.fake_cudnn import Frontend

TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def computed(op, arrays, packed=True, precision="fp32"):
    """The output by cuDNN's graph, on the host."""
    ins, out, _ = lies(op, arrays, packed)
    frontend = Frontend()
    plan = Cudnn(frontend).choose(form(op, arrays, precision, packed), measured_by(frontend))
    held = [weights(op, o, plan.form) if k == 1 and packed else o for k, o in enumerate(ins)]
    memory = [aligned(layers.StoredConstant("", o).stored(a)) for o, a in zip(held, arrays)]
    result = aligned(np.full(out.shape, 77, out.dtype))
    assert [m.nbytes for m in (result, *memory)] == [t.nbytes for t in plan.form.tensors]
    plan.run([m.ctypes.data for m in (result, *memory)], 0)
    return np.lib.stride_tricks.as_strided(
        result.view(out.dtype), out.shape, [s * out.dtype.itemsize for s in out.strides]
    )


def check(op, arrays, packed=True, precision="fp32"):
    wanted = expected(op, arrays).astype(np.float64)
    tolerance = TOLERANCE[arrays[0].dtype.name]
    found = computed(op, arrays, packed, precision).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("op", "shape", "channels"), CONVS, ids=str)
def test_convolutions(op, shape, channels, packed):
    arrays = [filled(shape), filled((channels, shape[1] // op.groups, *op.kernel)), *[filled((channels,))] * op.bias]
    check(op, arrays, packed)


@pytest.mark.parametrize(("op", "shape", "channels"), TRANSPOSED, ids=str)
def test_transposed_convolutions(op, shape, channels):
    bias = [filled((channels * op.groups,))] * op.bias
    check(op, [filled(shape), filled((shape[1], channels, *op.kernel)), *bias])


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_half_types(dtype):
    check(
        conv((3, 3), pads=1, bias=True), [filled((1, 8, 5, 5), dtype), filled((4, 8, 3, 3), dtype), filled((4,), dtype)]
    )
    check(MatMul(), [filled((5, 7), dtype), filled((7, 3), dtype)])


STEPS = {name: ["relu"] for name in ("leaky", "relu", "relu6")}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(name):
    arrays = [filled((2, 4, 5, 6)), filled((6, 4, 3, 3)), filled((6,))]
    op = conv((3, 3), pads=1, bias=True, epilogue=EPILOGUES[name])
    check(op, arrays)
    steps = [step.fn for step in form(op, arrays).steps]
    assert steps[0] == "add" and steps[1:] == STEPS.get(name, steps[1:])


@pytest.mark.parametrize("extra", [(2, 6, 5, 6), (6, 1, 1), (1, 6, 5, 6), (5, 6), (1,), ()], ids=str)
def test_a_residual_is_added_in_the_graph(extra):
    arrays = [filled((2, 4, 5, 6)), filled((6, 4, 3, 3)), filled((6,)), filled(extra, seed=5)]
    op = conv((3, 3), pads=1, bias=True, epilogue=RESIDUAL)
    check(op, arrays)
    steps = form(op, arrays).steps
    assert [step.fn for step in steps] == ["add", "add", "relu"]
    added = [which for step in steps for kind, which in step.args if kind == "tensor"]
    assert added == ([4, 3] if extra == (2, 6, 5, 6) else [3, 4])  # images before the bias


def test_what_broadcasts_comes_second():
    """cuDNN wants the larger operand first."""
    arrays = [filled((2, 4, 5, 6)), filled((6, 4, 3, 3)), filled((6, 1, 1), seed=5)]
    epilogue = apply("mul", const(3, F32), apply("add", arg(1, F32), X))
    op = conv((3, 3), pads=1, epilogue=epilogue)
    check(op, arrays)
    assert [[kind for kind, _ in step.args] for step in form(op, arrays).steps] == [
        ["step", "tensor"],
        ["step", "scalar"],
    ]


@pytest.mark.parametrize(("a", "b", "extra"), MATRICES, ids=str)
def test_matrix_products(a, b, extra):
    check(MatMul(bias=True), [filled(a), filled(b), filled(b[-1:])], precision="tf32")
    check(MatMul(epilogue=RESIDUAL), [filled(a), filled(b), filled(extra)], precision="tf32")


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_float32_is_multiplied_by_convolutions(precision, rows):
    """cuDNN has matrix products on tensor cores only."""
    arrays = [filled((2, rows, 7)), filled((7, 4))]
    assert form(MatMul(), arrays, precision).kind == ("conv" if precision == "fp32" else "matmul")
    assert form(MatMul(), arrays, packed=False).kind == "matmul"
    ins, out, constant = lies(MatMul(), arrays)
    assert as_convolution(MatMul(), out.type, constant, "tf32") == ((False, True) if rows == 20 else (False,))
    assert form_of(MatMul(), ins, out, constant, "tf32", True) == replace(form(MatMul(), arrays), precision="tf32")


ROWS = [((5, 7), (7, 3)), ((2, 3, 5, 7), (7, 4)), ((2, 5, 7), (1, 7, 4)), ((4, 7), (7, 1))]
BESIDE = [lambda shape: shape, lambda shape: shape[-1:], lambda shape: (1, *shape[-1:]), lambda shape: ()]


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize(("a", "b"), ROWS, ids=str)
def test_matrix_products_as_convolutions(a, b, beside):
    extra = filled(beside((*a[:-1], b[-1])), seed=5)
    for op, more in (
        (MatMul(bias=True), ()),
        (MatMul(epilogue=RESIDUAL), (extra,)),
        (MatMul(True, RESIDUAL), (extra,)),
    ):
        arrays = [filled(a), filled(b), *[filled(b[-1:])] * op.bias, *more]
        assert form(op, arrays).kind == "conv"
        check(op, arrays)


@pytest.mark.parametrize(
    ("a", "b", "extra"), [MATRICES[1], MATRICES[4], ((2, 5, 7), (7, 4), (5, 4)), ((4, 7), (7, 4), (4, 1))]
)
def test_products_that_are_no_convolutions(a, b, extra):
    with pytest.raises(Unfit, match=r"are no convolution|broadcasts in part"):
        form(MatMul(epilogue=RESIDUAL), [filled(a), filled(b), filled(extra)])


@pytest.mark.parametrize(
    ("op", "shapes", "dtype", "reason"),
    [
        (conv((3, 3)), [(1, 2, 4, 4), (2, 2, 3, 3)], np.float64, "elements of type float64"),
        (conv((1, 1, 1, 1)), [(1, 2, 4, 4, 4, 4), (2, 2, 1, 1, 1, 1)], F32, "4 spatial dimensions"),
        (conv((1, 1), 2, pads=1, ends=0), [(1, 2, 1, 4), (2, 2, 1, 1)], F32, "reads nothing but padding"),
        (transposed((2, 2), 1, 2, extra=1), [(1, 2, 3, 3), (2, 2, 2, 2)], F32, "output padding is not less"),
        (MatMul(), [(2, 1, 3, 3), (4, 3, 3)], F32, "broadcast in part"),
        (MatMul(epilogue=RESIDUAL), [(2, 3, 3), (3, 3), (3, 3)], F32, "broadcasts over the batch"),
        (MatMul(epilogue=RESIDUAL), [(2, 3, 3), (3, 3), (2, 1, 3)], F32, "broadcasts over rows"),
        (MatMul(epilogue=apply("sinh", X)), [(3, 3), (3, 3)], F32, "its epilogue has 'sinh'"),
        (Map(X), [(3,)], F32, "neither a convolution nor a matrix product"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cudnn_does_not_get(op, shapes, dtype, reason):
    operands = [dense(TensorType(s, np.dtype(dtype)), "last") for s in shapes]
    out = dense(op.infer([o.type for o in operands]), "last")
    if isinstance(op, MatMul):
        operands, out = [dense(o.type) for o in operands], dense(out.type)
    with pytest.raises(Unfit, match=reason):
        form_of(op, operands, out, [False] * len(operands), "fp32")


def test_plain_images_are_not_given():
    op, x, w = conv((1, 1)), TensorType((1, 4, 2, 2), F32), TensorType((3, 4, 1, 1), F32)
    with pytest.raises(Unfit, match="channels are not innermost"):
        form_of(op, [dense(x), dense(w)], dense(op.infer([x, w]), "last"), [False, True], "fp32")
