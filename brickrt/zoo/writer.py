"""Collects nodes and initializers, and makes an ONNX model of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8


class Writer:
    """An ONNX graph being written. A node's output has the node's name; `rng` is the source of all its weights."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}

    def node(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output; returns the output's name."""
        return self.node_many(op, name, inputs, [name], **attributes)[0]

    def node_many(
        self, op: str, name: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> Sequence[str]:
        """Append a node with outputs of the given names, and return them."""
        self._nodes.append(helper.make_node(op, list(inputs), list(outputs), name=name, **attributes))
        return outputs

    def weight(self, name: str, values: np.ndarray) -> str:
        """Add an initializer; one already there under that name is taken to be the same constant."""
        if name not in self._initializers:
            self._initializers[name] = numpy_helper.from_array(values, name)
        return name

    def scalar(self, value: float) -> str:
        """A float32 constant of rank 0, shared by all that ask for the same value."""
        return self.weight(f"scalar.{value!r}", np.array(value, np.float32))

    def ints(self, name: str, values: int | Sequence[int]) -> str:
        """An int64 constant, as shapes and indices in ONNX are; one integer makes one of rank 0."""
        return self.weight(name, np.array(values, np.int64))

    def finish(self, output: str, x_shape: Sequence[int | str], y_shape: Sequence[int | str]) -> onnx.ModelProto:
        """The model from `x` to `output`, which must be the last node's and becomes `y`. Both are float32."""
        last = self._nodes[-1]
        assert list(last.output) == [output]
        last.output[0] = "y"
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x_shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, y_shape)],
            list(self._initializers.values()),
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(
            graph, producer_name="brickrt zoo", ir_version=IR_VERSION, opset_imports=[opset]
        )
