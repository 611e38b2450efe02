"""Small models and a way to call the command line as a user does, without a process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from brickrt.cli import main

OPSET = 17
Dims = Sequence[int | str | None]


@dataclass(frozen=True)
class Called:
    """How a command ended."""

    code: int
    out: str
    err: str


Call = Callable[..., Called]


def told(called: Called) -> dict[str, Any]:
    """The JSON object that a command printed, which must have ended well."""
    assert called.code == 0, called.err
    return json.loads(called.out)


def caller(capsys) -> Call:
    """Calls the command line with words, which may be paths."""

    def call(*words: object) -> Called:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Called(code, captured.out, captured.err)

    return call


def numbers(*shape: int) -> np.ndarray:
    """The same random numbers for the same shape."""
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def value(name: str, dims: Dims, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def save(path: Path, nodes, inputs, outputs, weights=(), opset: int = OPSET, domains=()) -> Path:
    """Writes a model of these parts, valid or not."""
    graph = helper.make_graph(nodes, "small", inputs, outputs, [onnx.numpy_helper.from_array(a, n) for n, a in weights])
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def conv_model(path: Path, dims: Dims = ("N", 3, 8, 8), kind: int = TensorProto.FLOAT) -> Path:
    """x -> Conv 3×3 -> Relu -> y, 4 channels."""
    channels = dims[1] if isinstance(dims[1], int) else 3
    weights = np.random.default_rng(1).standard_normal((4, channels, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("Relu", ["c"], ["y"])]
    return save(path, nodes, [value("x", dims, kind)], [value("y", (dims[0], 4, *dims[2:]))], [("w", weights)])


def same_model(path: Path, dims: Dims | None, kind: int = TensorProto.FLOAT) -> Path:
    """x -> Identity -> y: shows what the command line makes of a file."""
    return save(path, [helper.make_node("Identity", ["x"], ["y"])], [value("x", dims, kind)], [value("y", dims, kind)])


def sum_model(path: Path, names: tuple[str, str] = ("a", "b"), outputs: tuple[str, str] = ("sum", "product")) -> Path:
    """Two inputs, two outputs."""
    nodes = [helper.make_node("Add", list(names), [outputs[0]]), helper.make_node("Mul", list(names), [outputs[1]])]
    return save(path, nodes, [value(n, ("N", 4)) for n in names], [value(n, ("N", 4)) for n in outputs])
