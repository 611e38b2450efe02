"""Weights that a layer would wait for are asked for by the convolutions before it: all of them, once, to no effect.

`exact` has the convolutions computed directly or in tiles: others do not ask."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from brickrt import Runtime
from brickrt.graph.onnx_import.source import load
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cpu import weight_prefetch
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.program import ProgramSeries
from brickrt.runtime.cpu.weight_prefetch import WeightPrefetch
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.lowering.owned_constants import KeptConstants
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_planning import whole_graph

CHANNELS = 256


def classifier(pixels: int, convolutions: int = 2, rows: int = 1) -> onnx.ModelProto:
    """Pointwise convolutions of images of `pixels` rows and columns, a global pool, and twice L2 of weights."""
    rng = np.random.default_rng(0)
    outputs = 2 * host_device().l2 // (4 * CHANNELS)
    weights = {f"w{k}": (CHANNELS, CHANNELS, 1, 1) for k in range(convolutions)} | {"head": (CHANNELS, outputs)}
    scaled = {name: (rng.standard_normal(shape) / 16).astype(np.float32) for name, shape in weights.items()}
    nodes = [helper.make_node("Conv", [f"x{k}", f"w{k}"], [f"x{k + 1}"]) for k in range(convolutions)]
    nodes += [
        helper.make_node("GlobalAveragePool", [f"x{convolutions}"], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x0", 1, [rows, CHANNELS, pixels, pixels])
    y = helper.make_tensor_value_info("y", 1, None)
    inits = [numpy_helper.from_array(array, name) for name, array in scaled.items()]
    graph = helper.make_graph(nodes, "classifier", [x], [y], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return {"x0": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}


@pytest.fixture
def noted(monkeypatch) -> list[WeightPrefetch]:
    """The `WeightPrefetch` of every program that is built."""
    seen: list[WeightPrefetch] = []
    real = WeightPrefetch.fill
    monkeypatch.setattr(WeightPrefetch, "fill", lambda self, where: (seen.append(self), real(self, where))[1])
    return seen


def test_nearby_convolutions_ask_for_every_byte_once(noted):
    model = classifier(24, convolutions=4)
    program = Runtime(model, threads=2, exact=True).prepare(feeds(model)).programs[0]
    (found,) = noted
    graph = program.tasks.plan.graph
    assert {graph.nodes[k].op.__class__ for k in found.shares} == {Conv}
    nbytes = next(graph.types[share.constant].nbytes for share in found.shares.values())
    spans = sorted((int(at), int(at) + int(n)) for s in found.slices for at, n in zip(s.column[:, 1], s.sizes))
    assert spans[0][0] == 0 and spans[-1][1] == nbytes
    gaps = [after[0] - before[1] for before, after in pairwise(spans)]
    assert max(gaps) <= 0
    assert len({int(base) for s in found.slices for base in s.column[:, 0]}) == 1


def test_weights_that_another_band_reads_too_are_asked_for(noted):
    """One program may have a single reader of a constant whose packed copies go by their bytes, as others share it."""
    model, engine = classifier(24), choose_engine("cpu")
    pipeline = Pipeline(engine, PlanOptions(exact=True), 2)
    types = {"x0": TensorType((1, CHANNELS, 24, 24), np.dtype(np.float32))}
    plan = pipeline.plan(whole_graph(load(model), types, engine.spec), measured=False)
    graph = plan.graph
    both = replace(graph, nodes=(*graph.nodes, graph.nodes[-1]))
    values = KeptConstants(both, graph.constants)
    assert values.is_shared("head")
    ProgramSeries(host_isa(engine.spec), 2, values).make([pipeline.lower(plan)])
    assert noted[0].slices


def test_asking_changes_no_bit(monkeypatch, noted):
    model = classifier(14)
    asked = Runtime(model, threads=2, exact=True).execute(feeds(model))
    assert noted[0].slices
    monkeypatch.setattr(weight_prefetch, "askers", lambda tasks: {})
    plain = Runtime(model, threads=2, exact=True).execute(feeds(model))
    assert not noted[1].slices
    for name, array in asked.items():
        np.testing.assert_array_equal(array, plain[name])


def open_classifier() -> onnx.ModelProto:
    """The same for any number of images of any size."""
    model = classifier(2)
    for name, dim in zip("NCHW", model.graph.input[0].type.tensor_type.shape.dim, strict=True):
        if name != "C":
            dim.dim_param = name
    return model


def test_at_sizes_where_nobody_waits_the_same_code_asks_for_nothing(monkeypatch):
    paces, places, real = [], [], WeightPrefetch.asking

    def asking(self, steps, variants, which):
        made, asked = real(self, steps, variants, which)
        if asked is not None:
            paces.append(made[0].prefetch_bytes)
            places.append([kernel.extra_pointers for kernel in made])
            assert (asked == 0).all() == (paces[-1] == 0)
        return made, asked

    monkeypatch.setattr(WeightPrefetch, "asking", asking)
    runtime, rng = Runtime(open_classifier(), threads=1, exact=True), np.random.default_rng(1)
    for shape in ((1, CHANNELS, 24, 24), (512, CHANNELS, 2, 2)):
        runtime.prepare({"x0": rng.standard_normal(shape, dtype=np.float32)})
    assert len(paces) == 4 and max(paces[:2]) > 0 and paces[2:] == [0, 0]
    assert places == [[1]] * 4  # and where the bytes begin is a pointer of all


@pytest.mark.parametrize("case", ["many rows compute longer", "nothing before it"])
def test_nobody_asks_where_that_helps_nobody(case, noted):
    model = classifier(2, rows=512) if case == "many rows compute longer" else classifier(1, convolutions=0)
    Runtime(model, threads=1, exact=True).prepare(feeds(model))
    assert not noted[0].shares
