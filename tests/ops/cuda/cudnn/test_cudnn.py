"""Forms of products, as cuDNN's frontend takes them: run by one on the host, and built by the real one as far as it
goes without a device."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from brickrt.ops.cuda.cudnn import form as forms
from brickrt.ops.cuda.cudnn import graph
from brickrt.ops.cuda.cudnn.form import Unfit, form_of, weights
from brickrt.ops.cuda.cudnn.graph import HANDLES, TRIES, WORKSPACE, Cudnn, Missing, graph_of
from brickrt.ops.cuda.operand import dense
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import TensorType
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cuda.groups import cudnn_layers as layers
from tests.support.cuda.fake_cudnn import Frontend, PlanOf, numerical_note
from tests.support.cuda.host_kernels import expected

F32, F16, BF16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
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
    ways = forms.as_convolution(op, out.type, constant, precision)
    return form_of(op, ins, out, constant, precision, ways[0])


def aligned(array):
    room = np.zeros(array.nbytes + 64, np.uint8)
    part = room[-room.ctypes.data % 64 :][: array.nbytes]
    part[:] = np.frombuffer(array.tobytes(), np.uint8)
    return part


def measured(run, sizes, workspace):
    """Seconds of the plan that a run is of: asked of the frontend."""
    memory = [aligned(np.zeros(n, np.uint8)) for n in [*sizes, max(workspace, 1)]]
    run([m.ctypes.data for m in memory[:-1]], memory[-1].ctypes.data)
    return MEASURED.plans[MEASURED.ran[-1]].seconds


MEASURED = Frontend()


def computed(op, arrays, packed=True):
    """The output by cuDNN's graph, on the host."""
    ins, out, _ = lies(op, arrays, packed)
    plan = Cudnn(Frontend()).choose(form(op, arrays, packed=packed), measured)
    held = [weights(op, o, plan.form) if k == 1 and packed else o for k, o in enumerate(ins)]
    memory = [aligned(layers.stored(o, a)) for o, a in zip(held, arrays)]
    result = aligned(np.full(out.shape, 77, out.dtype))
    assert [m.nbytes for m in (result, *memory)] == [t.nbytes for t in plan.form.tensors]
    plan.run([m.ctypes.data for m in (result, *memory)], 0)
    return np.lib.stride_tricks.as_strided(
        result.view(out.dtype), out.shape, [s * out.dtype.itemsize for s in out.strides]
    )


def check(op, arrays, packed=True):
    wanted = expected(op, arrays).astype(np.float64)
    tolerance = TOLERANCE[arrays[0].dtype.name]
    found = computed(op, arrays, packed).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


