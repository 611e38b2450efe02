"""Plans of forms: which one is chosen, and kept; and what the real frontend says as far as it goes without a device."""

import hashlib

import numpy as np
import pytest

from brickrt.ops.cuda.cudnn import graph
from brickrt.ops.cuda.cudnn.form import Unfit
from brickrt.ops.cuda.cudnn.graph import HANDLES, MOST_MEASURED_PLANS, WORKSPACE, Cudnn, Missing, graph_of
from brickrt.ops.operators.matmul import MatMul
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cuda.driver.cudnn_plans import Plans
from tests.support.cudnn.cudnn_cases import (
    CONVS,
    EPILOGUES,
    MATRICES,
    RESIDUAL,
    TRANSPOSED,
    aligned,
    conv,
    filled,
    form,
    measured_by,
)
from tests.support.cudnn.fake_cudnn import Frontend, PlanOf, numerical_note

SMALL = form(MatMul(), [filled((3, 4)), filled((4, 2))])


def choose(plans, precision="fp32"):
    frontend = Frontend(plans)
    arrays = [filled((3, 4)), filled((4, 2))]
    plan = Cudnn(frontend).choose(form(MatMul(), arrays, precision), measured_by(frontend))
    frontend.ran.clear()
    memory = [aligned(np.zeros(t.nbytes, np.uint8)) for t in plan.form.tensors]
    plan.run([m.ctypes.data for m in memory], 16)
    return frontend.ran[0]


def test_the_fastest_plan_is_chosen():
    assert choose([PlanOf(3), PlanOf(1), PlanOf(2)]) == 1


def test_plans_that_do_not_build_or_ask_for_too_much_are_left_out():
    assert (
        choose([PlanOf(1, fails=True), PlanOf(1, WORKSPACE + 1), PlanOf(9), PlanOf(1, engine=20_401), PlanOf(8, 64)])
        == 4
    )


def test_only_the_first_few_are_measured():
    assert choose([PlanOf(9)] * MOST_MEASURED_PLANS + [PlanOf(1)]) == 0


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
        Cudnn(Odd()).choose(SMALL, pytest.fail)


def test_why_there_is_no_plan():
    for plans in ([], [PlanOf(fails=True)]):
        with pytest.raises(Unfit, match=r"^cuDNN refuses: (no engine for this graph|plan 0 is barred)$"):
            Cudnn(Frontend(plans)).choose(SMALL, pytest.fail)


def test_plans_are_kept_on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    first = Plans(Cudnn(Frontend([PlanOf(2), PlanOf(1, 128)])), "a device", lambda run, *_: 1.0).plan(SMALL)
    again = Plans(Cudnn(Frontend([PlanOf(2), PlanOf(1, 128)])), "a device", pytest.fail)
    assert again.plan(SMALL).blob == first.blob and again.plan(SMALL) is again.plan(SMALL)
    other = Cudnn(Frontend([PlanOf(2), PlanOf(1)], version=1))
    measurements: list[float] = []
    Plans(other, "a device", lambda *_: measurements.append(1.0) or 1.0).plan(SMALL)
    assert len(measurements) == 2
    assert DiskCache.open("cudnn").get(Cudnn(Frontend()).key(SMALL, "another device")) is None


def test_cudnn_is_given_no_plan_that_others_could_have_put_on_the_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    measured: list[int] = []

    def blob() -> bytes:
        library = Cudnn(Frontend([PlanOf(2), PlanOf(1)]))
        monkeypatch.setattr(library, "load", lambda form, blob: given.append(blob) or Cudnn.load(library, form, blob))
        return Plans(library, "a device", lambda *_: measured.append(1) or 1.0).plan(SMALL).blob

    given: list[bytes] = []
    first = blob()
    path = tmp_path / "cudnn" / Cudnn(Frontend()).key(SMALL, "a device")
    path.write_bytes(hashlib.sha256(first).digest() + first)
    measured.clear()
    second = blob()
    assert given == [] and measured, "chosen again"
    measured.clear()
    assert blob() == second and given == [second] and not measured, "found again"


def test_a_plan_that_this_cudnn_does_not_take_is_chosen_anew():
    assert Cudnn(Frontend()).load(SMALL, b"[99, 99]") is None


def test_each_stream_has_a_handle_of_its_own():
    frontend = Frontend()
    library, memory = Cudnn(frontend), [aligned(np.zeros(t.nbytes, np.uint8)) for t in SMALL.tensors]
    plan = library.choose(SMALL, measured_by(frontend))
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
    found = form(MatMul(epilogue=RESIDUAL), [filled(a), filled(b), filled(extra)], "tf32")
    graph = graph_of(cudnn, found)
    graph.nodes[0].infer_properties(graph.context)
    assert tuple(graph.find_tensor("matmul.0::C").dim) == found.tensors[0].dims
