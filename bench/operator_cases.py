"""Operators at sizes that networks have, each alone in a model: what `operators.py` times.

A line is `Operator input… attribute=value…`. An input is a shape, as 1x64x56x56, of random float32 numbers. Before it
may stand a type, `int64:` (numbers below 10), `uint8:` or `bool:`, or `positive:`, and `=` before all that makes it a
constant of the model. `=[…]` and `=(…)` are constants with these values, a list or a single one; `-` is an input left
out.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

OPSET = 20
OPTION = r"(?:^|(?<=\s))(\w+)="
OUTPUTS = {"TopK": 2, "DynamicQuantizeLinear": 3}

CASES = """
Conv 1x3x224x224 =64x3x7x7 strides=[2,2] pads=[3,3,3,3]
Conv 1x64x56x56 =64x64x3x3 pads=[1,1,1,1]
Conv 1x64x56x56 =256x64x1x1
Conv 1x64x56x56 =64x1x7x7 group=64 pads=[3,3,3,3]
Conv 1x64x64x64 =64x64x3x3 dilations=[4,4] pads=[4,4,4,4]
Conv 1x128x28x28 =128x4x3x3 group=32 pads=[1,1,1,1]
Conv 1x1x16000 =64x1x400 strides=[160]
Conv 1x16x32x32x32 =16x16x3x3x3 pads=[1,1,1,1,1,1]
ConvTranspose 1x64x64x64 =64x32x4x4 strides=[2,2] pads=[1,1,1,1]
DeformConv 1x64x64x64 =64x64x3x3 1x18x64x64 pads=[1,1,1,1]
MatMul 1x768 =768x3072
MatMul 12x197x64 12x64x197
MatMul 1000x1000 1000x1000
MatMul 64x3 3x100000
MatMul int64:256x512 int64:512x256
Gemm 1x2048 =1000x2048 =1000 transB=1
Einsum 1x56x56x96 96x288 equation="bhwc,cd->bhwd"
LSTM 100x1x128 =1x1024x128 =1x1024x256 hidden_size=256
GRU 100x1x128 =1x768x128 =1x768x256 hidden_size=256
BatchNormalization 1x64x128x128 =64 =64 =64 =positive:64
InstanceNormalization 1x64x128x128 =64 =64
LayerNormalization 1x197x768 =768 =768
MeanVarianceNormalization 1x64x128x128
LRN 1x96x55x55 size=5
Softmax 12x197x197
Softmax 1x21x256x256 axis=1
LogSoftmax 64x10000
ReduceMean 1x64x128x128 =[2,3]
ReduceMax 64x100x256 =[1]
ReduceSum 7x100000 =[0]
ReduceLogSumExp 1000x1000 =[1]
ArgMax 1x21x512x512 axis=1
CumSum 1000x1000 =(0)
CumSum 1000x1000 =(1)
TopK 1x80x8400 =[300]
TopK 8x50257 =[50]
MaxPool 1x64x128x128 kernel_shape=[3,3] strides=[2,2]
AveragePool 1x64x128x128 kernel_shape=[3,3] pads=[1,1,1,1]
GlobalAveragePool 1x64x128x128
MaxUnpool 1x64x64x64 int64:1x64x64x64 kernel_shape=[2,2] strides=[2,2]
Resize 1x32x100x100 - =[1.0,1.0,2.0,2.0] mode="nearest"
Resize 1x32x100x100 - =[1.0,1.0,1.7,1.7] mode="linear"
Resize 1x64x64x64 - =[1.0,1.0,2.5,2.5] mode="cubic"
GridSample 1x32x256x256 1x256x256x2 mode="linear"
Relu 1000x1000
Sigmoid 1000x1000
Tanh 1000x1000
Gelu 1000x1000
Erf 1000x1000
Exp 1000x1000
Sin 1000x1000
Mish 1000x1000
Add 1x64x128x128 1x64x128x128
Add 1x64x128x128 =1x64x1x1
Mul 1x64x128x128 1x1x128x128
Div int64:1000x1000 =[3]
Where bool:1x64x256x256 1x64x256x256 1x64x256x256
Cast 1x64x256x256 to=7
Cast 1x64x256x256 to=6
Cast 1x64x256x256 to=10
Cast uint8:1x3x512x512 to=1
Transpose 1x512x512x3 perm=[0,3,1,2]
Transpose 1x3x512x512 perm=[0,2,3,1]
Transpose uint8:1x512x512x3 perm=[0,3,1,2]
Transpose 1x512x512x21 perm=[0,3,1,2]
Transpose 1x64x128x128 perm=[0,2,3,1]
Transpose 1x196x12x64 perm=[0,2,1,3]
SpaceToDepth 1x64x256x256 blocksize=2
DepthToSpace 1x64x256x256 blocksize=2 mode="CRD"
Concat 1x64x128x128 1x64x128x128 axis=1
Slice 1x3x640x640 =[0] =[640] =[3] =[2]
Pad 1x64x128x128 =[0,0,3,3,0,0,3,3] mode="reflect"
Tile 1x64x32x32 =[1,1,4,4]
Expand 1x64x1x1 =[1,64,128,128]
Gather 50257x768 int64:1x1024
GatherElements 1x512x512x4 int64:1x512x512x4 axis=1
ScatterElements 512x512 int64:512x512 512x512 axis=0 reduction="add"
ScatterND 4096x256 int64:1000x1 1000x256
NonZero bool:1x80x8400
Compress 8400x85 bool:8400 axis=0
OneHot int64:1x256x256 =(21) =[0.0,1.0] axis=1
NonMaxSuppression 1x8400x4 1x80x8400 =[100] =[0.5] =[0.01]
QuantizeLinear 1x64x256x256 =(0.1)
DynamicQuantizeLinear 1x64x256x256
STFT 1x16000 =(160) =400
"""


@dataclass(frozen=True)
class TimedOperator:
    """A model of one node, and what it is run on."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]


