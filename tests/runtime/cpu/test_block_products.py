"""Networks with constants of few bits on the CPU engine: memory, and the same bits by any number of threads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from brickrt import Runtime

DEPTH, BLOCK = 256, 32


def network() -> bytes:
    """Two products of int4 weights, with a Relu and a bias between."""
    rng, nodes, constants, x = np.random.default_rng(0), [], [], "x"
    for k in range(2):
        values = rng.integers(-8, 8, DEPTH * DEPTH)
        constants += [
            helper.make_tensor(f"q{k}", TensorProto.INT4, (DEPTH, DEPTH), values.tolist()),
            numpy_helper.from_array(rng.uniform(0.01, 0.02, (DEPTH // BLOCK, DEPTH)).astype(np.float32), f"s{k}"),
            numpy_helper.from_array(rng.standard_normal(DEPTH).astype(np.float32), f"b{k}"),
        ]
        nodes += [
            helper.make_node("DequantizeLinear", [f"q{k}", f"s{k}"], [f"w{k}"], axis=0, block_size=BLOCK),
            helper.make_node("MatMul", [x, f"w{k}"], [f"m{k}"]),
            helper.make_node("Add", [f"m{k}", f"b{k}"], [f"a{k}"]),
            helper.make_node("Relu", [f"a{k}"], [f"y{k}"]),
        ]
        x = f"y{k}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, "N", DEPTH)) for n in ("x", x)]
    graph = helper.make_graph(nodes, "few bits", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("rows", [1, 30])
def test_threads_and_definition(rows):
    model, x = network(), np.random.default_rng(1).standard_normal((1, rows, DEPTH)).astype(np.float32)
    found = []
    for threads in (1, 2):
        with Runtime(model, threads=threads) as runtime:
            found.append(next(iter(runtime.execute({"x": x}).values())))
            names = [node.op.name for plan in runtime.plan.plans for node in plan.graph.nodes]
            stored = sum(a.nbytes for plan in runtime.plan.plans for a in plan.graph.constants.values())
    assert names.count("BlockMatMul") == 2 and set(names) <= {"BlockMatMul", "View"}
    assert stored <= 1.3 * len(model)
    np.testing.assert_array_equal(*found)
    (want,) = ReferenceEvaluator(onnx.ModelProto.FromString(model)).run(None, {"x": x})
    np.testing.assert_allclose(found[0], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("rows", [33, 65])
def test_the_last_brick_has_few_rows(rows):
    """One row needs no weights in the workspace, which those before it do: kernels of one node have different
    pointers."""
    x = np.random.default_rng(1).standard_normal((1, rows, DEPTH)).astype(np.float32)
    found = []
    for options in ({"strategy": "layerwise"}, {"strategy": "padded", "brick": 32}):
        with Runtime(network(), threads=1, **options) as runtime:
            found.append(runtime.execute({"x": x}))
    (whole,), (bricks,) = (each.values() for each in found)
    np.testing.assert_array_equal(whole, bricks)
