"""The demo's denoiser."""

from __future__ import annotations

from importlib.resources import files

import onnx

INPUT, OUTPUT = "noisy", "clean"


def network() -> onnx.ModelProto:
    """The model: takes float32 [batch, 3, height, width], 0 to 1, with noise; gives the same without.

    Pixels beyond 0 and 1 are cut off. The result is finite for any input without NaN.
    """
    return onnx.load_from_string(files(__package__).joinpath("denoiser.onnx").read_bytes())
