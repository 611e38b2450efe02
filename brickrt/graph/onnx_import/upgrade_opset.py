"""Converts models of opsets older than builders know by ONNX's own converter."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from brickrt.graph.errors import ModelError
from brickrt.graph.onnx_import.converter import UPGRADE, converted

BUILT_OPSET = 7


def upgraded(model: onnx.ModelProto, opsets: Mapping[str, int], label: str) -> onnx.ModelProto:
    """The model in opset 7 or later. Raises ModelError where the converter cannot."""
    version = opsets.get("", BUILT_OPSET)
    if version >= BUILT_OPSET:
        return model
    try:
        return converted(model, UPGRADE.format(BUILT_OPSET))
    except ModelError as e:
        raise ModelError(
            f"{label}: opset {version} is older than {BUILT_OPSET} and cannot be converted ({e}): export it again"
        ) from e
