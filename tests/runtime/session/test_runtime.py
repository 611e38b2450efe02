"""`Runtime`: programs per input shapes, models in stages, several callers, and what it says of nonsense."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import numpy as np
import onnx
import pytest

import brickrt
from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.move import Concat
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.plan import make_plan
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.program import CpuProgram
from brickrt.runtime.execution.kept_programs import LEAST_PROGRAM_BYTES
from brickrt.runtime.lowering.lower import lower
from brickrt.runtime.session.runtime import Runtime
from tests.support.contrib.contributed import needs_an_exact_peer
from tests.support.graphs.onnx_models import by_onnxruntime, graph, model, node, tensor


def sample(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def small_net(*x: int | str) -> onnx.ModelProto:
    """x → conv 3×3 → relu → 1×1 → + a row per column → global mean"""
    nodes = [
        node("Conv", "x w b", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "c"),
        node("Conv", "c v", "d"),
        node("Add", "d row", "e"),
        node("GlobalAveragePool", "e", "y"),
    ]
    row = sample(1) if isinstance(x[-1], str) else sample(x[-1])
    inputs = [tensor("x", x)]
    return model(nodes, inputs, "y e", w=sample(20, 3, 3, 3), b=sample(20), v=sample(18, 20, 1, 1), row=row)


def check(proto: onnx.ModelProto, arrays: dict[str, np.ndarray], runtime: Runtime | None = None, **options) -> Runtime:
    """Compares all outputs with those of ONNX Runtime."""
    runtime = runtime or Runtime(proto, **{"device": "cpu", "threads": 2} | options)
    results = runtime.execute(arrays)
    for name, want in by_onnxruntime(proto, arrays).items():
        assert results[name].dtype == want.dtype
        assert results[name].shape == want.shape
        np.testing.assert_allclose(results[name], want, rtol=1e-4, atol=1e-4, err_msg=name)
    return runtime


# ---- shapes


def test_programs_are_kept_by_shape():
    proto, told = small_net("N", 3, "H", "W"), []
    runtime = Runtime(proto, device="cpu", progress=lambda what, done, of: told.append(what))
    for batch, size in [(1, 6), (3, 6), (1, 9)]:
        check(proto, {"x": sample(batch, 3, size, size)}, runtime)
        assert runtime.stats.compile_ms > 0
    assert told.count("specialize") == 3
    for batch, size in [(1, 9), (1, 6), (3, 6)]:
        check(proto, {"x": sample(batch, 3, size, size, seed=1)}, runtime)
        assert runtime.stats.compile_ms == 0
    assert told.count("specialize") == 3


def test_the_least_recently_used_program_goes():
    runtime = Runtime(small_net("N", 3, 4, 4), device="null", keep_bytes=3 * LEAST_PROGRAM_BYTES)

    def compiles(batch: int) -> bool:
        runtime.execute({"x": sample(batch, 3, 4, 4)})
        return runtime.stats.compile_ms > 0

    assert [compiles(n) for n in (1, 2, 3)] == [True] * 3
    assert not compiles(1)  # now the one used last
    assert compiles(4)
    assert not compiles(1)
    assert compiles(2)


def test_the_last_program_is_kept_however_large_it_is():
    runtime = Runtime(small_net("N", 3, 4, 4), device="null", keep_bytes=0)
    for batch in (1, 1, 2, 2, 1):
        runtime.execute({"x": sample(batch, 3, 4, 4)})
    assert runtime.stats.compile_ms > 0
    runtime.execute({"x": sample(1, 3, 4, 4)[:, :, ::-1]})
    assert runtime.stats.compile_ms == 0
    with pytest.raises(BrickError, match="keep_bytes -1 is impossible"):
        Runtime(small_net("N", 3, 4, 4), keep_bytes=-1)


def test_an_empty_batch():
    runtime = check(small_net("N", 3, 4, 4), {"x": sample(0, 3, 4, 4)})
    assert runtime.stats.tasks >= 0


def test_arrays_of_any_strides():
    proto, x = small_net(1, 3, 6, 5), sample(5, 6, 3, 1)
    runtime = Runtime(proto, device="cpu")
    for array in (
        np.ascontiguousarray(x.T),
        x.T,
        np.broadcast_to(sample(1, 1, 1, 5), (1, 3, 6, 5)),
        np.asfortranarray(x.T),
    ):
        before = array.copy()
        check(proto, {"x": array}, runtime)
        np.testing.assert_array_equal(array, before)


def test_results_are_the_callers():
    """Another run writes other arrays."""
    runtime = Runtime(small_net(1, 3, 6, 5), device="cpu")
    first = runtime.execute({"x": sample(1, 3, 6, 5)})
    kept = {name: array.copy() for name, array in first.items()}
    runtime.execute({"x": sample(1, 3, 6, 5, seed=9)})
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])


# ---- models in stages


def test_a_part_on_the_host():
    """x → relu → NonZero (host) → gather of what is not zero → · 2"""
    nodes = [
        node("Relu", "x", "r"),
        node("NonZero", "r", "at"),
        node("Transpose", "at", "t", perm=[1, 0]),
        node("GatherND", "r t", "g"),
        node("Mul", "g two", "y"),
    ]
    proto = model(nodes, [tensor("x", [2, 5])], two=np.float32([2]))
    runtime = Runtime(proto, device="cpu")
    for seed in range(3):
        check(proto, {"x": sample(2, 5, seed=seed)}, runtime)
    assert any("NonZero" in name for name in runtime.fallback)
    assert "host: " in str(runtime.plan)
    assert runtime.stats.host_ms > 0


def test_a_choice_that_is_computed():
    then, other = graph([node("Mul", "x x", "u")], outputs="u"), graph([node("Exp", "x", "u")], outputs="u")
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s zero", "c"),
        node("If", "c", "a", then_branch=then, else_branch=other),
        node("Neg", "a", "y"),
    ]
    proto = model(nodes, [tensor("x", [2, 3])], zero=np.float32(0))
    runtime = Runtime(proto, device="cpu")
    for x in (abs(sample(2, 3)), -abs(sample(2, 3)), abs(sample(2, 3, seed=1))):
        check(proto, {"x": x}, runtime)
    assert runtime.stats.compile_ms == 0


def test_a_loop():
    """As many times as n says: v ← relu(v · w)"""
    step = graph(
        [node("MatMul", "v w", "p"), node("Relu", "p", "v_out"), node("Identity", "go", "go_out")],
        [tensor("i", [], np.int64), tensor("go", [], bool), tensor("v", [2, 4])],
        [tensor("go_out", [], bool), tensor("v_out", [2, 4])],
    )
    proto = model(
        [node("Loop", "n go x", "z", body=step), node("Add", "z x", "y")],
        [tensor("x", [2, 4]), tensor("n", [], np.int64)],
        w=sample(4, 4),
        go=np.array(True),
    )
    runtime = Runtime(proto, device="cpu")
    for n in (3, 0, 1):
        check(proto, {"x": sample(2, 4), "n": np.array(n)}, runtime)


def test_inputs_whose_values_are_shapes():
    proto = model(
        [node("Reshape", "x s", "r"), node("Relu", "r", "y")], [tensor("x", [2, 6]), tensor("s", [2], np.int64)]
    )
    runtime = Runtime(proto, device="cpu")
    for shape in ([3, 4], [12, 1], [3, 4]):
        check(proto, {"x": sample(2, 6), "s": np.array(shape)}, runtime)
    assert runtime.stats.compile_ms == 0


def test_inputs_with_defaults():
    """w is an initializer and an input: given, it replaces the initializer."""
    nodes = [node("Conv", "x w", "a"), node("Relu", "a", "y")]
    proto = model(nodes, [tensor("x", [1, 3, 4, 4]), tensor("w", [5, 3, 2, 2])], w=sample(5, 3, 2, 2))
    runtime = Runtime(proto, device="cpu")
    x = sample(1, 3, 4, 4)
    check(proto, {"x": x}, runtime)
    check(proto, {"x": x, "w": sample(5, 3, 2, 2, seed=7)}, runtime)
    check(proto, {"x": x, "w": sample(5, 3, 2, 2, seed=8)}, runtime)
    assert runtime.stats.compile_ms == 0
    check(proto, {"x": x}, runtime)


def test_outputs_that_are_inputs_constants_or_the_same():
    nodes = [
        node("Identity", "x", "same"),
        node("Relu", "x", "y"),
        node("Identity", "y", "again"),
        node("Neg", "c", "fixed"),
    ]
    proto = model(nodes, [tensor("x", [2, 3])], "same y again c fixed", c=sample(3))
    check(proto, {"x": sample(2, 3)})
    only_known = model([node("Neg", "c", "y")], [tensor("x", [2])], c=sample(3))
    runtime = check(only_known, {"x": sample(2)})
    assert runtime.stats.tasks == 0
    assert "nothing to compute" in str(runtime.plan)


def test_outputs_in_the_middle():
    """Both the sum and what it is made of leave the graph; one of them is a view of the other."""
    nodes = [node("Conv", "x w", "a"), node("Reshape", "a s", "b"), node("Relu", "b", "c"), node("Transpose", "c", "d")]
    proto = model(nodes, [tensor("x", [1, 3, 4, 4])], "a b c d", w=sample(18, 3, 1, 1), s=np.array([18, 16]))
    for strategy in ("layerwise", "padded", "memoized"):
        check(proto, {"x": sample(1, 3, 4, 4)}, strategy=strategy, brick=2)


# ---- what was once wrong


@pytest.mark.parametrize("extra", [(5,), (9, 1), (1, 1, 1, 5), (1, 1, 9, 1), (1, 40, 9, 1)], ids=str)
def test_operands_that_differ_by_row_or_column_beside_a_pointwise_convolution(extra):
    nodes = [node("Conv", "x w", "a"), node("Add", "a b", "y")]
    check(model(nodes, [tensor("x", [1, 6, 9, 5])], w=sample(40, 6, 1, 1), b=sample(*extra)), {"x": sample(1, 6, 9, 5)})


@pytest.mark.parametrize("groups", [1, 3])
def test_weights_and_bias_that_are_inputs(groups):
    m = 40 if groups == 1 else 9
    shapes = {"x": (1, 6, 5, 5), "w": (m, 6 // groups, 3, 3), "b": (m,)}
    inputs = [tensor(name, shape) for name, shape in shapes.items()]
    proto = model([node("Conv", "x w b", "a", group=groups), node("Relu", "a", "y")], inputs)
    check(proto, {name: sample(*shape) for name, shape in shapes.items()})


@pytest.mark.parametrize("isa", [None, "generic"])
@pytest.mark.parametrize("channels", [(16, 32), (3, 37)], ids=str)
def test_part_of_the_channels_of_a_padded_brick(channels, isa):
    """Only these are computed: kernels may not write beyond what scratch has room for."""
    slice_ = {"s": np.array(channels[:1]), "e": np.array(channels[1:]), "ax": np.array([1])}
    nodes = [node("Conv", "x w", "a", pads=[1] * 4), node("Slice", "a s e ax", "b"), node("Relu", "b", "y")]
    proto = model(nodes, [tensor("x", [1, 6, 12, 12])], w=sample(64, 6, 3, 3), **slice_)
    check(proto, {"x": sample(1, 6, 12, 12)}, strategy="padded", brick=4, isa=isa)


@pytest.mark.parametrize("channels", [(2, 25, 3), (3, 25, 1), (16, 20, 1)], ids=str)
def test_part_of_the_channels_of_a_moved_tensor(channels):
    """x → 1×1 → pad → slice: blocks of channels are moved whole, from their first channel on."""
    constants = {name: np.array([k]) for name, k in zip(("s", "e", "t"), channels)}
    nodes = [node("Conv", "x w", "a"), node("Pad", "a p", "b"), node("Slice", "b s e ax t", "y")]
    pads = np.array([0] * 6 + [1, 1])
    proto = model(nodes, [tensor("x", [1, 4, 7, 13])], w=sample(25, 4, 1, 1), p=pads, ax=np.array([1]), **constants)
    check(proto, {"x": sample(1, 4, 7, 13)}, strategy="padded", brick=4)


def test_part_of_the_columns_of_a_padded_brick():
    slice_ = {"s": np.array([11]), "e": np.array([41]), "ax": np.array([1])}
    nodes = [node("MatMul", "x w", "a"), node("Slice", "a s e ax", "b"), node("MatMul", "b v", "y")]
    proto = model(nodes, [tensor("x", [24, 6])], w=sample(6, 100), v=sample(30, 7), **slice_)
    check(proto, {"x": sample(24, 6)}, strategy="padded", brick=4)


@needs_an_exact_peer
@pytest.mark.parametrize("strategy", ["auto", "padded", "memoized"])
def test_operands_without_dimensions_beside_a_product(strategy):
    """x in bytes of a scale and zero point that are found from it, times bytes."""
    nodes = [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z", "i")]
    nodes += [node("Cast", "i", "f", to=1), node("Mul", "f s", "y")]
    proto = model(nodes, [tensor("x", [5, 24])], w=np.arange(-108, 108, dtype=np.int8).reshape(24, 9))
    check(proto, {"x": sample(5, 24)}, strategy=strategy)


def test_more_tensors_joined_than_a_kernel_reads():
    """x times 0, 1, 2… side by side."""
    names = [f"x{k}" for k in range(100)]
    nodes = [node("Mul", f"x c{k}", name) for k, name in enumerate(names)]
    nodes += [node("Concat", " ".join(names), "y", axis=1)]
    constants = {f"c{k}": np.array(k, np.float32) for k in range(len(names))}
    check(model(nodes, [tensor("x", [1, 2, 8])], "y", **constants), {"x": sample(1, 2, 8)})


def test_a_kernel_of_too_many_operands_is_refused():
    """Nobody builds such an operator: many tensors are joined step by step."""
    names = tuple(f"x{k}" for k in range(70))
    kinds = {name: TensorType((1, 2), np.dtype(np.float32)) for name in names}
    join = Node("join", Concat(1), names, "y")
    types = kinds | {"y": join.op.infer(list(kinds.values()))}
    tasks = lower(make_plan(Graph((join,), types, {}, names, ("y",)), host_device()))
    with pytest.raises(BrickError, match="'join': kernels take at most"):
        CpuProgram.build(tasks, host_isa(host_device()), 1)


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
def test_channels_split_off_backwards_rows(strategy):
    """Every second row, from the end, of some channels and of the others: one part is read by nobody."""
    ends = {"s": np.array([27]), "e": np.array([-36]), "ax": np.array([2]), "t": np.array([-2]), "n": np.array([2, 1])}
    nodes = [node("Slice", "x s e ax t", "a"), node("Split", "a n", "b y", axis=1), node("Conv", "b w", "z")]
    proto = model(nodes, [tensor("x", [3, 3, 35, 20])], "y z", w=sample(17, 2, 3, 3), **ends)
    check(proto, {"x": sample(3, 3, 35, 20)}, strategy=strategy, brick=5)


def test_grouped_pointwise_convolution():
    nodes = [node("Conv", "x w", "y", group=2)]
    check(model(nodes, [tensor("x", [1, 2, 3, 4])], w=sample(38, 1, 1, 1)), {"x": sample(1, 2, 3, 4)})


# ---- callers


def test_four_callers_at_once():
    """Two models' worth of shapes, from four Python threads."""
    proto = small_net("N", 3, 6, 6)
    runtime = Runtime(proto, device="cpu", threads=2)
    cases = [{"x": sample(1 + k % 2, 3, 6, 6, seed=k)} for k in range(8)]
    wanted = [by_onnxruntime(proto, case) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda k: runtime.execute(cases[k % 8]), range(40)))
    for k, result in enumerate(results):
        for name, want in wanted[k % 8].items():
            np.testing.assert_allclose(result[name], want[: len(want)], rtol=1e-4, atol=1e-4)


