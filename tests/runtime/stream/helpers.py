"""Small networks that run band by band, in this process and in others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from brickrt import zoo
from brickrt.graph.onnx_import.source import load
from brickrt.plan.options import PlanOptions
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_files import opened_job
from brickrt.runtime.stream.stream_report import StreamCut, StreamOptions, StreamReport, Watch
from tests.support.cpu.streams import plan_of, planner_of
from tests.support.programs import forks

SIZE = 64
PLENTY = 2**36
ROOT = Path(__file__).parents[3]


def two_layers(classes: int = 5, size: int = SIZE, seed: int = 5) -> bytes:
    """x [1,3,size,size] → Conv 3×3 → Relu → Conv 3×3 → y [1,classes,size,size]."""
    rng = np.random.default_rng(seed)
    weights = [
        numpy_helper.from_array((0.2 * rng.standard_normal(shape)).astype(np.float32), name)
        for name, shape in {"v": (8, 3, 3, 3), "w": (classes, 8, 3, 3)}.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"], pads=[1] * 4),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, channels, size, size))
        for name, channels in {"x": 3, "y": classes}.items()
    ]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def pools(size: int = SIZE) -> bytes:
    """Two blocks of NAFNet, whose global pools end passes."""
    return zoo.build("nafnet", size=size, width=4, blocks=2).SerializeToString()


def pixels(size: int = SIZE, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 3, size, size)).astype(np.float32)


def run(
    model: bytes,
    given: object,
    out: Path,
    rows: int = 8,
    watch: Watch | None = None,
    spilled: tuple[str, ...] = (),
    **options,
) -> StreamReport:
    """A run in this process, in bands of so many rows, of which these tensors are spilled."""
    cut = None if options.get("resume") else StreamCut(rows, (1,), spilled)
    asked = StreamOptions(**{"max_memory": PLENTY, "cut": cut, **options})
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions(), 2)
    with opened_job(pipeline, load(model), given, {"y": out}, asked, watch=watch) as job:
        return job.run({"y": out})


def may_spill(model: bytes) -> tuple[str, ...]:
    """All tensors that may be spilled."""
    return planner_of(plan_of(onnx.load_from_string(model), exact=False)).may_spill


def child(*words: object, check: bool = True, fresh: bool = False) -> tuple[int, dict, str]:
    """`bench.stream_run` in a process of its own: exit code, what it reports, standard error. A `fresh` one shares no
    memory with others, so that it has what it measures to itself."""
    call = ["-m", "bench.stream_run", *map(str, words), "--threads", "2"]
    env = os.environ | {"BRICKRT_CALIBRATE": "0"}
    if fresh:
        done = subprocess.run([sys.executable, *call], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    else:
        done = forks.run(call, ROOT, env)
    assert not check or done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if done.returncode == 0 else {}, done.stderr
