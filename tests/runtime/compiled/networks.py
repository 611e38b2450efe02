"""A small network that is compiled into files by these tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from brickrt.graph.onnx_import.source import Model
from brickrt.runtime.compiled.compile_model import compile_model
from tests.support.graphs.onnx_models import model, node, tensor


def network(batch: int | str = 2) -> onnx.ModelProto:
    """x [2, 3, 9, 10] → 3×3 → relu → a → pool → 1×1 → y"""
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal(shape).astype("f4") for shape in ((20, 3, 3, 3), (7, 20, 1, 1)))
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "a"),
        node("MaxPool", "a", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p v", "y"),
    ]
    return model(nodes, [tensor("x", (batch, 3, 9, 10))], "y a", w=w, v=v)


def sample(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, 3, 9, 10)).astype("f4")


def compiled(path: Path, proto: Model, **options) -> Path:
    content = compile_model(proto, **options)
    with path.open("wb") as f:
        content.write(f)
    return path
