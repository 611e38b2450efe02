"""The six steps one after the other, and who owns what between them."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.execution.stage_cache import StageCache
from brickrt.runtime.pipeline import Pipeline, without_constants
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

X = np.linspace(-1, 1, 3 * 8 * 8, dtype=np.float32).reshape(1, 3, 8, 8)


def two_stages():
    """x → conv → NonZero, on the host → transposed → cast: what follows has a shape that the first stage decides."""
    w = np.random.default_rng(0).standard_normal((2, 3, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("NonZero", "b", "c"),
        node("Transpose", "c", "d", perm=[1, 0]),
        node("Cast", "d", "e", to=1),
        node("Neg", "e", "y"),
    ]
    return model(nodes, [tensor("x", (1, 3, 8, 8))], "y b", w=w)


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("strategy", ["auto", "memoized"])
def test_a_run_from_the_beginning(device, strategy):
    pipeline = Pipeline(choose_engine(device), PlanOptions(strategy), threads=2)
    found, wanted = pipeline.run(two_stages(), {"x": X}), by_onnxruntime(two_stages(), {"x": X})
    assert list(found) == ["y", "b"]
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)


def test_a_runtime_gives_the_same_bits():
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions("padded", 4), threads=2)
    found = pipeline.run(load(two_stages()), {"x": X})
    runtime = Runtime(two_stages(), device="cpu", strategy="padded", brick=4, threads=1)
    for _ in range(2):  # the second call takes what the first one compiled
        again = runtime.execute({"x": X})
        assert all(np.array_equal(again[name], found[name]) for name in found)


def test_stages_are_told_in_order():
    told = []
    pipeline = Pipeline(choose_engine("cpu"), progress=lambda what, done, total: told.append(what))
    pipeline.run(two_stages(), {"x": X})
    steps = [what for what in told if what != "compile kernels"]  # of which there are none where all are cached
    assert steps == ["specialize", "plan", "specialize", "plan"]


def test_inputs_are_checked_before_anything_else():
    with pytest.raises(InputError, match="'x' float32"):
        Pipeline(choose_engine("null")).run(two_stages(), {})


def test_a_program_owns_its_constants():
    """Compiling gives weights up one by one; the plan that it was made for keeps their shapes and types alone."""
    pipeline, source = Pipeline(choose_engine("cpu")), load(two_stages())
    special = pipeline.specialize(first_stage(source), {"x": TensorType(X.shape, X.dtype)}, {})
    plan = pipeline.plan(special.graph)
    kept = {name: array.copy() for name, array in plan.graph.constants.items()}
    bare, constants = without_constants(plan)
    assert bare.graph.constants.keys() == constants.keys() == kept.keys() and kept
    for name, array in bare.graph.constants.items():
        assert (array.shape, array.dtype) == (kept[name].shape, kept[name].dtype) and not array.any()
    pipeline.compile(pipeline.lower(bare), constants)
    assert not constants, "packed weights are held twice"
    for name, array in plan.graph.constants.items():
        np.testing.assert_array_equal(array, kept[name], err_msg=f"{name} was overwritten")


def test_a_stage_is_compiled_once_per_shape():
    source = load(model([node("Neg", "x", "y")], [tensor("x", ("N", 4))]))
    pipeline, cache = Pipeline(choose_engine("null")), StageCache(first_stage(source))
    arrays = [np.zeros((n, 4), np.float32) for n in (1, 2, 1)]
    made = [cache.get(pipeline.compiled, {"x": array}) for array in arrays]
    assert made[0][0] is made[2][0] is not made[1][0]
    assert made[0][1] > 0 and made[2][1] == 0
