"""An ONNX model being drafted node by node, with the shape of every tensor known."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, helper, numpy_helper
from onnx.shape_inference import infer_node_outputs

OPSET = 21
IR_VERSION = 10


class Draft:
    """`random` decides everything, so that hypothesis may; weights are drawn from a seed of its choice."""

    def __init__(self, decisions: random.Random, shape: tuple[int, ...]) -> None:
        self.random = decisions
        self.rng = np.random.default_rng(decisions.randrange(2**16))
        self.types: dict[str, TypeProto] = {"x": helper.make_tensor_type_proto(TensorProto.FLOAT, shape)}
        self.made: list[onnx.NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.tensors = ["x"]  # those that later layers may take

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(dim.dim_value for dim in self.types[name].tensor_type.shape.dim)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.nodes(kind, 1, *inputs, **attributes)[0]

    def nodes(self, kind: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Appends a node; the names of its outputs."""
        names = [f"t{len(self.made)}.{i}" for i in range(outputs)]
        made = helper.make_node(kind, inputs, names, **attributes)
        read = {name: self.types[name] for name in inputs if name}
        known = {name: self.constants[name] for name in inputs if name in self.constants}
        schema, opsets = onnx.defs.get_schema(kind, OPSET), [helper.make_opsetid("", OPSET)]
        self.types |= infer_node_outputs(schema, made, read, known, opset_imports=opsets, ir_version=IR_VERSION)
        self.made.append(made)
        return names

    def makes(self, name: str) -> bool:
        return any(name in node.output for node in self.made)

    # ---- constants

    def weight(self, *shape: int, fan_in: int = 4) -> str:
        return self._constant((self.rng.standard_normal(shape) * math.sqrt(1.5 / fan_in)).astype(np.float32))

    def positive(self, *shape: int) -> str:
        return self._constant(self.rng.uniform(0.5, 1.5, shape).astype(np.float32))

    def scalar(self, value: float) -> str:
        return self._constant(np.array(value, np.float32))

    def floats(self, *values: float) -> str:
        return self._constant(np.array(values, np.float32))

    def ints(self, *values: int) -> str:
        return self._constant(np.array(values, np.int64))

    def _constant(self, values: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(values, name)
        self.types[name] = helper.make_tensor_type_proto(self.constants[name].data_type, values.shape)
        return name

    # ---- the end

    def model(self) -> onnx.ModelProto:
        """All that no node reads are its outputs."""
        read = {name for node in self.made for name in node.input}
        ends = [name for node in self.made for name in node.output if name not in read]
        graph = helper.make_graph(
            self.made,
            "random",
            [helper.make_value_info("x", self.types["x"])],
            [helper.make_value_info(name, self.types[name]) for name in ends],
            list(self.constants.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
