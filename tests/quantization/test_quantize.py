"""Float32 models that become models of bytes, and what is said of them."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import brickrt
from brickrt.graph.errors import BrickError
from brickrt.quantization.noise import OutputNoise, decibels
from brickrt.quantization.quantize import QuantizationResult
from tests.support.contrib.contributed import needs_an_exact_peer
from tests.support.graphs.layered_models import kinds, layered_model, pictures

ort = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def made() -> QuantizationResult:
    return brickrt.quantize(layered_model(), pictures(4), threads=1)


def test_layers_become_bytes(made):
    assert [(each.layer.kind, each.why_float) for each in made.layers] == [("Conv", ""), ("Conv", ""), ("Gemm", "")]
    assert made.layers[2].layer.name == "head"
    assert all(25 < each.sqnr_db < 60 for each in made.layers)
    assert "BatchNormalization" not in kinds(made.proto) and "Relu" not in kinds(made.proto)  # parts of the convolution
    weights = {t.name: numpy_helper.to_array(t) for t in made.proto.graph.initializer}
    assert weights["w2_quantized"].dtype == np.int8 and weights["w2_scale"].shape == (8,)
    assert not weights["w2_zero_point"].any() and weights["x_zero_point"].dtype == np.uint8


@needs_an_exact_peer
def test_the_result_is_close_and_said_to_be(made):
    session = ort.InferenceSession(made.proto.SerializeToString())
    exact, mine = (brickrt.Runtime(model, threads=1) for model in (layered_model(), made.proto))
    noise = OutputNoise("scores")
    for sample in pictures(4):
        found = mine.execute(sample)["scores"]
        noise.add(exact.execute(sample)["scores"], found)
        step = float(next(numpy_helper.to_array(t) for t in made.proto.graph.initializer if t.name == "scores_scale"))
        assert np.abs(found - session.run(None, sample)[0]).max() <= 1.01 * step
    (told,) = made.outputs
    assert told.sqnr_db == pytest.approx(noise.sqnr_db) and told.sqnr_db > 25 and told.psnr_db > 25
    assert (told.classes, told.equal) == (noise.classes, noise.equal) and told.classes == 4
    assert made.bytes_after == made.proto.ByteSize() and made.ms_before > 0 < made.ms_after


def test_noise_of_a_layer_is_that_of_its_input_and_weights(made):
    """The first convolution again, in NumPy: x and w in units of their scales, products summed exactly."""
    values = {t.name: numpy_helper.to_array(t) for t in made.proto.graph.initializer}
    given = {t.name: numpy_helper.to_array(t) for t in layered_model().graph.initializer}
    factor = given["gamma"] / np.sqrt(given["var"] + 1e-5)
    w = given["w1"].astype(np.float64) * factor[:, None, None, None]
    scale, signal, noise = values["x_scale"].astype(np.float64), 0.0, 0.0
    for sample in pictures(4):
        x = sample["x"].astype(np.float64)
        near = (np.clip(np.rint(x / scale), 0, 255)) * scale
        exact, apart = (_conv(a, b) for a, b in ((x, w), (near, _dequantized(values, w))))
        exact += (given["beta"] - given["mean"] * factor)[None, :, None, None]
        apart += (given["beta"] - given["mean"] * factor)[None, :, None, None]
        signal, noise = signal + np.square(exact).sum(), noise + np.square(exact - apart).sum()
    assert made.layers[0].sqnr_db == pytest.approx(decibels(signal, noise), abs=0.3)


def _dequantized(values: dict[str, np.ndarray], w: np.ndarray) -> np.ndarray:
    name = next(n for n, v in values.items() if v.dtype == np.int8 and v.shape == w.shape)
    return values[name] * values[name.replace("_quantized", "_scale")][:, None, None, None].astype(np.float64)


def _conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,kcij->nkhw", windows, w)


def test_layers_stay_in_float_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr("brickrt.quantization.qdq.ENTROPY_BINS", 160)
    model = layered_model(opset=11)
    made = brickrt.quantize(model, pictures(2), method="entropy", keep=["he*"], sqnr=-50.0, threads=1)
    assert [each.why_float for each in made.layers] == ["", "", "asked for"]
    assert "w3" in {t.name for t in made.proto.graph.initializer}
    assert made.proto.opset_import[0].version == 13 and made.outputs[0].sqnr_db > 8


def test_noisy_layers_stay_in_float(made):
    least = (made.layers[0].sqnr_db + min(each.sqnr_db for each in made.layers[1:])) / 2
    other = brickrt.quantize(layered_model(), pictures(4), sqnr=least, checks=pictures(2, seed=9), threads=1)
    assert [bool(each.why_float) for each in other.layers] == [each.sqnr_db < least for each in made.layers]
    assert other.samples == 2


def _with_nan() -> onnx.ModelProto:
    model = layered_model()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((8, 3, 3, 3), np.nan, np.float32), "w1"))
    return model


def _without_layers() -> onnx.ModelProto:
    model = layered_model()
    del model.graph.node[3:], model.graph.node[:2]
    model.graph.node[0].input[0], model.graph.node[0].output[0] = "x", "scores"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (layered_model, {"samples": []}, "no input is given to calibrate with"),
        (layered_model, {"samples": [{"x": np.zeros((1, 3, 9, 8), np.float32)}]}, "9"),
        (layered_model, {"keep": ["nose"]}, "no layer is called 'nose': the model has 'n1', 'c2', 'head'"),
        (layered_model, {"keep": ["*"]}, "all 3 layers would stay in float"),
        (lambda: layered_model(dtype=np.float16), {}, "layered: has float16 weights: give the float32 model"),
        (_without_layers, {}, "has no convolution or product with constant weights"),
        (_with_nan, {}, "is not finite on the calibration inputs"),
    ],
)
def test_what_makes_no_sense_is_one_line(model, options, message):
    with pytest.raises(BrickError, match=message.replace("*", r"\*")) as raised:
        brickrt.quantize(model(), **({"samples": pictures(1)} | options), threads=1)
    assert "\n" not in str(raised.value)


def test_a_quantized_model_is_refused(made):
    with pytest.raises(BrickError, match=r"is quantized already, it has .*Linear: give the float32 model"):
        brickrt.quantize(made.proto, pictures(1))


def test_ratios():
    assert decibels(100.0, 1.0) == 20 and decibels(1.0, 0.0) == math.inf and decibels(0.0, 1.0) == -math.inf
    image = OutputNoise("y")
    image.add(np.array([[0.0, 2.0]]).reshape(1, 1, 1, 2), np.array([[0.2, 2.0]]).reshape(1, 1, 1, 2))
    assert image.psnr_db == pytest.approx(10 * math.log10(4 / 0.02)) and image.classes == 0
