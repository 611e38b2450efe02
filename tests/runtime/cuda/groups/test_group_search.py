"""Padded bricks whose convolutions a library computes, a call per layer and group, in the place of cuDNN."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.ir import Graph
from brickrt.ops.cuda.cudnn import make_form as form_module
from brickrt.ops.cuda.cudnn.form import Unfit
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Take
from brickrt.ops.types import Boxes
from brickrt.runtime.cuda.blueprint import CudaOptions
from brickrt.runtime.cuda.groups.group_geometry import outside
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.events import TaskEvents, buffers
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.cuda.group_runs import check, forms
from tests.support.cuda.host_driver import SMALL
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.cudnn.fake_cudnn import Frontend, HostLibrary
from tests.support.graphs.piece_graphs import pieces
from tests.support.graphs.plan_graphs import Sketch, bottlenecks, networks
from tests.support.graphs.row_graphs import products
from tests.support.graphs.window_graphs import stacks
from tests.support.task_checks import lowered, with_values

pytestmark = needs_compiler
F32 = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch, tmp_path):
    use_callbacks(monkeypatch)
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))


ANY_WAY = (
    st.sampled_from(["streams", "graph"]),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([None, None, 1, 2]),
    st.integers(0, 99),
)


MOST = st.sampled_from([99, 1, 0])
MOST_BRICKS = 100  # of a tensor


@settings(max_examples=15, deadline=None)
@given(st.one_of(networks(), pieces()), *ANY_WAY, MOST)
def test_random_graphs(graph, launch, group, brick, band, seed, most):
    check(graph, launch, group, brick, band, seed, most=most)


def edge(graph: Graph, brick: int) -> int:
    """Larger than asked for where a tensor would be cut in many bricks: a few of these runs took longer than all others
    together, and boxes of all kinds are in small tensors as well."""
    shapes = [graph.out(node).shape for node in graph.nodes]
    while max(int(np.prod([-(-e // brick) for e in shape[2:]])) for shape in shapes) > MOST_BRICKS:
        brick += 1
    return brick


@settings(max_examples=20, deadline=None)
@given(stacks(), *ANY_WAY, MOST, st.sampled_from(["padded", "padded", "layerwise"]))
def test_random_windows(graph, launch, group, brick, band, seed, most, strategy):
    """Kernels compute what the library leaves, in whole layers too."""
    check(graph, launch, group, edge(graph, brick), band, seed, most=most, strategy=strategy)


@settings(max_examples=25, deadline=None)
@given(products(), *ANY_WAY, MOST, st.sampled_from([1, 32]), st.sampled_from(["fp32", "tf32"]))
def test_random_products(graph, launch, group, brick, band, seed, most, least, precision):
    """As products, which full float32 has not, and as convolutions."""
    with patch.object(form_module, "LEAST_PIXELS", least):
        check(graph, launch, group, brick, band, seed, most=most, precision=precision)


# ---- which calls


def chain(layers: int = 3, size: int = 32, channels: int = 8):
    """x → 3×3 → abs → 3×3 → … → abs, so that ends of the graph are no ends of a convolution."""
    s = Sketch()
    x = s.map("abs", s.input(1, channels, size, size))
    for _ in range(layers):
        x = s.conv(x, channels)
    return s.graph(s.map("abs", x))


@pytest.mark.parametrize("group", [4, 5, 16, None])
def test_one_call_per_layer_and_group(group):
    program, library = check(chain(), "streams", group, brick=8)
    groups = -(-16 // min(group or 16, 16))
    slots = -(-16 // groups)
    assert len(program._calls.layers) == 3 * groups and len(library.ran) == 2 * 3 * groups
    extents = [[12, 12], [10, 10], [8, 8]]
    for k, form in enumerate(forms(program)):
        assert form.tensors[0].dims == (slots, 8, *extents[k % 3])
        assert set(form.pads) | set(form.pads_end) == {0}
    assert len({id(plan) for _, plan in program._calls.layers.values()}) == 3


def test_groups_fit_the_cache():
    """Three layers of 32 channels in bricks of 8: what the first reads comes in 14² pixels, twice."""
    each = 4 * 32 * (14**2 + 14**2)
    device = replace(SMALL, cores=1, l2=int(5.5 * each / SMALL.cache_share) + 3 * 4 * 9 * 32 * 32)
    program, _ = check(chain(3, 32, 32), brick=8, device=device)
    assert {form.tensors[0].dims[0] for form in forms(program)} == {4}  # five fit, but 16 bricks are four times four
    assert program._arena - program.tasks.arena_bytes < 4 * each + 4096


def test_a_brick_larger_than_the_cache_is_left_to_kernels():
    program, library = check(chain(), brick=8, device=replace(SMALL, cache_share=0.005))
    assert [launch.kind for launch in program._launches].count("bricks") == 1 and not library.ran
    assert program.notes["cuDNN"] == "3 products by kernels: a brick is larger than the cache (3)"


def test_memory_of_groups_is_told():
    with_groups, _ = check(chain(), brick=8)
    assert with_groups._arena > with_groups.tasks.arena_bytes
    assert with_groups.working_bytes >= with_groups._arena


def test_what_the_library_refuses_kernels_compute_for_the_group(monkeypatch):
    """The library refuses the middle one of three layers."""
    graph, plan = chain(), HostLibrary.plan
    middle = (10, 10)

    def some(self, form):
        if form.tensors[0].dims[2:] == middle:
            raise Unfit("not today")
        return plan(self, form)

    monkeypatch.setattr(HostLibrary, "plan", some)
    program, _ = check(graph, brick=8)
    assert len(program._calls.layers) == 2
    assert program.notes["cuDNN"] == "1 products by kernels: not today (1)"


def test_without_plans_all_is_as_it_was():
    program, library = check(chain(), brick=8, plans=[])
    assert not library.ran and [launch.kind for launch in program._launches].count("bricks") == 1


def test_residuals_are_windows_of_what_was_fetched():
    """x → 1×1 → 3×3 → 1×1 → + x: the sum takes the middle of what the first layer reads."""
    program, _ = check(bottlenecks(2, 20, 4), brick=5)
    assert len(program._calls.layers) == 7


def test_a_single_layer_is_computed_whole():
    s = Sketch()
    x = s.map("abs", s.input(1, 8, 20, 20))
    graph = s.graph(s.reduce(s.map("abs", s.reduce(s.conv(x, 8), 2, 3)), 1))
    tasks = lowered(with_values(graph)[0], "padded", SMALL, brick=8, max_layers=1)
    assert any(sub.strategy == "padded" for sub in tasks.plan.subgraphs)
    program, _ = check(graph, brick=8)
    assert [form.pads for form in forms(program)] in ([(1, 1)], [(0, 0)])


@pytest.mark.parametrize("size", [16, 17, 19, 31])
def test_bricks_at_the_ends(size):
    """Counted as whole ones if that costs little: otherwise they make groups of their own."""
    program, _ = check(chain(2, size), brick=8)
    bricks = {form.tensors[0].dims[2:] for form in forms(program)}
    assert len(bricks) == (2 if size in (16, 31) else 8)


def test_convolutions_read_zeros_beyond_the_ends():
    """All ones: wrong zeros show at every border."""
    s = Sketch()
    x = s.map("abs", s.input(1, 2, 9, 9))
    ones = np.ones((2, 2, 5, 5), np.float32)
    for _ in range(3):
        x = s.add(Conv((5, 5), (1, 1), (1, 1), (2, 2), (2, 2)), x, s.constant(*ones.shape, values=ones))
    check(s.graph(s.map("abs", x)), brick=3)


def test_events_tell_of_every_brick():
    graph, inputs = with_values(chain())
    driver = CallbackDriver(given_library=HostLibrary(Frontend()))
    program = CudaProgram(lowered(graph, "padded", SMALL, brick=8), driver, CudaOptions(group=4))
    filled = buffers(len(program.tasks), program.threads)
    program.run([inputs["x0"]], [np.zeros(graph.types[graph.outputs[0]].shape, np.float32)], filled)
    told = TaskEvents(filled)
    assert sorted(told.task.tolist()) == list(range(len(program.tasks)))
    assert (told.start <= told.end).all() and (told.end > 0).all()


@pytest.mark.parametrize("most", [99, 0])
def test_convolutions_of_some_channels(most):
    """x → 3×3 → channels 8 … 23 → 3×3, + them → 3×3 → abs"""
    s = Sketch()
    x = s.conv(s.map("abs", s.input(1, 8, 18, 18)), 32)
    some = s.add(Take((None, tuple(range(8, 24)), None, None)), x)
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), epilogue=apply("add", arg(0, F32), arg(1, F32)))
    y = s.add(op, some, s.constant(16, 16, 3, 3), some)
    program, _ = check(s.graph(s.map("abs", s.conv(y, 8))), brick=8, most=most)
    assert not program._calls.reasons and {form.tensors[1].dims[1] for form in forms(program)} == {8, 16}


# ---- gates


def gates(bias: bool) -> Graph:
    """x → 1×1 → depthwise 3×3, gated → 1×1, gated, + x → 1×1 → abs: as in NAFNet."""
    s = Sketch()
    x = s.map("abs", s.input(1, 8, 20, 20))
    a, b, c = (arg(k, F32) for k in range(3))
    gate, added = apply("mul", a, apply("sigmoid", b)), apply("add", apply("mul", a, b), c)
    more = [[s.constant(32)] if bias else [] for _ in range(2)]
    deep = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 32, bias, gate, 2)
    y = s.add(deep, s.conv(x, 32, 1), s.constant(32, 1, 3, 3), *more[0])
    last = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1, bias, added, 2)
    y = s.add(last, y, s.constant(16, 16, 1, 1), *([s.constant(16)] if bias else []), x)
    return s.graph(s.map("abs", s.conv(y, 8, 1)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("most", [99, 0])
def test_gates_are_computed_after_calls(bias, most):
    program, _ = check(gates(bias), "streams", brick=8, most=most)
    shares = {layer.form.tensors[0].dims[1]: layer.share for layer, _ in program._calls.layers.values()}
    assert shares[16] == ("biased" if bias and most else "product") and not program._calls.reasons
    assert "its product has several parts (2)" in program.notes["cuDNN"]


def test_sums_of_halves_lie_apart_from_products():
    """x → 3×3 → 3×3 · 10⁵ + x → abs: what float16 does not hold is float32."""
    s = Sketch()
    x = s.map("abs", s.input(1, 8, 16, 16))
    large = apply("add", apply("mul", arg(0, F32), const(1e5, F32)), arg(1, F32))
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), epilogue=large)
    graph = s.graph(s.map("abs", s.add(op, s.conv(x, 8), s.constant(8, 8, 3, 3), x)))
    for most, sums in ((0, "float16"), (99, "float32")):
        program, _ = check(graph, brick=8, most=most, precision="fp16")
        assert [form.tensors[0].dtype for form in forms(program)] == ["float16", sums]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_gates_of_halves(precision):
    program, _ = check(gates(True), brick=8, precision=precision)
    assert len(program._calls.layers) == 4


@pytest.mark.parametrize("parts", [1, 2])
def test_what_is_left_of_the_output_goes_where_that_lies(parts):
    """x → conv → conv with an epilogue → sums over all of it: a kernel for the epilogue needs no copy after it."""
    s = Sketch()
    x = s.conv(s.map("abs", s.input(1, 8, 16, 16)), 8)
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, False, apply("mul", arg(0, F32), arg(parts - 1, F32)), parts)
    graph = s.graph(s.reduce(s.add(op, x, s.constant(8 * parts, 8, 3, 3)), 2, 3))
    programs = [check(graph, brick=8, group=4, most=most)[0] for most in (0, 99)]  # plans are kept
    assert [len(program._calls.layers) for program in programs] == [2, 2]
    assert len(programs[0]._launches) == len(programs[1]._launches)
    assert [program._calls.rests != {} for program in programs] == [True, parts > 1]


# ---- products


def attention(heads: int = 6, rows: int = 24, keys: int = 10, columns: int = 4) -> Graph:
    """a → + sums of rows → · b of each head → abs"""
    s = Sketch()
    a, b = s.input(1, heads, rows, keys), s.map("abs", s.input(1, heads, keys, columns))
    a = s.map("add", a, s.reduce(a, 3))
    return s.graph(s.map("abs", s.add(MatMul(), s.map("abs", a), b)))


@pytest.mark.parametrize(("group", "dims"), [(None, (6, 24)), (18, (6, 24)), (7, (2, 24)), (2, (2, 8)), (1, (1, 8))])
def test_bricks_of_a_head_have_their_second_factor_once(group, dims):
    """Three bricks of 8 rows to a head; a call is of whole heads, or, if they are too large, of bricks one by one."""
    program, _ = check(attention(), "streams", group, brick=8)
    assert len(forms(program)) == 6 * 24 // (dims[0] * dims[1])
    for form in forms(program):
        assert (form.kind, form.tensors[0].dims, form.tensors[2].dims) == ("matmul", (*dims, 4), (dims[0], 10, 4))


def test_heads_that_the_cache_does_not_hold():
    """A brick's rows are there twice at a time."""
    device = replace(SMALL, cores=1, l2=int(1.5 * 4 * 8 * (10 + 10) / SMALL.cache_share))
    program, _ = check(attention(), "streams", brick=8, device=device)
    assert {form.tensors[0].dims[1] for form in forms(program)} == {8}


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_products_by_constants(precision):
    """x → + sums of rows → · weights + bias → abs: as a convolution where float32 stays so."""
    s = Sketch()
    x = s.input(2, 40, 6)
    x = s.map("abs", s.map("add", x, s.reduce(x, 2)))
    y = s.add(MatMul(True, apply("abs", arg(0, F32))), x, s.constant(6, 5), s.constant(5))
    program, _ = check(s.graph(s.map("abs", y)), group=4, brick=16, precision=precision)
    assert {form.kind for form in forms(program)} == {"conv" if precision == "fp32" else "matmul"}
    assert {form.tensors[0].dims[-2] for form in forms(program)} == {48}


# ---- boxes


@given(st.lists(st.tuples(*[st.integers(-4, 8)] * 2, *[st.integers(0, 5)] * 2), min_size=1, max_size=6))
def test_parts_outside(boxes):
    lo = np.array([box[:2] for box in boxes])
    hi, shape = lo + np.array([box[2:] for box in boxes]), (5, 3)
    numbers, parts = outside(Boxes(lo, hi), shape)
    for k in range(len(boxes)):
        counted = np.zeros((24, 24), int)
        for part in np.flatnonzero(numbers == k):
            counted[parts.slices(part, (-8, -8))] += 1
        wanted = np.zeros((24, 24), int)
        wanted[Boxes(lo, hi).slices(k, (-8, -8))] = 1
        wanted[8 : 8 + shape[0], 8 : 8 + shape[1]] = 0
        np.testing.assert_array_equal(counted, wanted)
