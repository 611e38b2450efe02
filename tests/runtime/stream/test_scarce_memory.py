"""Weights that are transformed take memory that bands need: where it is scarce, fewer layers have such weights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.plan.stream.choose_bands import TooLittleMemory
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.stream import stream_planning
from brickrt.runtime.stream.stream_files import opened_job
from brickrt.runtime.stream.stream_planning import MIB, PlannedStream, plan_stream
from brickrt.runtime.stream.stream_report import StreamCut, StreamOptions
from tests.runtime.stream.helpers import PLENTY, pixels
from tests.support.graphs.onnx_models import model, node, tensor

SIZE, WIDTHS = 32, (3, 192, 320, 5)


def heavy() -> bytes:
    """Three 3×3 convolutions that have more weights than pixels."""
    rng = np.random.default_rng(1)
    shapes = [(m, c, 3, 3) for c, m in pairwise(WIDTHS)]
    weights = [(rng.standard_normal(shape) * (shape[1] * 9) ** -0.5).astype(np.float32) for shape in shapes]
    names = ["x", "a", "b", "y"]
    nodes = [helper.make_node("Conv", [names[k], f"w{k}"], [names[k + 1]], pads=[1] * 4) for k in range(len(shapes))]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, channels, SIZE, SIZE))
        for name, channels in (("x", WIDTHS[0]), ("y", WIDTHS[-1]))
    ]
    given = [numpy_helper.from_array(array, f"w{k}") for k, array in enumerate(weights)]
    graph = helper.make_graph(nodes, "heavy", ends[:1], ends[1:], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture
def looked_at(monkeypatch) -> None:
    """These weights are little of what a process has, and what the one of tests has changes."""
    monkeypatch.setattr(stream_planning, "LEAST_TRANSFORMED_BYTES", 0)
    monkeypatch.setattr(stream_planning, "resident_bytes", lambda: 100 * MIB)


def planned(limit: int, exact: bool = False) -> PlannedStream:
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions(exact=exact), 1)
    return plan_stream(pipeline, load(heavy()), {"x": TensorType((1, 3, SIZE, SIZE), np.dtype(np.float32))}, limit)


def least(monkeypatch, exact: bool = False) -> int:
    """The least memory that would do with all transformed weights."""
    with monkeypatch.context() as patch:
        patch.setattr(stream_planning, "TRANSFORMED_SHARES", ())
        with pytest.raises(TooLittleMemory) as refused:
            planned(MIB, exact)
    return refused.value.least.memory.total


def test_less_memory_is_enough(looked_at, monkeypatch):
    limit = least(monkeypatch)
    plenty, scarce = planned(PLENTY), planned(limit - MIB)
    assert plenty.transformed is None and scarce.transformed is not None
    assert scarce.candidate.memory.total <= limit - MIB
    assert scarce.candidate.memory.constants < plenty.candidate.memory.constants
    with pytest.raises(TooLittleMemory) as refused:
        planned(MIB)
    assert refused.value.least.memory.total < limit


def test_exact_runs_keep_the_algorithms_of_runs_in_core(looked_at, monkeypatch):
    """They promise the same bits."""
    limit = least(monkeypatch, exact=True)
    with pytest.raises(TooLittleMemory) as refused:
        planned(MIB, exact=True)
    assert refused.value.least.memory.total == pytest.approx(limit, abs=32 * MIB)
    assert planned(PLENTY, exact=True).transformed is None


def test_a_run_that_goes_on_has_the_weights_of_the_one_before(tmp_path):
    """Its bytes are those of a run that was not ended."""
    x, cut = {"x": pixels(SIZE)}, StreamCut(8, (1,), (), 0)
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions(), 1)
    wanted = pipeline.run(heavy(), x)["y"]

    def job(name: str, watch=None, **options):
        asked = StreamOptions(PLENTY, **options)
        return opened_job(pipeline, load(heavy()), x, {"y": tmp_path / name}, asked, watch=watch)

    with job("whole.npy", cut=cut) as whole:
        assert not any("winograd" in name for name in whole.plan.algorithms.values() if not name.endswith("-raw"))
        whole.run({"y": tmp_path / "whole.npy"})
    with job("y.npy", lambda progress: first.cancel(), cut=cut) as first, pytest.raises(Cancelled):
        first.run({"y": tmp_path / "y.npy"})
    with job("y.npy", resume=True) as second:
        assert second.planned.cut == whole.planned.cut
        report = second.run({"y": tmp_path / "y.npy"})
    assert report.to_dict()["transformed_bytes"] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.load(tmp_path / "whole.npy"))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-4, atol=1e-5)


def test_weights_that_only_planning_reads_are_given_up(looked_at):
    """Folded into the convolution before them, batch norms leave other weights than the model's."""
    rng = np.random.default_rng(2)
    shapes = {"w": (256, 3, 3, 3), "v": (64, 256, 3, 3), "g": (64,), "b": (64,), "m": (64,), "s": (64,)}
    weights = {name: (0.1 + rng.random(shape)).astype(np.float32) for name, shape in shapes.items()}
    nodes = [node("Conv", "x w", "a"), node("Conv", "a v", "c"), node("BatchNormalization", "c g b m s", "y")]
    folded = load(model(nodes, [tensor("x", [1, 3, SIZE, SIZE])], **weights).SerializeToString())
    types, pipeline = {"x": TensorType((1, 3, SIZE, SIZE), np.dtype(np.float32))}, Pipeline(choose_engine("cpu"))
    kept = plan_stream(pipeline, folded, types, PLENTY)
    assert folded.initializers.keys() == shapes.keys()
    given_up = plan_stream(pipeline, folded, types, PLENTY, had_before=0)
    assert "v" not in folded.initializers and "w" in folded.initializers
    for name, array in kept.plan.graph.constants.items():
        np.testing.assert_array_equal(given_up.plan.graph.constants[name], array)


@pytest.mark.parametrize(("limit", "needed"), [(390, 608), (1, 608), (620, None)])
def test_what_planning_took_counts_in_a_process_of_its_own(limit, needed, looked_at, monkeypatch):
    """Folding large constants takes more than bands do: then that is the least."""
    monkeypatch.setattr(stream_planning, "peak_bytes", lambda: 590 * MIB)
    types, pipeline = {"x": TensorType((1, 3, SIZE, SIZE), np.dtype(np.float32))}, Pipeline(choose_engine("cpu"))
    assert planned(limit=500 * MIB).candidate  # where others have used the process before
    if needed is None:
        assert plan_stream(pipeline, load(heavy()), types, limit * MIB, had_before=0).candidate
        return
    with pytest.raises(BrickError, match=f"to plan it took 590 MiB: raise --max-memory to {needed}MiB"):
        plan_stream(pipeline, load(heavy()), types, limit * MIB, had_before=0)
