"""Networks as ONNX Runtime's quantizer writes them in integer operators, and as its optimizer fuses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

from brickrt import Runtime, zoo
from brickrt.graph.contrib.body import CONTRIB
from brickrt.quantization.qdq import folded
from tests.support.graphs.attention import FORMS, attention_network
from tests.support.graphs.layered_models import kinds, layered_model, pictures
from tests.support.graphs.onnx_models import by_onnxruntime


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
    "vit": lambda: zoo.build("vit-s16", size=32),
    "resnet": lambda: zoo.build("resnet50", size=32),
    **{form: (lambda form=form: attention_network(form, (6, 5))) for form in FORMS},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_what_the_optimizer_wrote_runs(tmp_path, name):
    """FusedConv, BiasGelu, SkipLayerNormalization, FusedMatMul and what else it finds."""
    model = NETWORKS[name]()
    after = fused(model, tmp_path / "fused.onnx")
    assert any(node.domain == CONTRIB for node in after.graph.node)
    first = model.graph.input[0]
    shape = [d.dim_value or 1 for d in first.type.tensor_type.shape.dim]
    feeds = {first.name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    _, found = steps(after, feeds)
    _, wanted = steps(model, feeds)
    np.testing.assert_allclose(found, wanted, 1e-3, 1e-4 * np.abs(wanted).max())