def test_watchers_see_every_task_of_every_run():
    seen = []
    runtime = Runtime(small_net(1, 3, 6, 6), device="cpu", threads=2, strategy="memoized", brick=2, watch=seen.append)
    for _ in range(2):
        runtime.execute({"x": sample(1, 3, 6, 6)})
    assert [len(events) for events in seen] == [runtime.stats.tasks] * 2


def test_prepare_compiles_without_running():
    seen, told = [], []
    runtime = Runtime(
        small_net("N", 3, 6, 6), device="cpu", watch=seen.append, progress=lambda *step: told.append(step)
    )
    report = runtime.prepare({"x": sample(2, 3, 6, 6)})
    assert report.plans[0].subgraphs
    assert runtime.plans == list(report.plans)
    assert not seen
    assert {what for what, _, _ in told} >= {"specialize", "plan"}
    assert all(0 <= done <= of for _, done, of in told)
    runtime.execute({"x": sample(2, 3, 6, 6)})
    assert runtime.stats.compile_ms == 0
    assert len(seen) == 1


def test_constants_are_released_once_packed():
    runtime = Runtime(small_net(1, 3, 6, 6), device="cpu")
    runtime.execute({"x": sample(1, 3, 6, 6)})
    constants = runtime.plans[0].graph.constants
    assert constants
    for name, array in constants.items():
        assert array.shape == runtime.plans[0].graph.types[name].shape
        assert not any(array.strides), f"'{name}' is still held beside its packed copy"
    check(small_net(1, 3, 6, 6), {"x": sample(1, 3, 6, 6, seed=3)}, runtime)


def test_memory_goes_with_the_last_reference():
    """And does not wait for the collection of garbage, which large arrays do not hasten."""
    runtime = Runtime(small_net(1, 3, 6, 6), device="cpu")
    runtime.execute({"x": sample(1, 3, 6, 6)})
    (root,) = runtime._roots.values()
    (stage,) = root._compiled.values()
    program = ref(stage.program)
    gc.disable()
    try:
        del runtime, root, stage
        assert program() is None
    finally:
        gc.enable()


def test_models_from_anywhere(tmp_path):
    proto, x = small_net(1, 3, 6, 6), {"x": sample(1, 3, 6, 6)}
    onnx.save(proto, tmp_path / "m.onnx")
    first = Runtime(proto, device="cpu").execute(x)
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), proto.SerializeToString(), brickrt.load(proto)):
        with Runtime(source, device="cpu") as runtime:
            for name, array in runtime.execute(x).items():
                np.testing.assert_array_equal(array, first[name])