def operator_cases(operators: set[str]) -> Iterator[TimedOperator]:
    """The cases of these operators, or all."""
    for line in CASES.strip().splitlines():
        if not operators or line.partition(" ")[0] in operators:
            yield operator_case(line)


def operator_case(line: str) -> TimedOperator:
    """The case that a line describes."""
    op_type, *words = line.split()
    given = [word for word in words if not re.match(OPTION, word)]
    attributes = {name: ast.literal_eval(value) for name, value in re.findall(OPTION + r"(\S+)", line)}
    rng = np.random.default_rng(0)
    arrays = {f"x{k}": _array(word.removeprefix("="), rng) for k, word in enumerate(given) if word != "-"}
    names = [f"x{k}" if word != "-" else "" for k, word in enumerate(given)]
    fixed = {name for name, word in zip(names, given, strict=True) if word.startswith("=")}
    feeds = {name: array for name, array in arrays.items() if name not in fixed}
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in feeds.items()]
    outputs = ["y", "z", "w"][: OUTPUTS.get(op_type, 1)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, outputs, **attributes)],
        "operator",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(arrays[name], name) for name in sorted(fixed)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return TimedOperator(line, shape_inference.infer_shapes(model), feeds)


def _array(word: str, rng: np.random.Generator) -> np.ndarray:
    """The values that stand there, or random numbers of a type and shape."""
    if word[0] in "[(":
        values = np.array(ast.literal_eval(word))
        return values.astype(np.float32) if values.dtype.kind == "f" else values
    kind, _, extents = word.rpartition(":")
    shape = tuple(map(int, extents.split("x")))
    if kind in ("", "positive"):
        floats = (rng.standard_normal(shape) / math.sqrt(shape[-1])).astype(np.float32)
        return np.abs(floats) + 1 if kind else floats
    return rng.integers(0, 2 if kind == "bool" else 10, shape).astype(kind)
