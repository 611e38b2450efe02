"""How many elements the outputs of a node have at most that runs on the host, for operators whose attributes or values
can ask for far more than their inputs have. ONNX's own inference is native code, which broken models bring down."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

Arrays = Sequence[np.ndarray | None]
Attributes = Mapping[str, Any]


def output_elements(node: onnx.NodeProto, arrays: Arrays) -> int:
    """Elements of the first output, an upper bound; 0 where it is not far larger than the inputs, or not known."""
    count = _COUNTS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if count is None:
        return 0
    try:
        return int(count(arrays, {a.name: helper.get_attribute_value(a) for a in node.attribute}))
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return 0  # whatever is wrong with the node, running it says so in better words


def _at(arrays: Arrays, k: int) -> np.ndarray | None:
    return arrays[k] if k < len(arrays) else None


def _integers(array: np.ndarray | None) -> list[int]:
    return [] if array is None else [int(v) for v in array.reshape(-1)]


def _product(values: Sequence[float]) -> int:
    return int(math.prod(max(0, v) for v in values))


def _first_shape(arrays: Arrays, at: Attributes) -> int:
    return _product(_integers(arrays[0]))


def _broadcast(shapes: Sequence[Sequence[int]]) -> int:
    rank = max(map(len, shapes))
    return _product([max(shape[-k] for shape in shapes if len(shape) >= k) for k in range(1, rank + 1)])


def _elementwise(arrays: Arrays, at: Attributes) -> int:
    return _broadcast([x.shape for x in arrays if x is not None])


def _expand(arrays: Arrays, at: Attributes) -> int:
    return _broadcast([_shape(arrays), _integers(arrays[1])])


def _shape(arrays: Arrays) -> tuple[int, ...]:
    x = arrays[0]
    return () if x is None else x.shape


def _tile(arrays: Arrays, at: Attributes) -> int:
    return _product([*_shape(arrays), *_integers(arrays[1])])


def _range(arrays: Arrays, at: Attributes) -> int:
    start, limit, delta = (float(np.asarray(x).reshape(-1)[0]) for x in arrays)
    return max(0, math.ceil((limit - start) / delta))


def _top_k(arrays: Arrays, at: Attributes) -> int:
    shape = list(_shape(arrays))
    shape[at.get("axis", -1)] = _integers(arrays[1])[0]
    return _product(shape)


def _one_hot(arrays: Arrays, at: Attributes) -> int:
    return _product([*_shape(arrays), int(np.asarray(arrays[1]).reshape(-1)[0])])


def _pad(arrays: Arrays, at: Attributes) -> int:
    shape, pads = list(_shape(arrays)), _integers(_at(arrays, 1)) or list(at["pads"])
    axes = _integers(_at(arrays, 3)) or range(len(shape))
    for k, axis in enumerate(axes):
        shape[axis] += pads[k] + pads[k + len(pads) // 2]
    return _product(shape)


def _crop_or_pad(arrays: Arrays, at: Attributes) -> int:
    shape, wanted = list(_shape(arrays)), _integers(arrays[1])
    for axis, extent in zip(at.get("axes", range(len(shape))), wanted):
        shape[axis] = extent
    return _product(shape)


def _resize(arrays: Arrays, at: Attributes) -> int:
    shape, sizes = list(_shape(arrays)), _integers(_at(arrays, 3))
    axes = at.get("axes", range(len(shape)))
    if sizes:
        scales = [size / shape[axis] for size, axis in zip(sizes, axes, strict=True)]
    else:
        scales = at["scales"] if "scales" in at else np.asarray(arrays[2 if len(arrays) > 2 else 1]).tolist()
    if at.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        scales = [max(scales)] * len(scales)
    for scale, axis in zip(scales, axes, strict=True):
        shape[axis] = math.ceil(shape[axis] * scale)
    return _product(shape)


def _random(arrays: Arrays, at: Attributes) -> int:
    return _product(at["shape"])


def _multinomial(arrays: Arrays, at: Attributes) -> int:
    return _product([*_shape(arrays), at.get("sample_size", 1)])


def _window(arrays: Arrays, at: Attributes) -> int:
    return max(0, *_integers(arrays[0]))


def _dft(arrays: Arrays, at: Attributes) -> int:
    shape, length = list(_shape(arrays)), _integers(_at(arrays, 1))
    if length:
        axis = (_integers(_at(arrays, 2)) or [at.get("axis", -2 if len(arrays) > 2 else 1)])[0]
        shape[axis] = length[0]
    return 2 * _product(shape)


def _stft(arrays: Arrays, at: Attributes) -> int:
    samples, step = _shape(arrays)[1], _integers(arrays[1])[0]
    window = _at(arrays, 2)
    length = (_integers(_at(arrays, 3)) or [0 if window is None else window.size])[0]
    return 2 * _product([_shape(arrays)[0], (samples - length) // step + 1, length])


def _spread(arrays: Arrays, at: Attributes, kernel: Sequence[int]) -> list[int]:
    """Spatial extents of a transposed window."""
    space = _shape(arrays)[2:]
    n = len(space)
    strides, dilations = at.get("strides", [1] * n), at.get("dilations", [1] * n)
    more = at.get("output_padding", [0] * n)
    pads = at.get("pads", [0] * 2 * n)
    return [
        (space[k] - 1) * strides[k] + more[k] + (kernel[k] - 1) * dilations[k] + 1 - pads[k] - pads[k + n]
        for k in range(n)
    ]


def _conv_transpose(arrays: Arrays, at: Attributes) -> int:
    weights = np.asarray(arrays[1]).shape
    space = at.get("output_shape") or _spread(arrays, at, weights[2:])
    return _product([_shape(arrays)[0], weights[1] * at.get("group", 1), *space])


def _max_unpool(arrays: Arrays, at: Attributes) -> int:
    return _product(_integers(_at(arrays, 2)) or [*_shape(arrays)[:2], *_spread(arrays, at, at["kernel_shape"])])


def _col2im(arrays: Arrays, at: Attributes) -> int:
    batch, columns = _shape(arrays)[:2]
    return _product([batch, columns // _product(_integers(arrays[2])), *_integers(arrays[1])])


def _matmul(arrays: Arrays, at: Attributes) -> int:
    a, b = (x.shape for x in (arrays[0], arrays[1]) if x is not None)
    rows, columns = (a[-2] if len(a) > 1 else 1), (b[-1] if len(b) > 1 else 1)
    return _broadcast([a[:-2], b[:-2], ()]) * rows * columns if max(len(a), len(b)) > 2 else rows * columns


def _gemm(arrays: Arrays, at: Attributes) -> int:
    a, b = _shape(arrays), np.asarray(arrays[1]).shape
    return a[1 if at.get("transA") else 0] * b[0 if at.get("transB") else 1]


def _gather(arrays: Arrays, at: Attributes) -> int:
    shape = list(_shape(arrays))
    shape[at.get("axis", 0)] = np.asarray(arrays[1]).size
    return _product(shape)


def _concat(arrays: Arrays, at: Attributes) -> int:
    return sum(x.size for x in arrays if x is not None)


def _pool(arrays: Arrays, at: Attributes) -> int:
    """At most the padded image."""
    shape, pads = _shape(arrays), at.get("pads", ())
    n = len(shape) - 2
    return _product([*shape[:2], *(shape[2 + k] + sum(pads[k::n]) for k in range(n))]) if any(pads) else 0


def _grid_sample(arrays: Arrays, at: Attributes) -> int:
    return _product([*_shape(arrays)[:2], *np.asarray(arrays[1]).shape[1:-1]])


def _rois(arrays: Arrays, at: Attributes) -> int:
    extents = at.get("pooled_shape") or (at.get("output_height", 1), at.get("output_width", 1))
    return _product([len(np.asarray(arrays[1])), _shape(arrays)[1], *extents])


def _tf_idf(arrays: Arrays, at: Attributes) -> int:
    return _product([*_shape(arrays)[:-1], max(at["ngram_indexes"], default=0) + 1])


def _gather_nd(arrays: Arrays, at: Attributes) -> int:
    shape, places = _shape(arrays), np.asarray(arrays[1]).shape
    return _product([*places[:-1], *shape[at.get("batch_dims", 0) + places[-1] :]])


def _mel_weights(arrays: Arrays, at: Attributes) -> int:
    bins, length = _integers(arrays[0])[0], _integers(arrays[1])[0]
    return _product([bins, length // 2 + 1])


_ELEMENTWISE = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    *("BitShift", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Where", "Max", "Min", "Mean", "Sum"),
    *("PRelu", "StringConcat"),
)
_COUNTS: dict[str, Callable[[Arrays, Attributes], int]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), _random),
    **dict.fromkeys(("BlackmanWindow", "HannWindow", "HammingWindow"), _window),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    **dict.fromkeys(("MatMul", "MatMulInteger"), _matmul),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "Conv"), _pool),
    **dict.fromkeys(("RoiAlign", "MaxRoiPool"), _rois),
    "ConstantOfShape": _first_shape,
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "OneHot": _one_hot,
    "TopK": _top_k,
    "Pad": _pad,
    "CenterCropPad": _crop_or_pad,
    "Multinomial": _multinomial,
    "DFT": _dft,
    "STFT": _stft,
    "ConvTranspose": _conv_transpose,
    "MaxUnpool": _max_unpool,
    "Col2Im": _col2im,
    "Gemm": _gemm,
    "Gather": _gather,
    "Concat": _concat,
    "GridSample": _grid_sample,
    "TfIdfVectorizer": _tf_idf,
    "GatherND": _gather_nd,
    "MelWeightMatrix": _mel_weights,
}
