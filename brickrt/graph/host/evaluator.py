"""ONNX's reference evaluator, with operators that it lacks or has only for newer opsets.

The reference passes attributes as keywords, also those of newer opsets: hence the ignored ones below.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from brickrt.graph.allowance import held_inside
from brickrt.graph.contrib.body import CONTRIB, OPSET, body_of, contributed
from brickrt.graph.host.control import If, Loop, Optional, Scan
from brickrt.graph.host.guarded import GuardedNode
from brickrt.graph.host.operators import (
    deformed,
    indexing,
    non_max_suppression,
    pooling,
    recurrent,
    regions,
    resized,
    sampling,
)
from brickrt.graph.host.operators.integer_matmul import HostMatMul
from brickrt.graph.host.operators.order.top_k import TopK
from brickrt.graph.onnx_import.element_types import element_type
from brickrt.ops.types import TensorType


class DequantizeLinear(OpRun):
    """(x - zero point)·scale, opset 10 to 18."""

    op_domain = ""

    def _run(self, x, scale, zero=None, axis=1, **_: Any):
        shape = [-1 if k == axis % max(x.ndim, 1) else 1 for k in range(x.ndim)] if scale.size > 1 else []
        shift = 0 if zero is None else zero.astype(np.int32).reshape(shape)
        return ((x.astype(np.int32) - shift).astype(np.float32) * scale.reshape(shape),)


class BatchNormalization(OpRun):
    """Opset 7 to 13: by the statistics given, unless the node gives new ones too; the reference always makes these."""

    op_domain = ""

    def _run(self, x, scale, bias, mean, var, epsilon=1e-5, **_: Any):
        if len([name for name in self.onnx_node.output if name]) > 1:
            raise NotImplementedError("batch norms that learn are not computed: export the model for inference")
        shape = (-1, *(1 for _ in x.shape[2:]))
        mean, factor, bias = (v.reshape(shape) for v in (mean, scale / np.sqrt(var + epsilon), bias))
        return (((x - mean) * factor + bias).astype(x.dtype),)


class _Flattened(OpRun):
    """Operators of opset 12 and before, which take all axes from `axis` on (1 by default) as one."""

    op_domain = ""

    def _run(self, x, **_: Any):
        axis = next((a.i for a in self.onnx_node.attribute if a.name == "axis"), 1) % max(x.ndim, 1)
        rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
        return (self.of_rows(rows).reshape(x.shape).astype(x.dtype) if x.size else x,)

    @abstractmethod
    def of_rows(self, x: np.ndarray) -> np.ndarray:
        """The result for each row of a matrix."""


class Softmax(_Flattened):
    """Softmax up to opset 12."""

    def of_rows(self, x: np.ndarray) -> np.ndarray:
        """exp(x - max) divided by its sum."""
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)


class LogSoftmax(_Flattened):
    """LogSoftmax up to opset 12."""

    def of_rows(self, x: np.ndarray) -> np.ndarray:
        """x - max - log(sum of exp(x - max))."""
        d = x - x.max(1, keepdims=True)
        return d - np.log(np.exp(d).sum(1, keepdims=True))


class Hardmax(_Flattened):
    """Hardmax up to opset 12."""

    def of_rows(self, x: np.ndarray) -> np.ndarray:
        """1 at the first greatest element, else 0."""
        return np.arange(x.shape[1]) == x.argmax(1)[:, None]


class LRN(OpRun):
    """Local response normalization; the reference takes the batch's extent for the number of channels."""

    op_domain = ""

    def _run(self, x, alpha=1e-4, beta=0.75, bias=1.0, size=1, **_: Any):
        square, sums = x * x, np.empty_like(x)
        for c in range(x.shape[1]):
            sums[:, c] = square[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].sum(1)
        return (x / (bias + alpha / size * sums) ** x.dtype.type(beta),)


class GlobalLpPool(OpRun):
    """The Lp norm of each channel."""

    op_domain = ""

    def _run(self, x, p=2, **_: Any):
        axes = tuple(range(2, x.ndim))
        return ((np.abs(x) ** p).sum(axes, keepdims=True).astype(x.dtype) ** x.dtype.type(1 / p),)


class Multinomial(OpRun):
    """Class numbers drawn after unnormalized log probabilities [batch, classes]."""

    op_domain = ""

    def _run(self, x, dtype=6, sample_size=1, seed=None, **_: Any):
        random = np.random.default_rng(None if seed is None else int(seed))
        noise = random.gumbel(size=(x.shape[0], int(sample_size), x.shape[1]))
        return ((x[:, None, :] + noise).argmax(2).astype(helper.tensor_dtype_to_np_dtype(dtype)),)


