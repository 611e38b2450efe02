"""The demo's denoiser."""

from __future__ import annotations

from importlib.resources import files

import onnx

INPUT, OUTPUT = "noisy", "clean"


def network() -> onnx.ModelProto:
    """The model: takes float32 [batch, 3, height, width] with noise, height and width even; gives the same without."""
    return onnx.load_from_string(files(__package__).joinpath("denoiser.onnx").read_bytes())