CONVS = [
    (conv((3, 3), pads=1), (2, 4, 7, 9), 6),
    (conv((3, 3), 2, 2, 2, 1), (1, 3, 11, 8), 5),
    (conv((3, 3), pads=1, groups=2, bias=True), (1, 6, 5, 5), 4),
    (conv((3, 3), pads=1, groups=8), (2, 8, 6, 5), 8),
    (conv((1, 1), bias=True), (2, 5, 4, 3), 7),
    (conv((5,), 2, 1, 2, 1, bias=True), (2, 4, 17), 6),
    (conv((3, 2, 3), 1, 1, 1, bias=True), (1, 3, 4, 5, 6), 4),
]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("op", "shape", "channels"), CONVS, ids=str)
def test_convolutions(op, shape, channels, packed):
    arrays = [filled(shape), filled((channels, shape[1] // op.groups, *op.kernel)), *[filled((channels,))] * op.bias]
    check(op, arrays, packed)


TRANSPOSED = [
    (transposed((3, 3), 2, 1, 1, 1), (1, 4, 5, 6), 3),
    (transposed((2, 2), 2, bias=True), (2, 4, 3, 3), 6),
    (transposed((4, 4), 2, 1, 1, groups=2, bias=True), (1, 4, 4, 5), 3),
    (transposed((3,), 3, 2, 1, 2), (2, 3, 7), 4),
    (transposed((2, 3, 2), 2, 1, 1), (1, 2, 3, 4, 3), 3),
]


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


LEAKY = apply("where", apply("lt", X, ZERO), apply("mul", X, const(0.1, F32)), X)
EPILOGUES = {"leaky": LEAKY, "relu": RELU, "relu6": RELU6, "silu": SILU, "hardswish": HARDSWISH, "gelu": GELU}
STEPS = {name: ["relu"] for name in ("leaky", "relu", "relu6")}
STEPS |= {"silu": ["swish"], "hardswish": ["add", "relu", "div", "mul"]}


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


MATRICES = [
    ((5, 7), (7, 3), ()),
    ((2, 3, 5, 7), (2, 3, 7, 4), ()),
    ((2, 3, 5, 7), (7, 4), ()),
    ((2, 5, 7), (1, 7, 4), (2, 5, 4)),
    ((5, 7), (3, 7, 4), (4,)),
    ((2, 5, 7), (2, 7, 4), (5, 4)),
    ((2, 5, 7), (7, 4), (1, 1, 4)),
]


@pytest.mark.parametrize(("a", "b", "extra"), MATRICES, ids=str)
def test_matrix_products(a, b, extra):
    check(MatMul(bias=True), [filled(a), filled(b), filled(b[-1:])])
    check(MatMul(epilogue=RESIDUAL), [filled(a), filled(b), filled(extra)])


@pytest.mark.parametrize("dtype", ["fp32", "tf32"])
def test_float32_is_multiplied_by_convolutions(dtype):
    """cuDNN has matrix products on tensor cores only."""
    arrays = [filled((2, 20, 7)), filled((7, 4))]
    assert form(MatMul(), arrays, dtype).kind == ("conv" if dtype == "fp32" else "matmul")
    assert form(MatMul(), [arrays[0][:, :2], arrays[1]]).kind == "matmul"
    assert form(MatMul(), arrays, packed=False).kind == "matmul"
    ins, out, constant = lies(MatMul(), arrays)
    assert forms.as_convolution(MatMul(), out.type, constant, "tf32") == (False, True)
    assert form_of(MatMul(), ins, out, constant, "tf32", True) == replace(form(MatMul(), arrays), precision="tf32")


ROWS = [((5, 7), (7, 3)), ((2, 3, 5, 7), (7, 4)), ((2, 5, 7), (1, 7, 4)), ((4, 7), (7, 1))]
BESIDE = [lambda shape: shape, lambda shape: shape[-1:], lambda shape: (1, *shape[-1:]), lambda shape: ()]


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize(("a", "b"), ROWS, ids=str)
def test_matrix_products_as_convolutions(monkeypatch, a, b, beside):
    monkeypatch.setattr(forms, "LEAST_PIXELS", 1)
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
def test_products_that_are_no_convolutions(monkeypatch, a, b, extra):
    monkeypatch.setattr(forms, "LEAST_PIXELS", 1)
    with pytest.raises(Unfit, match=r"are no convolution|broadcasts in part"):
        form(MatMul(epilogue=RESIDUAL), [filled(a), filled(b), filled(extra)])


@pytest.mark.parametrize(
    ("op", "shapes", "dtype", "reason"),
    [
        (conv((3, 3)), [(1, 2, 4, 4), (2, 2, 3, 3)], np.float64, "elements of type float64"),
        (conv((1, 1, 1, 1)), [(1, 2, 4, 4, 4, 4), (2, 2, 1, 1, 1, 1)], F32, "4 spatial dimensions"),
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


# ---- plans

SMALL = form(MatMul(), [filled((3, 4)), filled((4, 2))])


def choose(plans, precision="fp32"):
    global MEASURED
    MEASURED = Frontend(plans)
    arrays = [filled((3, 4)), filled((4, 2))]
    plan = Cudnn(MEASURED).choose(form(MatMul(), arrays, precision), measured)
    MEASURED.ran.clear()
    memory = [aligned(np.zeros(t.nbytes, np.uint8)) for t in plan.form.tensors]
    plan.run([m.ctypes.data for m in memory], 16)
    return MEASURED.ran[0]


def test_the_fastest_plan_is_chosen():
    assert choose([PlanOf(3), PlanOf(1), PlanOf(2)]) == 1


def test_plans_that_do_not_build_or_ask_for_too_much_are_left_out():
    assert (
        choose([PlanOf(1, fails=True), PlanOf(1, WORKSPACE + 1), PlanOf(9), PlanOf(1, engine=20_401), PlanOf(8, 64)])
        == 4
    )


def test_only_the_first_few_are_measured():
    assert choose([PlanOf(9)] * TRIES + [PlanOf(1)]) == 0


@pytest.mark.parametrize(("precision", "chosen"), [("fp32", 1), ("tf32", 0)])
def test_tensor_cores_round_float32_only_when_asked(precision, chosen):
    assert choose([PlanOf(1, notes=(numerical_note.TENSOR_CORE,)), PlanOf(2)], precision) == chosen


def test_plans_give_the_same_bits_each_time():
    assert choose([PlanOf(1, notes=(numerical_note.NONDETERMINISTIC,)), PlanOf(2)], "tf32") == 1


def test_building_plans_does_not_take_forever(monkeypatch):
    monkeypatch.setattr(graph, "PATIENCE", -1)
    assert choose([PlanOf(2, fails=True), PlanOf(2), PlanOf(1)]) == 1


def test_errors_of_any_kind_are_reasons():
    class Odd(Frontend):
        def pygraph(self, **settings):
            raise TypeError("incompatible function\narguments (the backend declined: {a long list})")

    with pytest.raises(Unfit, match=r"^cuDNN refuses: incompatible function arguments$"):
        Cudnn(Odd()).choose(SMALL, measured)


def test_why_there_is_no_plan():
    for plans in ([], [PlanOf(fails=True)]):
        with pytest.raises(Unfit, match=r"^cuDNN refuses: (no engine for this graph|plan 0 is barred)$"):
            Cudnn(Frontend(plans)).choose(SMALL, measured)


def test_plans_are_kept_on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    first = layers.Plans(Cudnn(Frontend([PlanOf(2), PlanOf(1, 128)])), "a device", lambda run, *_: 1.0).plan(SMALL)
    again = layers.Plans(Cudnn(Frontend([PlanOf(2), PlanOf(1, 128)])), "a device", pytest.fail)
    assert again.plan(SMALL).blob == first.blob and again.plan(SMALL) is again.plan(SMALL)
    other = Cudnn(Frontend([PlanOf(2), PlanOf(1)], version=1))
    measurements: list[float] = []
    layers.Plans(other, "a device", lambda *_: measurements.append(1.0) or 1.0).plan(SMALL)
    assert len(measurements) == 2
    assert DiskCache.open("cudnn").get(Cudnn(Frontend()).key(SMALL, "another device")) is None


def test_a_plan_that_this_cudnn_does_not_take_is_chosen_anew():
    assert Cudnn(Frontend()).load(SMALL, b"[99, 99]") is None


def test_each_stream_has_a_handle_of_its_own():
    frontend = Frontend()
    library, memory = Cudnn(frontend), [aligned(np.zeros(t.nbytes, np.uint8)) for t in SMALL.tensors]
    plan = library.choose(SMALL, measured)
    for stream in (12, 34, 12, 34, 56):
        library.use(stream)
        plan.run([m.ctypes.data for m in memory], 0)
    assert frontend.on == [12, 34, 12, 34, 56] and len(frontend.handles) == 4


def test_streams_that_were_not_used_for_long_give_up_their_handles():
    frontend = Frontend()
    library = Cudnn(frontend)
    for stream in range(2 * HANDLES):
        library.use(7)
        library.use(100 + stream)
    assert len(frontend.handles) == HANDLES and 7 in frontend.handles.values()


def test_what_is_missing(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(graph.importlib, "import_module", absent)
    with pytest.raises(Missing, match=r"pip install \"brickrt\[cuda13\]\""):
        Cudnn()


def test_a_library_that_does_not_start_is_named():
    class BrokenFrontend(Frontend):
        def backend_version(self):
            raise RuntimeError("Unable to find\nsymbol cudnnGetVersion")

    with pytest.raises(
        Missing, match=r"does not start \(Unable to find symbol cudnnGetVersion\): pip install nvidia-cudnn"
    ):
        Cudnn(BrokenFrontend())


# ---- the real frontend


@pytest.mark.parametrize(("op", "shape", "channels"), CONVS, ids=str)
def test_the_real_frontend_infers_the_same_dimensions(op, shape, channels):
    cudnn = pytest.importorskip("cudnn", reason="the package nvidia-cudnn-frontend is missing")
    arrays = [filled(shape), filled((channels, shape[1] // op.groups, *op.kernel)), *[filled((channels,))] * op.bias]
    found = form(op, arrays)
    graph = graph_of(cudnn, found)
    product = graph.find_tensor("conv_fprop.0::Y")
    graph.nodes[0].infer_properties(graph.context)
    assert tuple(product.dim or found.tensors[0].dims) == found.tensors[0].dims
    assert {t.uid for t in graph.get_inputs()} == set(range(2, 1 + len(found.tensors)))
    assert [t.uid for t in graph.get_outputs()] == [1]


@pytest.mark.parametrize("name", EPILOGUES)
def test_the_real_frontend_takes_the_epilogues(name):
    cudnn = pytest.importorskip("cudnn", reason="the package nvidia-cudnn-frontend is missing")
    arrays = [filled((2, 4, 5, 6)), filled((6, 4, 3, 3)), filled((6,))]
    graph = graph_of(cudnn, form(conv((3, 3), pads=1, bias=True, epilogue=EPILOGUES[name]), arrays))
    assert graph.nodes[0].node_type.name == "CONV_FPROP"
    assert len(graph.nodes) == 1 + len(form(conv((3, 3), pads=1, bias=True, epilogue=EPILOGUES[name]), arrays).steps)
    scalars = [t for t in graph.tensors.values() if t.is_pass_by_value]
    assert all(isinstance(t.scalar_type, cudnn.scalar_type) for t in scalars)
    assert bool(scalars) == (name in ("hardswish", "gelu"))


@pytest.mark.parametrize(("op", "shape", "channels"), TRANSPOSED, ids=str)
def test_the_real_frontend_takes_transposed_convolutions(op, shape, channels):
    cudnn = pytest.importorskip("cudnn", reason="the package nvidia-cudnn-frontend is missing")
    bias = [filled((channels * op.groups,))] * op.bias
    found = form(op, [filled(shape), filled((shape[1], channels, *op.kernel)), *bias])
    graph = graph_of(cudnn, found)
    assert graph.nodes[0].node_type.name == "CONV_DGRAD"
    assert tuple(graph.find_tensor("conv_dgrad.0::DX").dim) == found.tensors[0].dims
    assert [t.uid for t in graph.get_outputs()] == [1]


@pytest.mark.parametrize(("a", "b", "extra"), MATRICES, ids=str)
def test_the_real_frontend_takes_matrix_products(a, b, extra):
    cudnn = pytest.importorskip("cudnn", reason="the package nvidia-cudnn-frontend is missing")
    found = form(MatMul(epilogue=RESIDUAL), [filled(a), filled(b), filled(extra)])
    graph = graph_of(cudnn, found)
    graph.nodes[0].infer_properties(graph.context)
    assert tuple(graph.find_tensor("matmul.0::C").dim) == found.tensors[0].dims
