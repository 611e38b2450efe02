"""Converts models of opsets older than builders know by ONNX's own converter."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import shape_inference, version_converter

from brickrt.graph.errors import ModelError

BUILT_OPSET = 7
CONVERTING_FAILS = (RuntimeError, ValueError, shape_inference.InferenceError, version_converter.ConvertError)


def upgraded(model: onnx.ModelProto, opsets: Mapping[str, int], label: str) -> onnx.ModelProto:
    """The model in opset 7 or later. Raises ModelError where the converter cannot."""
    version = opsets.get("", BUILT_OPSET)
    if version >= BUILT_OPSET:
        return model
    try:
        return version_converter.convert_version(model, BUILT_OPSET)
    except CONVERTING_FAILS as e:
        reason = " ".join(str(e).rpartition(" failed: ")[2].split())
        raise ModelError(
            f"{label}: opset {version} is older than {BUILT_OPSET} and cannot be converted ({reason}): export it again"
        ) from e
