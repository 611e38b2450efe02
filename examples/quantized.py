"""A network in bytes: python quantized.py model.onnx quantized.onnx

brickrt finds the ranges of its tensors, quantizes it, and says how far the result is from that in float32.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx

import brickrt


def quantized(model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> tuple[onnx.ModelProto, float]:
    """The model with activations and weights of bytes, and the ratio of signal to noise of its output, in dB."""
    made = brickrt.quantize(model, feeds)
    for each in made.layers:
        print(f"{each.layer.name}: {each.sqnr_db:.1f} dB")
    return made.proto, made.outputs[0].sqnr_db


if __name__ == "__main__":
    model = onnx.load(sys.argv[1])
    shapes = {name: info.shape for name, info in brickrt.load(model).inputs.items()}
    rng = np.random.default_rng(0)  # in earnest: pictures, as the network was trained on
    feeds = [{name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()} for _ in range(8)]
    result, ratio = quantized(model, feeds)
    onnx.save(result, sys.argv[2])
    print(f"{sys.argv[2]}: signal to noise {ratio:.1f} dB")
