"""Networks of the zoo at their smallest sizes on a driver, compared with ONNX Runtime."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest

from brickrt import zoo
from brickrt.runtime.session.runtime import Runtime
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.host_driver import HostDriver

SIZES = {
    "darknet53": 32,
    "deepcam": (32, 48),
    "drn-c-26": 32,
    "inception-v4": 75,
    "mobilenetv2": 32,
    "nafnet": 8,
    "resnet34-3d": (8, 32, 32),
    "resnet50": 32,
    "unet": 16,
    "unet3d": 16,
    "vgg16": 32,
    "vit-s16": 32,
}


@cache
def network(name: str) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """Model, input, and what ONNX Runtime computes."""
    model = zoo.build(name, size=SIZES[name])
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return model, x, session.run(None, {"x": x})[0]


def check_network(
    monkeypatch: pytest.MonkeyPatch, name: str, driver: HostDriver, strategy: str, launch: str, brick: int = 4
) -> Runtime:
    """Runs a network twice and compares."""
    model, x, want = network(name)
    edge = None if strategy == "auto" else brick
    runtime = runtime_on(monkeypatch, driver, model, launch, group=7, strategy=strategy, brick=edge)
    first = runtime.execute({"x": x})["y"]
    assert (first.shape, first.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(first, want, rtol=0, atol=1e-4 * np.abs(want).max())
    np.testing.assert_array_equal(runtime.execute({"x": x})["y"], first)
    driver.check()
    stats = runtime.stats
    assert stats.complete_first + stats.waits + stats.revisits == stats.tasks
    assert stats.tasks == sum(len(program.tasks) for program in runtime.plan.programs)
    return runtime
