"""The model that a session writes where its options ask for the optimized one."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import brickrt.onnxruntime as ort
from brickrt.graph.errors import BrickError
from tests.support.graphs.onnx_models import model, node, tensor


def proto() -> onnx.ModelProto:
    """x × w → y"""
    weights = np.array([2, 3], np.float32)
    return model([node("Mul", "x w", "y")], [tensor("x", (2,))], [tensor("y", (2,))], w=weights)


@pytest.mark.parametrize("form", ["path", "bytes", "message"])
def test_the_file_is_the_model_with_its_constants(tmp_path, form):
    source, target, x = tmp_path / "model.onnx", tmp_path / "written.onnx", np.ones(2, np.float32)
    onnx.save(proto(), source)
    given = {"path": source, "bytes": source.read_bytes(), "message": proto()}[form]
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.add_external_initializers(["w"], [ort.OrtValue.ortvalue_from_numpy(np.array([5, 7], np.float32))])
    with pytest.warns(UserWarning, match=r"written\.onnx: holds the model as it was read"):
        session = ort.InferenceSession(given, options)
    results = [session.run(None, {"x": x}), onnxruntime.InferenceSession(str(target)).run(None, {"x": x})]
    assert [result[0].tolist() for result in results] == [[5, 7]] * 2
    assert proto().SerializeToString() == onnx.load(source).SerializeToString()


def test_a_scalar_stays_one(tmp_path):
    target, made = tmp_path / "written.onnx", proto()
    made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.float32(2), "w"))
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.add_external_initializers(["w"], [ort.OrtValue.ortvalue_from_numpy(np.array(5, np.float32))])
    with pytest.warns(UserWarning):
        ort.InferenceSession(made, options)
    written = onnx.numpy_helper.to_array(onnx.load(target).graph.initializer[0])
    assert written.shape == () and written == 5


def test_what_cannot_be_written_is_one_line(tmp_path):
    source = tmp_path / "model.onnx"
    onnx.save(proto(), source)
    for target, why in ((source, "is the model itself"), (tmp_path / "no" / "m.onnx", "cannot be written")):
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(target)
        with pytest.raises(BrickError, match=why) as caught:
            ort.InferenceSession(source, options)
        assert "\n" not in str(caught.value)


def test_providers_may_be_among_the_options():
    options = ort.SessionOptions()
    assert not options.has_providers()
    options.add_provider("CPUExecutionProvider", {"arena": "1"})
    session = ort.InferenceSession(proto(), options)
    assert options.has_providers() and session.get_provider_options() == {"CPUExecutionProvider": {"arena": "1"}}
