"""Runs in bounded memory: the same values as in core, limits held, and what the API takes."""

from __future__ import annotations

import gc
import re
from weakref import ref

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import brickrt
from brickrt import zoo
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.last_step import with_argmax, with_threshold
from brickrt.graph.onnx_import.source import load
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.runtime.analysis.memory_projection import project
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.stream import stream_planning
from brickrt.runtime.stream.stream_files import opened_job
from brickrt.runtime.stream.stream_planning import MIB, RESIDENT_NOISE_BYTES, in_core_bytes, whole_graph
from brickrt.runtime.stream.stream_program import StreamProgram
from brickrt.runtime.stream.stream_report import StreamCut, StreamOptions
from tests.runtime.stream.helpers import PLENTY, child, pixels, pools, run, two_layers
from tests.support.cpu.streams import plan_of, planner_of
from tests.support.graphs.quantized_models import QuantizedModel


def test_memory_goes_with_the_program():
    """Workers of a cluster make one program after another, and have the memory of one."""
    stream = planner_of(plan_of(onnx.load_from_string(two_layers(size=64)))).stream_plan(16)
    program = StreamProgram(stream, host_isa(stream.plan.device), 1, dict(stream.plan.graph.constants))
    left = ref(program)
    gc.disable()
    try:
        del program
        assert left() is None
    finally:
        gc.enable()


def test_api_takes_arrays_and_paths(tmp_path):
    runtime = brickrt.Runtime(two_layers(), device="cpu", threads=2)
    np.save(tmp_path / "x.npy", pixels())
    wanted = runtime.execute({"x": pixels()})["y"]
    for given, out in (({"x": tmp_path / "x.npy"}, {"y": tmp_path / "a.npy"}), (pixels(), tmp_path / "b.npy")):
        report = runtime.stream(given, out, max_memory=PLENTY)
        assert isinstance(report, brickrt.StreamReport) and report.bytes_read >= pixels().nbytes
        assert report.bytes_written == wanted.nbytes and report.bands == report.all_bands
        np.testing.assert_allclose(np.load(report.outputs["y"]), wanted, rtol=1e-5, atol=1e-5)
    report = runtime.stream(pixels(), tmp_path / "c.npy", max_memory="64GiB", stored="uint8", scale=40)
    assert report.limit == PLENTY == 2**36
    np.testing.assert_allclose(np.load(tmp_path / "c.npy"), np.clip(np.rint(wanted * 40), 0, 255), atol=1)


def test_quantized_layers_are_multiplied_as_integers_in_bands_too(tmp_path):
    m = QuantizedModel(3)
    first = m.quantized(m.conv(m.quantized("x", 0.03), 0.03, (16, 3, 3, 3), strides=[2, 2]), 0.4)
    second = m.quantized(m.node("Relu", m.conv(first, 0.4, (16, 16, 3, 3), pads=[1] * 4)), 0.9)
    model = m.model(m.conv(m.quantized(m.node("Add", first, second), 1.1), 1.1, (8, 16, 1, 1)), (1, 3, 260, 260))
    x = np.random.default_rng(0).random((1, 3, 260, 260), np.float32) * 6
    runtime = brickrt.Runtime(model, device="cpu", threads=2)
    report = runtime.stream(x, tmp_path / "y.npy", max_memory=PLENTY)
    (wanted,) = runtime.execute({"x": x}).values()
    np.testing.assert_array_equal(np.load(report.outputs[next(iter(report.outputs))]), wanted)
    types = {"x": TensorType(x.shape, x.dtype)}
    streamed = stream_planning.plan_stream(Pipeline(choose_engine("cpu"), PlanOptions(), 2), load(model), types, PLENTY)
    factors = {streamed.plan.graph.ins(n)[0].dtype for n in streamed.plan.graph.nodes if isinstance(n.op, Conv)}
    assert factors == {np.dtype(np.uint8)}


