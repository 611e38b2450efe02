"""Networks as ONNX Runtime's quantizer writes them in integer operators, and as its optimizer fuses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

from brickrt import Runtime, zoo
from brickrt.graph.contrib.body import CONTRIB
from brickrt.quantization.qdq import folded
from tests.support.contrib.contributed import needs_an_exact_peer
from tests.support.graphs.attention import FORMS, attention_network
from tests.support.graphs.layered_models import kinds, layered_model, pictures
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor
from tests.support.zoo_networks import slim_model


class Reader:
    """Gives the quantizer its samples."""

    def __init__(self, samples: list[dict[str, np.ndarray]]) -> None:
        self.left = list(samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


def quantized(folder: Path, form: QuantFormat, activations: QuantType) -> onnx.ModelProto:
    """The layered network with all that can be in bytes."""
    source, target = folder / "source.onnx", folder / "bytes.onnx"
    onnx.save(folded(layered_model(batch=1), "layered", folder), source)
    quantize_static(
        source,
        target,
        Reader(pictures(4)),
        quant_format=form,
        activation_type=activations,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    return onnx.load(target)


def steps(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[list[tuple[str, str]], np.ndarray]:
    """What brickrt makes of a model, operators and the types they give, and its result."""
    with Runtime(model, device="cpu", threads=1) as runtime:
        found = next(iter(runtime.execute(feeds).values()))
        graphs = [plan.graph for plan in runtime.plan.plans]
    return [(node.op.name, graph.out(node).dtype.name) for graph in graphs for node in graph.nodes], found


@needs_an_exact_peer
@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8])
def test_integer_operators_become_what_the_other_form_becomes(tmp_path, activations):
    """QLinearConv, QLinearAdd, a pool of bytes, QLinearGlobalAveragePool and QGemm: the same bricks as with
    QuantizeLinear and DequantizeLinear around the float operators."""
    operators = quantized(tmp_path, QuantFormat.QOperator, activations)
    assert {"QLinearConv", "QLinearAdd", "QGemm"} <= kinds(operators).keys()
    feeds = pictures(1, seed=9)[0]
    mine, found = steps(operators, feeds)
    theirs, _ = steps(quantized(tmp_path, QuantFormat.QDQ, activations), feeds)
    assert mine == theirs
    wanted = by_onnxruntime(operators, feeds)["scores"]
    assert np.abs(found - wanted).max() <= 1.01 * float(_scale(operators))


def _scale(model: onnx.ModelProto) -> np.ndarray:
    return next(onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name == "scores_scale")


def fused(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """The model as ONNX Runtime's extended passes leave it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return onnx.load(path)


NETWORKS = {
    "vit": lambda: slim_model("vit-s16", size=32),
    "unet": lambda: zoo.build("unet", size=16, levels=1),
    **{form: (lambda form=form: attention_network(form, (6, 5))) for form in FORMS},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_what_the_optimizer_wrote_runs(tmp_path, name):
    """FusedConv, BiasGelu, SkipLayerNormalization, FusedMatMul and what else it finds."""
    before = NETWORKS[name]()
    after = fused(before, tmp_path / "fused.onnx")
    assert any(each.domain == CONTRIB for each in after.graph.node)
    first = before.graph.input[0]
    shape = [d.dim_value or 1 for d in first.type.tensor_type.shape.dim]
    feeds = {first.name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    _, found = steps(after, feeds)
    _, wanted = steps(before, feeds)
    np.testing.assert_allclose(found, wanted, 1e-3, 1e-4 * np.abs(wanted).max())


def listener(opset: int = 13) -> onnx.ModelProto:
    """x [1, 1, 16, 20] ─ 3×3 convolution ─ sigmoid, times ─ 3×3, by two ─ LSTM along the columns ─ product: as networks
    that read text are."""
    rng = np.random.default_rng(4)
    shapes = {"w1": (8, 1, 3, 3), "w2": (12, 8, 3, 3), "w": (2, 64, 96), "r": (2, 64, 16), "b": (2, 128), "m": (32, 11)}
    weights = {name: (rng.standard_normal(shape) * 0.3 + 0.05).astype(np.float32) for name, shape in shapes.items()}
    weights |= {"rows": np.array([0, -1, 96], np.int64), "wide": np.array([0, 0, -1], np.int64)}
    nodes = [
        node("Conv", "x w1", "c1", pads=[1] * 4),
        node("Sigmoid", "c1", "s1"),
        node("Mul", "c1 s1", "a1"),
        node("Conv", "a1 w2", "c2", pads=[1] * 4, strides=[2, 2]),
        node("Transpose", "c2", "t", perm=[3, 0, 1, 2]),
        node("Reshape", "t rows", "u"),
        node("LSTM", "u w r b", "l", direction="bidirectional", hidden_size=16),
        node("Transpose", "l", "v", perm=[0, 2, 1, 3]),
        node("Reshape", "v wide", "f"),
        node("MatMul", "f m", "y"),
    ]
    return model(nodes, [tensor("x", [1, 1, 16, 20])], opset=opset, **weights)


@needs_an_exact_peer
@pytest.mark.parametrize("weights", [QuantType.QUInt8, QuantType.QInt8])
def test_dynamic_quantization_of_a_network_that_reads(tmp_path, weights):
    """ConvInteger with padding around a computed zero point, DynamicQuantizeLSTM and MatMulInteger; unsigned weights
    are no signed bytes. Results are as near to ONNX Runtime's as its rounding of what the LSTM reads allows."""
    source, target = tmp_path / "source.onnx", tmp_path / "bytes.onnx"
    onnx.save(listener(), source)
    quantize_dynamic(source, target, weight_type=weights, op_types_to_quantize=["Conv", "LSTM", "MatMul"])
    made = onnx.load(target)
    assert {"ConvInteger", "DynamicQuantizeLSTM", "MatMulInteger"} <= kinds(made).keys()
    feeds = {"x": np.random.default_rng(2).random((1, 1, 16, 20), np.float32)}
    found, y = steps(made, feeds)
    assert not any("float64" in step for step in found)
    for wanted, most in ((by_onnxruntime(made, feeds)["y"], 0.02), (steps(listener(), feeds)[1], 0.1)):
        assert np.abs(y - wanted).max() <= most * np.abs(wanted).max()
