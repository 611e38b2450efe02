"""Writes the nodes and initializers of an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

OPSET = 17
IR_VERSION = 8


class Writer:
    """An ONNX graph being written. A node's output has the node's name; `rng` is the source of all its weights."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        # Filled in place: making it at the end would copy all weights once more.
        self._model = helper.make_model(
            helper.make_graph([], name, [], []),
            producer_name="brickrt zoo",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        self._initializers: set[str] = set()
        self._shared: set[str] = set()

    def node(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output; returns the output's name."""
        return self.node_many(op, name, inputs, [name], **attributes)[0]

    def node_many(
        self, op: str, name: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> Sequence[str]:
        """Append a node with outputs of the given names, and return them."""
        self._model.graph.node.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs

    def once(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        """`node`, where several may ask for the same: only the first of them appends it."""
        if name not in self._shared:
            self._shared.add(self.node(op, name, *inputs, **attributes))
        return name

    def weight(self, name: str, values: np.ndarray) -> str:
        """Add an initializer; one already there under that name is taken to be the same constant."""
        if name not in self._initializers:
            self._initializers.add(name)
            data_type = helper.np_dtype_to_tensor_dtype(values.dtype)
            little_endian = values.astype(values.dtype.newbyteorder("<"), copy=False)
            self._model.graph.initializer.add(
                name=name, data_type=data_type, dims=values.shape, raw_data=little_endian.tobytes()
            )
        return name

    def scalar(self, value: float) -> str:
        """A float32 constant of rank 0, shared by all that ask for the same value."""
        return self.weight(f"scalar.{value!r}", np.array(value, np.float32))

    def ints(self, name: str, values: int | Sequence[int]) -> str:
        """An int64 constant, as shapes and indices in ONNX are; one integer makes one of rank 0."""
        return self.weight(name, np.array(values, np.int64))

    def shape(self, *extents: int) -> str:
        """An int64 constant of rank 1, shared by all that ask for the same extents."""
        return self.ints(f"shape.{'x'.join(map(str, extents))}", extents)

    def finish(
        self, output: str, inputs: Sequence[tuple[str, str, Sequence[int | str]]], shape: Sequence[int | str | None]
    ) -> onnx.ModelProto:
        """The model from `inputs`, each with its name, type and shape, to `output`, which must be the last node's and
        becomes `y`, float32 of this shape."""
        graph = self._model.graph
        assert list(graph.node[-1].output) == [output]
        graph.node[-1].output[0] = "y"
        for name, dtype, extents in inputs:
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            graph.input.append(helper.make_tensor_value_info(name, kind, extents))
        graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, shape))
        return self._model
