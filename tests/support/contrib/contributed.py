"""Models of one contributed operator, run by brickrt, by its host and by ONNX Runtime, beside a definition in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from brickrt import Runtime
from brickrt.graph.contrib.body import CONTRIB
from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.source import load
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cpu.compile.host_isa import host_isa
from tests.support.graphs.onnx_models import by_onnxruntime, unknown

Operands = Sequence[np.ndarray | None]
BYTES = [np.uint8, np.int8]
PEER_SATURATES = not host_isa(host_device()).multiplies_bytes
"""Whether ONNX Runtime adds products of bytes in 16 bits, and loses what exceeds them: where there is no VNNI."""
SUMS_OF_BYTES = frozenset(
    ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QAttention", "QGemm", "QLinearConv")
)
needs_an_exact_peer = pytest.mark.skipif(PEER_SATURATES, reason="without VNNI, ONNX Runtime's sums of bytes saturate")


def some(shape: tuple[int, ...], dtype: type, seed: int = 0) -> np.ndarray:
    """Integers of the whole range of a type."""
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def zero(value: int, dtype: type) -> np.ndarray:
    """A zero point so far above the least of its type."""
    return np.array(np.iinfo(dtype).min + value, dtype)


def contributed_model(
    kind: str, operands: Operands, free: Sequence[int] = (0,), outputs: int = 1, **attrs: object
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node whose operands `free` are inputs and the others constants, and its inputs."""
    names = ["" if x is None else f"i{k}" for k, x in enumerate(operands)]
    given = {name: np.asarray(x) for name, x in zip(names, operands) if x is not None}
    feeds = {f"i{k}": given[f"i{k}"] for k in free}
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(kind, names, results, "n", domain=CONTRIB, **attrs)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    constants = [numpy_helper.from_array(x, name) for name, x in given.items() if name not in feeds]
    graph = helper.make_graph([node], "contributed", infos, unknown(*results), constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), feeds


def check_contributed(
    kind: str,
    operands: Operands,
    want: Callable[..., object] | None = None,
    *,
    free: Sequence[int] = (0,),
    outputs: int = 1,
    theirs: bool = True,
    most: float = 2e-5,
    theirs_most: float = 2e-4,
    **attrs: object,
) -> Runtime:
    """Runs the node by kernels and on the host, and compares: with `want` of the operands in NumPy, and with ONNX
    Runtime where it has the operator (`theirs`) and is exact. Bytes may be one apart, in one of 50 elements;
    floats `most` of the largest, and `theirs_most` from ONNX Runtime's, which approximates some functions."""
    model, feeds = contributed_model(kind, operands, free, outputs, **attrs)
    runtime = Runtime(model, device="cpu", threads=1)
    found = runtime.execute(feeds)
    mine = [found[f"y{k}"] for k in range(outputs)]
    source = load(model)
    (node,) = source.nodes
    host = run_node(node, source.opsets, {**source.initializers, **feeds, "": None})
    assert_equal(host, mine, most)
    if want is not None:
        made = want(*operands)
        wanted = made if isinstance(made, tuple) else (made,)
        assert_equal(mine[: len(wanted)], [np.asarray(w) for w in wanted], most)
    if theirs and not (PEER_SATURATES and kind in SUMS_OF_BYTES):
        assert_equal(mine, list(by_onnxruntime(model, feeds).values()), theirs_most)
    return runtime


def assert_equal(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], most: float) -> None:
    """Shapes are equal, and elements as `check_contributed` says."""
    for mine, other in zip(found, wanted, strict=True):
        assert mine.shape == other.shape
        if mine.dtype.kind in "iu":
            apart = np.abs(mine.astype(np.int64) - other.astype(np.int64))
            assert apart.max(initial=0) <= 1 and (apart > 0).mean() <= 0.02
        else:
            largest = np.abs(other.astype(np.float64)).max(initial=1e-6)
            assert np.abs(mine.astype(np.float64) - other).max(initial=0) <= most * largest


def dequantize(x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, axis: int = -1) -> np.ndarray:
    """(x - zero) · scale in float64, by one scale or one for each index of `axis`."""
    shape = [-1 if k == axis % x.ndim else 1 for k in range(x.ndim)] if np.size(scale) > 1 else []
    shift = 0 if zero is None else np.asarray(zero, np.float64).reshape(shape if np.size(zero) > 1 else [])
    return (x.astype(np.float64) - shift) * np.asarray(scale, np.float64).reshape(shape)


def quantize(y: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """round(y / scale) + zero, half to even, within the type."""
    limits = np.iinfo(dtype)
    shift = 0 if zero is None else int(np.asarray(zero).reshape(-1)[0])
    return np.clip(np.rint(y / np.float64(scale)) + shift, limits.min, limits.max).astype(dtype)
