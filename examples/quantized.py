"""A network in bytes: python quantized.py model.onnx quantized.onnx

ONNX Runtime's tools quantize it, with weights per channel, and brickrt runs both and says how far apart they are.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import brickrt


class TypicalInputs(CalibrationDataReader):
    """What the network is shown so that ranges are known: a few inputs like those that it will be given."""

    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next input."""
        return next(self._feeds, None)


def quantized(model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> onnx.ModelProto:
    """The model with activations and weights of bytes."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(model, before)
        kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(before, after, TypicalInputs(feeds), quant_format=QuantFormat.QDQ, per_channel=True, **kinds)
        return onnx.load(after)


def apart(model: onnx.ModelProto, other: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    """The ratio of signal to noise, in dB, of what another model makes of an input."""
    expected, found = (next(iter(brickrt.Runtime(each).execute(feeds).values())) for each in (model, other))
    noise = np.square(expected.astype(np.float64) - found).mean()
    return float(10 * np.log10(np.square(expected.astype(np.float64)).mean() / noise))


if __name__ == "__main__":
    model = onnx.load(sys.argv[1])
    shapes = {name: info.shape for name, info in brickrt.load(model).inputs.items()}
    rng = np.random.default_rng(0)  # in earnest: pictures, as the network was trained on
    feeds = [{name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()} for _ in range(8)]
    result = quantized(model, feeds)
    onnx.save(result, sys.argv[2])
    print(f"{sys.argv[2]}: signal to noise {apart(model, result, feeds[0]):.1f} dB")