@pytest.mark.parametrize(
    ("inputs", "outputs", "options", "refused"),
    [
        ({"x": pixels(), "z": 1}, "y.npy", {}, "has the inputs 'x': 'z' is none of them"),
        (pixels(), {"no": "y.npy"}, {}, "has the outputs 'y': 'no' is none of them"),
        (pixels(), {}, {}, "has the outputs 'y': some are missing"),
        (pixels(), "y.npy", {"max_memory": 0}, "max_memory 0 is impossible: give a number of bytes"),
        (pixels(), "y.npy", {"max_memory": "lots"}, "max_memory 'lots' is no amount of memory: write it as"),
        (pixels(), "y.npy", {"max_memory": 2.5e9}, "max_memory 2500000000.0 is impossible"),
        (pixels(), "y.npy", {"scale": "2"}, "scale '2' is impossible: give a finite number"),
        (pixels(), "y.npy", {"stored": 3}, "3 is no type: use uint8"),
        (pixels(), "y.npy", {"scratch": 3}, "scratch is a int: give the path of a folder"),
        (pixels(), "y.npy", {"resume": "yes"}, "resume 'yes' is impossible: give True or False"),
        (pixels(), "y.npy", {"window": 64, "overlap": "half"}, "overlap 'half' is impossible"),
        (pixels(), "y.npy", {"stored": "uint9"}, "'uint9' is no type: use uint8"),
        (pixels(), "y.npy", {"scale": float("nan")}, "scale nan is impossible"),
        (pixels()[:, :2], "y.npy", {}, "has the shape"),
        (pixels(), np.empty((1, 5, 64, 64)), {}, "output 'y' is a ndarray: give the path of the file to write"),
        (pixels(), {"y": None}, {}, "output 'y' is a NoneType: give the path of the file to write"),
        ("absent.npy", "y.npy", {}, "absent.npy: no such file"),
        (pixels(), "y.png", {}, "y.png: pictures are written by runs in memory"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(inputs, outputs, options, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runtime = brickrt.Runtime(two_layers(), device="cpu", threads=2)
    with pytest.raises(BrickError, match=re.escape(refused)) as error:
        runtime.stream(inputs, outputs, **{"max_memory": PLENTY, **options})
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_inputs_are_not_written_over(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, pixels())
    with pytest.raises(BrickError, match=r"output 'y' .*x\.npy: is an input of this run: give another path"):
        brickrt.Runtime(two_layers(), device="cpu").stream(path, str(path), max_memory=PLENTY)
    np.testing.assert_array_equal(np.load(path), pixels())


def test_below_the_least_is_refused_with_the_least(tmp_path):
    """And that is enough, for a process of its own."""
    (tmp_path / "m.onnx").write_bytes(two_layers(size=512))
    np.save(tmp_path / "x.npy", pixels(512))
    words = [tmp_path / "m.onnx", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--limit"]
    code, _, err = child(*words, 2**20, check=False, fresh=True)
    least = int(re.search(r"raise --max-memory to (\d+)MiB$", err.strip().splitlines()[-1])[1]) * 2**20
    assert code == 1 and not (tmp_path / "y.npy").exists()
    assert child(*words, least - 2**25, check=False, fresh=True)[0] == 1
    _, told, _ = child(*words, least, fresh=True)
    assert told["peak_bytes"] <= told["projected_bytes"] <= told["limit_bytes"] == least


def test_the_least_is_enough_for_a_process_like_it_and_less_is_not(tmp_path, monkeypatch):
    taken = 200 * MIB

    def planned(limit: int, resident: int = taken) -> int:
        monkeypatch.setattr(stream_planning, "resident_bytes", lambda: resident)
        pipeline, source = Pipeline(choose_engine("cpu"), PlanOptions(), 2), load(two_layers(size=512))
        types = {"x": TensorType((1, 3, 512, 512), np.dtype(np.float32))}
        return stream_planning.plan_stream(pipeline, source, types, limit).candidate.memory.total

    with pytest.raises(BrickError) as refused:
        planned(1)
    least = int(re.search(r"raise --max-memory to (\d+)MiB$", str(refused.value))[1]) * MIB
    assert taken < planned(least) <= least and planned(least, taken + RESIDENT_NOISE_BYTES) <= least
    with pytest.raises(BrickError, match=f"the least that would do is {least // MIB} MiB"):
        planned(least - MIB)


@pytest.mark.parametrize(
    ("name", "size", "options", "over"),
    [("nafnet", 128, {"blocks": 6}, 1.5), ("unet3d", 32, {"width": 8, "levels": 2}, 1.03)],
    ids=str,
)
def test_measured_is_at_most_projected_is_at_most_the_limit(name, size, options, over, tmp_path):
    """`python -m bench.stream_memory` has thirty such cases, of whole networks."""
    (tmp_path / "m.onnx").write_bytes(zoo.build(name, size=size, **options).SerializeToString())
    shape = (1, 1, size, size, size) if name == "unet3d" else (1, 3, size, size)
    np.save(tmp_path / "x.npy", np.zeros(shape, np.float32))
    words = ["--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--over", over]
    _, told, _ = child(tmp_path / "m.onnx", *words, fresh=True)
    assert told["peak_bytes"] <= told["projected_bytes"] <= told["limit_bytes"]


def test_progress_counts_rows_bands_and_bytes(tmp_path):
    told = []
    report = run(pools(), pixels(), tmp_path / "y.npy", rows=16, watch=told.append)
    bands = [one.bands for one in told]
    assert bands == sorted(bands) and bands[-1] == report.all_bands == told[-1].all_bands
    assert {one.sweep for one in told} == set(range(told[0].sweeps)) and told[0].sweeps > 1
    assert told[-1].rows == told[-1].all_rows == 64
    assert told[-1].bytes_written == report.bytes_written == pixels().nbytes
    assert told[0].left_s > 0 and told[-1].left_s == 0


def test_cancel_keeps_what_is_finished(tmp_path):
    source, options = load(two_layers()), StreamOptions(PLENTY, cut=StreamCut(4, (1,)))
    pipeline, out = Pipeline(choose_engine("cpu"), PlanOptions(), 2), {"y": tmp_path / "y.npy"}
    with (
        opened_job(
            pipeline, source, pixels(), out, options, watch=lambda told: told.bands == 6 and job.cancel()
        ) as job,
        pytest.raises(Cancelled),
    ):
        job.run(out)
    report = run(two_layers(), pixels(), tmp_path / "y.npy", resume=True)
    assert report.bands < report.all_bands
    run(two_layers(), pixels(), tmp_path / "whole.npy", rows=4)
    assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.parametrize("classes", [1, 5, 300])
def test_argmax_joins_the_graph(classes, tmp_path):
    source = with_argmax(load(two_layers(classes, 16)), 1)
    given = {"x": pixels(16)}
    runtime = brickrt.Runtime(source, device="cpu", threads=2)
    wanted = brickrt.Runtime(two_layers(classes, 16), device="cpu", threads=2).execute(given)["y"].argmax(1)[:, None]
    runtime.stream(given, tmp_path / "y.npy", max_memory=PLENTY)
    found = np.load(tmp_path / "y.npy")
    assert found.dtype == (np.uint8 if classes <= 256 else np.int32)
    np.testing.assert_array_equal(found, wanted)


def test_threshold_joins_the_graph(tmp_path):
    runtime = brickrt.Runtime(with_threshold(load(two_layers()), 0.25), device="cpu", threads=2)
    values = brickrt.Runtime(two_layers(), device="cpu", threads=2).execute({"x": pixels()})["y"]
    runtime.stream(pixels(), tmp_path / "y.npy", max_memory=PLENTY)
    found = np.load(tmp_path / "y.npy")
    near = np.abs(values - 0.25) < 1e-4
    assert found.dtype == np.uint8 and set(np.unique(found)) == {0, 1}
    np.testing.assert_array_equal(found[~near], (values > 0.25)[~near])


@pytest.mark.parametrize("join", [lambda s: with_argmax(s, 4), lambda s: with_threshold(s, float("nan"))])
def test_last_steps_that_make_no_sense(join):
    with pytest.raises(BrickError):
        join(load(two_layers()))


@pytest.mark.parametrize("model", [two_layers, pools])
def test_memory_of_a_run_in_core_is_known_without_lowering(model):
    source, pipeline = load(model(size=128)), Pipeline(choose_engine("cpu"), PlanOptions(), 1)
    plan = pipeline.plan(
        whole_graph(source, {"x": TensorType((1, 3, 128, 128), np.dtype(np.float32))}, pipeline.engine.spec)
    )
    lowered = project(pipeline.lower(plan), 1)
    constants = sum(array.nbytes for array in plan.graph.constants.values())
    assert in_core_bytes(plan) - constants == pytest.approx(lowered.arena + lowered.io, rel=0.1)


def test_nodes_that_run_on_the_host_are_refused_by_name(tmp_path):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 3, 64, None)) for name in "xy"]
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"], name="counts"),
        helper.make_node("Cast", ["n"], ["y"], to=1),
    ]
    ends[1] = helper.make_tensor_value_info("y", TensorProto.FLOAT, (None, None))
    graph = helper.make_graph(nodes, "host", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    with pytest.raises(BrickError, match=r"'counts' \(NonZero\) run on the host: a network with them is not run band"):
        brickrt.Runtime(model, device="cpu").stream(pixels(), tmp_path / "y.npy", max_memory=PLENTY)