class CategoryMapper(OpRun):
    """Strings to integers, or integers to strings, by a table."""

    op_domain = "ai.onnx.ml"

    def _run(self, x, cats_int64s=None, cats_strings=None, default_int64=-1, default_string="_Unused", **_: Any):
        if x.dtype.kind in "OUS":
            numbers = dict(zip(cats_strings, cats_int64s, strict=True))
            return (np.array([numbers.get(v, default_int64) for v in x.flat], np.int64).reshape(x.shape),)
        names = dict(zip(cats_int64s, cats_strings, strict=True))
        return (np.array([names.get(int(v), default_string) for v in x.flat], object).reshape(x.shape),)


class CastMap(OpRun):
    """The values of a dict as a row, in the order of its keys."""

    op_domain = "ai.onnx.ml"

    def _run(self, x, cast_to="TO_FLOAT", map_form="DENSE", max_map=1, **_: Any):
        dtype: Any = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}[cast_to]
        cast = str if cast_to == "TO_STRING" else dtype
        keys = sorted(x)
        if map_form == "DENSE":
            return (np.array([[cast(x[k]) for k in keys]], dtype),)
        row = np.full((1, max_map), "" if dtype is object else 0, dtype)
        row[0, keys] = [cast(x[k]) for k in keys]
        return (row,)


class ZipMap(OpRun):
    """A dict of labels and values for each row."""

    op_domain = "ai.onnx.ml"

    def _run(self, x, classlabels_int64s=None, classlabels_strings=None, **_: Any):
        labels = classlabels_int64s or classlabels_strings
        return ([dict(zip(labels, row.tolist(), strict=True)) for row in np.atleast_2d(x)],)


class _Contributed(OpRun):
    """A contributed operator, as the standard ones that it stands for."""

    op_domain = CONTRIB

    def _run(self, *inputs: Any, **_: Any):
        types = [TensorType(x.shape, x.dtype) if isinstance(x, np.ndarray) else None for x in inputs]
        body = body_of(self.onnx_node, types)
        values = dict(zip(body.input, inputs))
        for node in body.node:
            feeds = {name: values[name] for name in node.input if name}
            evaluator = node_evaluator(node, {"": OPSET}, {name: element_type(x) for name, x in feeds.items()})
            values |= dict(zip(node.output, evaluator.run(list(node.output), feeds), strict=True))
        return tuple(values.get(name, _NOTHING) for name in body.output)


_NOTHING = np.empty(0)
"""What stands for an output that the node does not name."""

_CONTRIBUTED = tuple(type(name, (_Contributed,), {}) for name in sorted(contributed()))

_ALWAYS = (
    *_CONTRIBUTED,
    *(If, Loop, Optional, Scan, LRN, GlobalLpPool, TopK, Multinomial, CategoryMapper, CastMap, ZipMap),
    *(indexing.GatherElements, indexing.ScatterElements, indexing.Scatter, indexing.GatherND),
    *(indexing.ScatterND, indexing.OneHot, non_max_suppression.NonMaxSuppression, indexing.Slice),
    *(recurrent.LSTM, recurrent.GRU, recurrent.RNN),
    *(sampling.GridSample, deformed.DeformConv, regions.RoiAlign, resized.Resize),
    type("MatMul", (HostMatMul,), {}),  # the reference finds classes by their names, and one of ours has this
    *(pooling.MaxPool, pooling.MaxRoiPool, pooling.MaxUnpool),
)


class HostEvaluator(ReferenceEvaluator):
    """The reference with the operators of this package, in function bodies too: these it evaluates by its own class."""

    def __init__(self, proto: Any, opsets: dict[str, int] | None = None, **options: Any) -> None:
        imports = opsets or {o.domain: o.version for o in getattr(proto, "opset_import", ())}
        options["new_ops"] = _missing_ops(imports.get("", 0))
        super().__init__(proto, opsets, **options)
        self.rt_nodes_ = [GuardedNode(node) for node in self.rt_nodes_]

    def run(self, *args: Any, **options: Any) -> Any:
        """The outputs. What nodes give is counted as held until then."""
        with held_inside():
            return super().run(*args, **options)


def node_evaluator(node: onnx.NodeProto, opsets: dict[str, int], types: Mapping[str, int | str]) -> HostEvaluator:
    """What evaluates one node, whose inputs have these element types, as `element_type` tells them."""
    inputs = [_value_info(name, kind) for name, kind in types.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    return HostEvaluator(helper.make_graph([node], "host", inputs, outputs), opsets=opsets)


def _value_info(name: str, kind: int | str) -> onnx.ValueInfoProto:
    if not isinstance(kind, int):
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, kind, None)


def _missing_ops(version: int) -> list[type[OpRun]]:
    older: list[type[OpRun]] = [DequantizeLinear] if version < 19 else []
    older += [BatchNormalization] if 7 <= version < 14 else []
    return [*_ALWAYS, *older, *([Softmax, LogSoftmax, Hardmax] if version < 13 else [])]
