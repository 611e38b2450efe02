"""Operators counted by shapes alone: elementwise ones, moves, conversions, random numbers, and those on signals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from brickrt.graph.host.host_operator import Attributes, HostOperator, register
from brickrt.graph.host.node_arrays import OBJECT_BYTES, TEXT_BYTES, Arrays, input_at, integers, shape_of, size_of


def broadcast_size(shapes: Sequence[Sequence[int]]) -> int:
    """Elements of what tensors of these shapes give together."""
    rank = max(map(len, shapes))
    return size_of([max(shape[-k] for shape in shapes if len(shape) >= k) for k in range(1, rank + 1)])


def _range(arrays: Arrays, at: Attributes) -> int:
    start, limit, delta = (float(np.asarray(x).reshape(-1)[0]) for x in arrays)
    return max(0, math.ceil((limit - start) / delta))


def _pad(arrays: Arrays, at: Attributes) -> int:
    shape, pads = list(shape_of(arrays)), integers(input_at(arrays, 1)) or list(at["pads"])
    axes = integers(input_at(arrays, 3)) or range(len(shape))
    for k, axis in enumerate(axes):
        shape[axis] += pads[k] + pads[k + len(pads) // 2]
    return size_of(shape)


def _crop_or_pad(arrays: Arrays, at: Attributes) -> int:
    shape, wanted = list(shape_of(arrays)), integers(arrays[1])
    for axis, extent in zip(at.get("axes", range(len(shape))), wanted):
        shape[axis] = extent
    return size_of(shape)


def _gather(arrays: Arrays, at: Attributes) -> int:
    shape = list(shape_of(arrays))
    shape[at.get("axis", 0)] = np.asarray(arrays[1]).size
    return size_of(shape)


def _tf_idf(arrays: Arrays, at: Attributes) -> int:
    return size_of([*shape_of(arrays)[:-1], max(at["ngram_indexes"], default=0) + 1])


def _dft(arrays: Arrays, at: Attributes) -> int:
    shape, length = list(shape_of(arrays)), integers(input_at(arrays, 1))
    if length:
        axis = (integers(input_at(arrays, 2)) or [at.get("axis", -2 if len(arrays) > 2 else 1)])[0]
        shape[axis] = length[0]
    return 2 * size_of(shape)


def _stft(arrays: Arrays, at: Attributes) -> int:
    samples, step = shape_of(arrays)[1], integers(arrays[1])[0]
    window = input_at(arrays, 2)
    length = (integers(input_at(arrays, 3)) or [0 if window is None else window.size])[0]
    return 2 * size_of([shape_of(arrays)[0], (samples - length) // step + 1, length])


def _mel_weights(arrays: Arrays, at: Attributes) -> int:
    bins, length = integers(arrays[0])[0], integers(arrays[1])[0]
    return size_of([bins, length // 2 + 1])


def _text_bytes(arrays: Arrays, at: Attributes, made: int, usual: float) -> float:
    return usual + (TEXT_BYTES * np.asarray(arrays[0]).size if at.get("to") == onnx.TensorProto.STRING else 0)


register(
    HostOperator(lambda arrays, at: broadcast_size([x.shape for x in arrays if x is not None])),
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    *("BitShift", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Where", "Max", "Min", "Mean", "Sum"),
    *("PRelu", "StringConcat"),
)
register(
    HostOperator(elements=None, temporaries=0),
    *("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Shape", "Size", "Transpose"),
)
register(HostOperator(elements=None, temporaries=8), "Unique", "NonZero")
register(HostOperator(_tf_idf, temporaries=6), "TfIdfVectorizer")
register(HostOperator(lambda arrays, at: size_of(integers(arrays[0]))), "ConstantOfShape")
register(HostOperator(lambda arrays, at: broadcast_size([shape_of(arrays), integers(arrays[1])])), "Expand")
register(HostOperator(lambda arrays, at: size_of([*shape_of(arrays), *integers(arrays[1])])), "Tile")
register(HostOperator(_range), "Range")
register(HostOperator(_pad), "Pad")
register(HostOperator(_crop_or_pad), "CenterCropPad")
register(HostOperator(_gather), "Gather")
register(HostOperator(lambda arrays, at: sum(x.size for x in arrays if x is not None)), "Concat")
register(HostOperator(lambda arrays, at: size_of(at["shape"])), "RandomNormal", "RandomUniform")
register(HostOperator(lambda arrays, at: max(0, *integers(arrays[0]))), "BlackmanWindow", "HannWindow", "HammingWindow")
register(HostOperator(_dft, temporaries=8), "DFT")
register(HostOperator(_stft, temporaries=8), "STFT")
register(HostOperator(_mel_weights, temporaries=8), "MelWeightMatrix")
register(HostOperator(elements=None, working_bytes=_text_bytes), "Cast")
register(
    HostOperator(None, working_bytes=lambda arrays, at, made, usual: usual + OBJECT_BYTES * np.asarray(arrays[0]).size),
    "SplitToSequence",
)
