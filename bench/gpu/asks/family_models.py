"""Models of one node, or of a few that are fused to one, for every family of kernels; by name.

Shapes are odd and uneven where a kernel has edges, and multiples of a vector where it has a fast way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 18
Shape = Sequence[int]
Arrays = dict[str, np.ndarray]


def model(nodes: Sequence[onnx.NodeProto], given: Arrays, constants: Arrays) -> onnx.ModelProto:
    """A model whose output is "y", with inputs like the arrays of `given`."""
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in given.items()}
    ends = [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in given.items()]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    out = [helper.make_empty_tensor_value_info("y")]
    made = helper.make_model(
        helper.make_graph(nodes, "family", ends, out, held), opset_imports=[helper.make_opsetid("", OPSET)]
    )
    return onnx.shape_inference.infer_shapes(made)


def values(shape: Shape, seed: int = 0) -> np.ndarray:
    """Seeded normal values."""
    return np.random.default_rng(seed).standard_normal(tuple(shape), dtype=np.float32)


def one(op: str, *shapes: Shape, constants: Sequence[np.ndarray] = (), **attributes: Any) -> onnx.ModelProto:
    """One node: inputs of these shapes, then constants."""
    given = {f"x{k}": values(shape, k) for k, shape in enumerate(shapes)}
    held = {f"c{k}": array for k, array in enumerate(constants)}
    return model([helper.make_node(op, [*given, *held], ["y"], **attributes)], given, held)


def chain(shape: Shape, *steps: tuple[str, Sequence[Any], dict[str, Any]]) -> onnx.ModelProto:
    """Nodes one after the other, each with constants as further inputs."""
    nodes, held, x = [], dict[str, np.ndarray](), "x"
    for k, (op, more, attributes) in enumerate(steps):
        names = [f"c{k}_{i}" for i in range(len(more))]
        held |= {name: np.asarray(array) for name, array in zip(names, more)}
        y = "y" if k == len(steps) - 1 else f"t{k}"
        nodes.append(helper.make_node(op, [x, *names], [y], **attributes))
        x = y
    return model(nodes, {"x": values(shape)}, held)


def conv(shape: Shape, weight: Shape, bias: bool = True, op: str = "Conv", **attributes: Any) -> onnx.ModelProto:
    """A convolution with seeded weights."""
    scale = float(np.prod(weight[1:])) ** -0.5
    outputs = weight[0] if op == "Conv" else weight[1] * attributes.get("group", 1)
    held = [values(weight, 7) * np.float32(scale), *([values((outputs,), 8)] if bias else [])]
    return one(op, shape, constants=held, **attributes)


def ints(array: Any) -> np.ndarray:
    """Integers as ONNX has shapes and indices."""
    return np.asarray(array, np.int64)


def scalar(number: float) -> np.ndarray:
    """A number of float32."""
    return np.asarray(number, np.float32)


def products() -> dict[str, onnx.ModelProto]:
    """Convolutions and matrix products."""
    return {
        "conv 3x3": conv((2, 24, 29, 31), (40, 24, 3, 3), pads=[1, 1, 1, 1]),
        "conv 3x3, vectors": conv((1, 64, 56, 56), (64, 64, 3, 3), pads=[1, 1, 1, 1]),
        "conv 1x1": conv((1, 64, 28, 28), (96, 64, 1, 1)),
        "conv 7x7, 3 channels": conv((1, 3, 45, 47), (32, 3, 7, 7), pads=[3] * 4, strides=[2, 2]),
        "conv 5x1, uneven": conv((1, 5, 19, 23), (7, 5, 5, 1), pads=[0, 2, 3, 1]),
        "conv dilated": conv((1, 16, 33, 33), (24, 16, 3, 3), pads=[2] * 4, dilations=[2, 2]),
        "conv grouped": conv((1, 48, 15, 17), (64, 12, 3, 3), pads=[1] * 4, group=4),
        "conv depthwise": conv((1, 48, 30, 31), (48, 1, 3, 3), pads=[1] * 4, group=48),
        "conv depthwise 5x5, strided": conv((1, 36, 31, 29), (36, 1, 5, 5), pads=[2] * 4, group=36, strides=[2, 2]),
        "conv depthwise, multiplier": conv((1, 12, 17, 17), (24, 1, 3, 3), pads=[1] * 4, group=12),
        "conv 1-d": conv((2, 20, 101), (30, 20, 5), pads=[2, 2]),
        "conv 3-d": conv((1, 12, 9, 14, 15), (16, 12, 3, 3, 3), pads=[1] * 6),
        "chain of pixels": chain(
            (2, 24, 13, 15),
            ("Conv", [values((40, 24, 1, 1), 7) / np.float32(5), values((40,), 8)], {}),
            ("Softmax", [], {"axis": 1}),
            ("Conv", [values((20, 40, 1, 1), 9), values((20,), 10)], {}),
            ("Relu", [], {}),
        ),
        "conv transposed 2x2": conv((1, 32, 13, 14), (32, 24, 2, 2), op="ConvTranspose", strides=[2, 2]),
        "conv transposed 4x4": conv((1, 16, 11, 9), (16, 8, 4, 4), op="ConvTranspose", strides=[2, 2], pads=[1] * 4),
        "conv transposed, grouped": conv((1, 8, 7, 9), (8, 4, 3, 3), op="ConvTranspose", group=2, pads=[1] * 4),
        "matmul": one("MatMul", (197, 64), (64, 197)),
        "matmul by a constant": one("MatMul", (3, 50, 96), constants=[values((96, 128), 5) / np.float32(10)]),
        "matmul batched": one("MatMul", (2, 3, 50, 32), (2, 3, 32, 50)),
        "matmul one row": one("MatMul", (1, 300), constants=[values((300, 70), 5) / np.float32(17)]),
        "gemm": one("Gemm", (33, 80), constants=[values((48, 80), 5) / np.float32(9), values((48,), 6)], transB=1),
    }


def elementwise() -> dict[str, onnx.ModelProto]:
    """Maps and interpolations."""
    half = [scalar(1.0), scalar(0.5)]
    gelu = [("Mul", [half[1]], {}), ("Erf", [], {}), ("Add", [half[0]], {}), ("Mul", [half[1]], {})]
    sizes = ints([1, 6, 37, 41])
    none = np.zeros(0, np.float32)
    return {
        "add, broadcast": one("Add", (2, 24, 9, 11), (24, 1, 1)),
        "erf": chain((2, 24, 9, 11), *gelu),
        "sigmoid and tanh": chain((2, 40, 33), ("Sigmoid", [], {}), ("Tanh", [], {}), ("Exp", [], {})),
        "softplus, log, sqrt": chain(
            (3, 5, 7), ("Softplus", [], {}), ("Log", [], {}), ("Abs", [], {}), ("Sqrt", [], {})
        ),
        "pow and reciprocal": chain(
            (64, 33), ("Abs", [], {}), ("Add", [half[0]], {}), ("Pow", [scalar(1.7)], {}), ("Reciprocal", [], {})
        ),
        "clip and leaky": chain(
            (1, 32, 16, 16), ("LeakyRelu", [], {"alpha": 0.1}), ("Clip", [scalar(-0.05), scalar(1.5)], {})
        ),
        "hard swish": one("HardSwish", (1, 17, 13)),
        "resize, linear": one("Resize", (1, 6, 19, 23), constants=[none, none, sizes], mode="linear"),
        "resize, nearest": one("Resize", (1, 6, 19, 23), constants=[none, none, sizes], mode="nearest"),
        "resize, twice": one("Resize", (1, 16, 14, 14), constants=[none, np.float32([1, 1, 2, 2])], mode="nearest"),
    }


def reductions() -> dict[str, onnx.ModelProto]:
    """Reductions, norms, softmax and pools."""
    norm = [values((48,), 3), values((48,), 4)]
    channel = [values((24,), 3), values((24,), 4)]
    return {
        "mean of pixels": one("ReduceMean", (2, 24, 17, 19), constants=[ints([2, 3])]),
        "mean of channels": one("ReduceMean", (2, 24, 17, 19), constants=[ints([1])]),
        "sum of all": one("ReduceSum", (3, 40, 41), keepdims=0),
        "max of rows": one("ReduceMax", (7, 300), constants=[ints([1])]),
        "l2 of a middle axis": one("ReduceL2", (5, 33, 12), constants=[ints([1])]),
        "softmax": one("Softmax", (6, 50, 197), axis=-1),
        "softmax of channels": one("Softmax", (1, 19, 21, 23), axis=1),
        "layer norm": one("LayerNormalization", (2, 50, 48), constants=norm),
        "instance norm": one("InstanceNormalization", (2, 24, 15, 17), constants=channel),
        "max pool": one("MaxPool", (1, 24, 31, 33), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        "max pool, ceil": one("MaxPool", (1, 5, 14, 15), kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1),
        "average pool": one("AveragePool", (1, 24, 16, 18), kernel_shape=[3, 3], pads=[1] * 4),
        "average pool 3-d": one("AveragePool", (1, 7, 8, 9, 10), kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
        "global average pool": one("GlobalAveragePool", (2, 40, 13, 11)),
    }


def moves() -> dict[str, onnx.ModelProto]:
    """What only moves elements."""
    wide = (2, 12, 15, 17)
    pointwise = ("Conv", [values((24, 8, 1, 1), 7)], {})
    return {
        "transpose to last": one("Transpose", (2, 24, 15, 17), perm=[0, 2, 3, 1]),
        "transpose": one("Transpose", (33, 50, 20), perm=[2, 0, 1]),
        "slice": one("Slice", wide, constants=[ints([1, 14]), ints([11, 2]), ints([1, 2]), ints([2, -3])]),
        "pad": one("Pad", wide, constants=[ints([0, 1, 2, 0, 0, 0, 1, 3]), scalar(1.5)]),
        "pad, reflected": one("Pad", wide, constants=[ints([0, 0, 2, 1, 0, 0, 1, 3])], mode="reflect"),
        "concat of channels": one("Concat", (1, 5, 9, 11), (1, 16, 9, 11), axis=1),
        "concat of rows": one("Concat", (1, 5, 9, 11), (1, 5, 4, 11), axis=2),
        "gather": one("Gather", (20, 33), constants=[ints([[3, 0], [19, -1]])], axis=0),
        "expand": one("Expand", (3, 1, 7), constants=[ints([2, 3, 5, 7])]),
        "depth to space": one("DepthToSpace", (1, 24, 7, 9), blocksize=2),
        "space to depth": one("SpaceToDepth", (1, 6, 14, 16), blocksize=2),
        "flatten pixels": chain((2, 8, 7, 9), pointwise, ("Reshape", [ints([3, 1008])], {})),
        "reshape": chain((4, 6, 10), ("Reshape", [ints([8, 30])], {}), ("Transpose", [], {"perm": [1, 0]})),
    }


def integers() -> dict[str, onnx.ModelProto]:
    """Types that are not floating point."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-90, 90, (3, 20, 21)).astype(np.int32) for _ in range(2))
    small = rng.integers(0, 255, (2, 16, 30)).astype(np.uint8)
    long = rng.integers(-(2**40), 2**40, (5, 33)).astype(np.int64)
    scale, zero = np.float32(0.03), np.uint8(7)
    return {
        "add int32": model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": a, "b": b}, {}),
        "mul and add int64": model([helper.make_node("Mul", ["a", "a"], ["y"])], {"a": long}, {}),
        "compare": model([helper.make_node("Less", ["a", "b"], ["y"])], {"a": a, "b": b}, {}),
        "move uint8": model([helper.make_node("Transpose", ["a"], ["y"], perm=[2, 0, 1])], {"a": small}, {}),
        "dequantize": model(
            [helper.make_node("DequantizeLinear", ["a", "s", "z"], ["y"])], {"a": small}, {"s": scale, "z": zero}
        ),
        "quantize": model(
            [helper.make_node("QuantizeLinear", ["a", "s", "z"], ["y"])],
            {"a": values((2, 16, 30))},
            {"s": scale, "z": zero},
        ),
    }


FAMILIES: dict[str, Callable[[], dict[str, onnx.ModelProto]]] = {
    "products": products,
    "elementwise": elementwise,
    "reductions": reductions,
    "moves": moves,
    "integers": integers,
}
