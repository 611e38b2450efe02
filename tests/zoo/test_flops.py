"""Arithmetic and activation bytes of the networks at their default sizes, counted from shape inference alone."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from brickrt import zoo
from brickrt.zoo import weights
from brickrt.zoo.writer import Writer

# As stated in the literature, with a multiplication and an addition counted apart. Nothing is stated for conformer and
# deepcam: their figures are what was first counted here, and hold them still. That of nerf is two for each weight that
# the authors' network has, and each point. Restormer's authors count its convolutions alone.
GFLOPS = {
    "bert": 22.5,
    "bsrn": 38.8,
    "conformer": 21.4,
    "darknet53": 18.6,
    "deepcam": 655.0,
    "drn-c-26": 33.9,
    "inception-v4": 24.5,
    "mobilenetv2": 0.6,
    "mobilevit-s": 4.0,
    "nafnet": 15.0,
    "nerf": 77.8,
    "resnet34-3d": 13.3,
    "resnet50": 8.2,
    "restormer": 309.8,
    "swin-t": 9.0,
    "unet": 96.6,
    "unet3d": 100.8,
    "vgg16": 30.9,
    "vit-s16": 9.2,
}


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only their shapes count here; to draw and to copy half a gigabyte takes most of the time."""
    write = Writer.weight

    def shape_alone(writer: Writer, name: str, values: np.ndarray) -> str:
        if values.dtype != np.float32:
            return write(writer, name, values)
        if name not in writer._initializers:
            writer._initializers.add(name)
            writer._model.graph.initializer.add(name=name, data_type=onnx.TensorProto.FLOAT, dims=values.shape)
        return name

    monkeypatch.setattr(Writer, "weight", shape_alone)
    for drawn in ("normal", "filters"):
        monkeypatch.setattr(weights, drawn, lambda rng, shape, *_, **__: np.zeros(shape, np.float32))


@pytest.mark.parametrize("name", GFLOPS)
def test_flops_are_those_of_the_literature(name: str) -> None:
    assert _flops(zoo.build(name)) / 1e9 == pytest.approx(GFLOPS[name], rel=0.05)


def test_convolutions_of_restormer_are_those_of_the_paper() -> None:
    """141 G multiply-adds, without the products of attention."""
    model = zoo.build("restormer")
    shapes = _shapes(model)
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert sum(_products(node, shapes) for node in convolutions) / 1e9 == pytest.approx(141, rel=0.01)


def test_nafnet_moves_far_more_than_it_computes() -> None:
    """3.4 GB of activations, not counting the outputs of `Split`, which can be views."""
    model = zoo.build("nafnet")
    shapes = _shapes(model)
    nodes = [node for node in model.graph.node if node.op_type != "Split"]
    total = 4 * sum(math.prod(shapes[name]) for node in nodes for name in node.output)
    assert total == pytest.approx(3.4e9, rel=0.05)


def _flops(model: onnx.ModelProto) -> int:
    shapes = _shapes(model)
    return sum(2 * _products(node, shapes) for node in model.graph.node)


def _products(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> int:
    if node.op_type in ("Conv", "Gemm"):  # every output element takes one filter, or one row
        return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
    if node.op_type == "ConvTranspose":  # every input element meets the filters of its channel
        return math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])
    if node.op_type == "MatMul":
        return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
    return 0


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor, weights included."""
    graph = onnx.shape_inference.infer_shapes(_with_weights_as_inputs(model), strict_mode=True, data_prop=True).graph
    infos = [*graph.input, *graph.value_info, *graph.output]
    return {info.name: tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim) for info in infos}


def _with_weights_as_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the values of its float32 initializers, which shape inference would copy."""
    bare = onnx.helper.make_model(
        onnx.helper.make_graph(model.graph.node, model.graph.name, model.graph.input, model.graph.output),
        ir_version=model.ir_version,
        opset_imports=model.opset_import,
    )
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            bare.graph.input.append(info)
        else:
            bare.graph.initializer.append(tensor)
    return bare
