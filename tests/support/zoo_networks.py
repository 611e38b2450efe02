"""Networks of the zoo at small sizes, with an input and what ONNX Runtime computes of it."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnxruntime

from brickrt import zoo

Size = int | tuple[int, ...]

# The smallest sizes that the networks take.
SMALLEST: dict[str, Size] = {
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
    "vit-s16": 16,
}


@cache
def network(name: str, size: Size) -> tuple[onnx.ModelProto, np.ndarray]:
    """Model and input."""
    model = zoo.build(name, size=size)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return model, np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@cache
def expected(name: str, size: Size) -> np.ndarray:
    """What ONNX Runtime computes."""
    model, x = network(name, size)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # it takes longer than the run
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]
