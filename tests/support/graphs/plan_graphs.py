"""Small layer graphs, written by hand, for the tests of the planner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.expr import Apply, apply, arg
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import TensorType

F32 = np.dtype(np.float32)


class Sketch:
    """A graph being written; every method gives the name of the tensor it adds. Weights are views of one zero."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[str] = []

    def input(self, *shape: int, dtype: np.dtype = F32) -> str:
        """An input of the graph."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.types[name] = TensorType(shape, dtype)
        return name

    def constant(self, *shape: int, values: np.ndarray | None = None) -> str:
        """A constant: zeros that take no memory, or `values`."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.broadcast_to(np.zeros((), F32), shape) if values is None else values
        self.types[name] = TensorType(self.constants[name].shape, self.constants[name].dtype)
        return name

    def add(self, op: Op, *inputs: str) -> str:
        """The output of an operator."""
        name = f"t{len(self.nodes)}"
        node = Node(f"n{len(self.nodes)}", op, inputs, name, (f"onnx{len(self.nodes)}",))
        self.types[name] = op.infer([self.types[i] for i in inputs])
        self.nodes.append(node)
        return name

    def conv(
        self, x: str, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1, pad: int | None = None
    ) -> str:
        """A convolution that keeps height and width, unless strided or padded otherwise."""
        kind = self.types[x]
        n = kind.rank - 2
        pads = ((kernel - 1) // 2 if pad is None else pad,) * n
        op = Conv((kernel,) * n, (stride,) * n, (1,) * n, pads, pads, groups)
        return self.add(op, x, self.constant(channels, kind.shape[1] // groups, *(kernel,) * n))

    def map(self, fn: str, *operands: str) -> str:
        """`fn` of all operands: unary, or binary."""
        expr: Apply = apply(fn, *(arg(i, self.types[name].dtype) for i, name in enumerate(operands)))
        return self.add(Map(expr), *operands)

    def reduce(self, x: str, *axes: int, keepdims: bool = True) -> str:
        return self.add(Reduce("sum", axes, keepdims), x)

    def matmul(self, a: str, columns: int) -> str:
        return self.add(MatMul(), a, self.constant(self.types[a].shape[-1], columns))

    def graph(self, *outputs: str) -> Graph:
        names: Sequence[str] = outputs or (self.nodes[-1].output,)
        return Graph(tuple(self.nodes), self.types, self.constants, tuple(self.inputs), tuple(names)).verify()


def bottlenecks(blocks: int, size: int = 56, channels: int = 64) -> Graph:
    """x → [1×1 → relu → 3×3 → relu → 1×1 → + → relu] × blocks, with the sum taking the block's input."""
    s = Sketch()
    x = s.conv(s.input(1, 3, size, size), 4 * channels)
    for _ in range(blocks):
        y = s.map("abs", s.conv(x, channels, 1))
        y = s.map("abs", s.conv(y, channels, 3))
        x = s.map("abs", s.map("add", s.conv(y, 4 * channels, 1), x))
    return s.graph()


def gated_depthwise(size: int = 512, channels: int = 32) -> Graph:
    """x → 1×1 → depthwise 3×3 → × its sigmoid → 1×1 → + x: half of a NAFNet block without norm."""
    s = Sketch()
    x = s.map("abs", s.conv(s.input(1, 3, size, size), channels))
    y = s.conv(s.conv(x, 2 * channels, 1), 2 * channels, 3, groups=2 * channels)
    y = s.conv(s.map("mul", y, y), channels, 1)
    return s.graph(s.map("add", y, x))


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Random graphs of 1×1 and 3×3 convolutions, unary and binary maps on tensors of one shape; any may be outputs."""
    s = Sketch()
    tensors = [s.input(1, 8, 6, 6)]
    for _ in range(draw(st.integers(1, 14))):
        a, b = (draw(st.sampled_from(tensors)) for _ in range(2))
        kind = draw(st.sampled_from(["conv", "map", "add", "reduce"]))
        if kind == "conv":
            tensors.append(s.conv(a, 8, draw(st.sampled_from([1, 3]))))
        elif kind == "reduce":
            tensors.append(s.map("add", a, s.reduce(b, *draw(st.sampled_from([(1,), (2, 3)])))))
        else:
            tensors.append(s.map("add", a, b) if kind == "add" else s.map("abs", a))
    unread = [t for t in tensors[1:] if not any(t in n.inputs for n in s.nodes)]
    return s.graph(*dict.fromkeys([*unread, draw(st.sampled_from(tensors[1:]))]))
