"""Models with QuantizeLinear and DequantizeLinear around operators, made as quantizers make them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class QuantizedModel:
    """Collects nodes; tensors that its methods return are dequantized floats. `signed` chooses the activations' type,
    `zero` their zero point."""

    def __init__(self, seed: int = 0, signed: bool = False, zero: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = np.int8 if signed else np.uint8
        self.zero = zero
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, kind: str, *inputs: str, **attrs: object) -> str:
        """A node of one output, whose name is returned."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"n{len(self.nodes)}", **attrs))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantized(self, x: str, scale: float, zero: int | None = None) -> str:
        """QuantizeLinear and DequantizeLinear by the same parameters."""
        zero = self.zero if zero is None else zero
        how = (self.constant(np.float32(scale)), self.constant(np.array(zero, self.dtype)))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *how), *how)

    def weights(self, shape: tuple[int, ...], axis: int = 0, scales: int | None = None) -> tuple[str, np.ndarray]:
        """Dequantized weights and their scales, one per index of `axis`, or `scales` = 1 for all."""
        w = self.rng.integers(-127, 128, shape).astype(np.int8)
        count = shape[axis] if scales is None else scales
        scale = self.rng.uniform(0.002, 0.01, count).astype(np.float32)
        scale = scale if count > 1 else scale.reshape(())
        zero = self.constant(np.zeros(scale.shape, np.int8))
        name = self.node("DequantizeLinear", self.constant(w), self.constant(scale), zero, axis=axis)
        return name, scale

    def bias(self, count: int, scale: np.ndarray) -> str:
        """A dequantized bias in units of `scale`."""
        values = self.rng.integers(-3000, 3000, count).astype(np.int32)
        zero = self.constant(np.zeros(scale.shape, np.int32))
        return self.node("DequantizeLinear", self.constant(values), self.constant(scale), zero, axis=0)

    def conv(self, x: str, scale: float, shape: tuple[int, ...], **attrs: object) -> str:
        """A convolution with bias of a tensor quantized in `scale`; not quantized yet."""
        w, scales = self.weights(shape)
        return self.node("Conv", x, w, self.bias(shape[0], (np.float32(scale) * scales).astype(np.float32)), **attrs)

    def model(self, output: str, shape: tuple[int, ...]) -> bytes:
        """The model that maps the float input "x" of `shape` to `output`."""
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), (output, None))]
        graph = helper.make_graph(self.nodes, "quantized", ends[:1], ends[1:], self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return made.SerializeToString()
