"""Operators that ONNX's reference lacks, gets wrong, or has only for newer opsets."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference.op_run import OpRun

from brickrt.graph.host.host_operator import HostOperator, evaluates
from brickrt.graph.host.node_arrays import shape_of, size_of


@evaluates(HostOperator(elements=None, opsets=range(19)), "DequantizeLinear")
def _dequantize_linear(x, scale, zero=None, axis=1, **_: Any):
    """(x - zero point)·scale, opset 10 to 18."""
    shape = [-1 if k == axis % max(x.ndim, 1) else 1 for k in range(x.ndim)] if scale.size > 1 else []
    shift = 0 if zero is None else zero.astype(np.int32).reshape(shape)
    return ((x.astype(np.int32) - shift).astype(np.float32) * scale.reshape(shape),)


@evaluates(HostOperator(elements=None, opsets=range(7, 14)), "BatchNormalization")
class BatchNormalization(OpRun):
    """Opset 7 to 13: by the statistics given, unless the node gives new ones too; the reference always makes these."""

    def _run(self, x, scale, bias, mean, var, epsilon=1e-5, **_: Any):
        if len([name for name in self.onnx_node.output if name]) > 1:
            raise NotImplementedError("batch norms that learn are not computed: export the model for inference")
        shape = (-1, *(1 for _ in x.shape[2:]))
        mean, factor, bias = (v.reshape(shape) for v in (mean, scale / np.sqrt(var + epsilon), bias))
        return (((x - mean) * factor + bias).astype(x.dtype),)


class _Flattened(OpRun):
    """Operators of opset 12 and before, which take all axes from `axis` on (1 by default) as one."""

    def _run(self, x, **_: Any):
        axis = next((a.i for a in self.onnx_node.attribute if a.name == "axis"), 1) % max(x.ndim, 1)
        rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
        return (self.of_rows(rows).reshape(x.shape).astype(x.dtype) if x.size else x,)

    @abstractmethod
    def of_rows(self, x: np.ndarray) -> np.ndarray:
        """The result for each row of a matrix."""


@evaluates(HostOperator(elements=None, opsets=range(13)), "Softmax")
class Softmax(_Flattened):
    """Softmax up to opset 12."""

    def of_rows(self, x: np.ndarray) -> np.ndarray:
        """exp(x - max) divided by its sum."""
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)


@evaluates(HostOperator(elements=None, opsets=range(13)), "LogSoftmax")
class LogSoftmax(_Flattened):
    """LogSoftmax up to opset 12."""

    def of_rows(self, x: np.ndarray) -> np.ndarray:
        """x - max - log(sum of exp(x - max))."""
        d = x - x.max(1, keepdims=True)
        return d - np.log(np.exp(d).sum(1, keepdims=True))


@evaluates(HostOperator(elements=None, opsets=range(13)), "Hardmax")
class Hardmax(_Flattened):
    """Hardmax up to opset 12."""

    def of_rows(self, x: np.ndarray) -> np.ndarray:
        """1 at the first greatest element, else 0."""
        return np.arange(x.shape[1]) == x.argmax(1)[:, None]


@evaluates(HostOperator(elements=None), "LRN")
def _local_response_norm(x, alpha=1e-4, beta=0.75, bias=1.0, size=1, **_: Any):
    """Local response normalization; the reference takes the batch's extent for the number of channels."""
    square, sums = x * x, np.empty_like(x)
    for c in range(x.shape[1]):
        sums[:, c] = square[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].sum(1)
    return (x / (bias + alpha / size * sums) ** x.dtype.type(beta),)


@evaluates(HostOperator(elements=None), "GlobalLpPool")
def _global_lp_pool(x, p=2, **_: Any):
    """The Lp norm of each channel."""
    axes = tuple(range(2, x.ndim))
    return ((np.abs(x) ** p).sum(axes, keepdims=True).astype(x.dtype) ** x.dtype.type(1 / p),)


@evaluates(HostOperator(lambda arrays, at: size_of([*shape_of(arrays), at.get("sample_size", 1)])), "Multinomial")
def _multinomial(x, dtype=6, sample_size=1, seed=None, **_: Any):
    """Class numbers drawn after unnormalized log probabilities [batch, classes]."""
    random = np.random.default_rng(None if seed is None else int(seed))
    noise = random.gumbel(size=(x.shape[0], int(sample_size), x.shape[1]))
    return ((x[:, None, :] + noise).argmax(2).astype(helper.tensor_dtype_to_np_dtype(dtype)),)


@evaluates(HostOperator(elements=None), "CategoryMapper", domain="ai.onnx.ml")
def _category_mapper(x, cats_int64s=None, cats_strings=None, default_int64=-1, default_string="_Unused", **_: Any):
    """Strings to integers, or integers to strings, by a table."""
    if x.dtype.kind in "OUS":
        numbers = dict(zip(cats_strings, cats_int64s, strict=True))
        return (np.array([numbers.get(v, default_int64) for v in x.flat], np.int64).reshape(x.shape),)
    names = dict(zip(cats_int64s, cats_strings, strict=True))
    return (np.array([names.get(int(v), default_string) for v in x.flat], object).reshape(x.shape),)


@evaluates(HostOperator(elements=None), "CastMap", domain="ai.onnx.ml")
def _cast_map(x, cast_to="TO_FLOAT", map_form="DENSE", max_map=1, **_: Any):
    """The values of a dict as a row, in the order of its keys."""
    dtype: Any = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}[cast_to]
    cast = str if cast_to == "TO_STRING" else dtype
    keys = sorted(x)
    if map_form == "DENSE":
        return (np.array([[cast(x[k]) for k in keys]], dtype),)
    row = np.full((1, max_map), "" if dtype is object else 0, dtype)
    row[0, keys] = [cast(x[k]) for k in keys]
    return (row,)


@evaluates(HostOperator(elements=None), "ZipMap", domain="ai.onnx.ml")
def _zip_map(x, classlabels_int64s=None, classlabels_strings=None, **_: Any):
    """A dict of labels and values for each row."""
    labels = classlabels_int64s or classlabels_strings
    return ([dict(zip(labels, row.tolist(), strict=True)) for row in np.atleast_2d(x)],)
