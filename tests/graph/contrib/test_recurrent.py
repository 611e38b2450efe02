"""LSTM with quantized weights, beside the standard operator with the weights that these stand for."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.support.contrib.contributed import check_contributed, some
from tests.support.graphs.onnx_models import by_onnxruntime, unknown

RNG = np.random.default_rng(11)
TIME, BATCH, HIDDEN = 5, 3, 4


def floats(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def by_lstm(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray | None, how: dict) -> tuple[np.ndarray, ...]:
    """The standard operator, by ONNX Runtime."""
    given = {"x": x, "w": w.transpose(0, 2, 1), "r": r.transpose(0, 2, 1), **({} if b is None else {"b": b})}
    tensors = [numpy_helper.from_array(np.ascontiguousarray(a, np.float32), name) for name, a in given.items()]
    node = helper.make_node("LSTM", list(given), ["y", "h", "c"], **how)
    graph = helper.make_graph([node], "lstm", [], unknown("y", "h", "c"), tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return tuple(by_onnxruntime(model, {}).values())


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("per_gate", [False, True])
@pytest.mark.parametrize(("dtype", "width"), [(np.uint8, 6), (np.int8, 6), (np.int8, 8)])
def test_weights_are_dequantized(direction, per_gate, dtype, width):
    """What the layer reads is quantized by its range. ONNX Runtime rounds states to bytes as well: it is only near."""
    many = 1 + (direction == "bidirectional")
    shape = (many, 4 * HIDDEN) if per_gate else (many,)
    steps = [RNG.uniform(0.002, 0.006, shape).astype(np.float32) for _ in range(2)]
    zeros = [np.full(shape, 117 if dtype == np.uint8 else 0, dtype)] * 2
    how = {"direction": direction, "hidden_size": HIDDEN}

    def real(q, step, zero):
        broad = (many, 1, -1)
        return (q.astype(np.float64) - zero.reshape(broad).astype(np.float64)) * step.reshape(broad)

    def want(x, w, r, b, lengths, h, c, p, ws, wz, rs, rz):
        low, high = min(x.min(), 0), max(x.max(), 0)
        step = np.float32((high - low) / np.float32(255))
        shift = np.rint(-low / step)
        x = (np.clip(np.rint(x / step) + shift, 0, 255) - shift) * step
        return by_lstm(x, real(w, ws, wz), real(r, rs, rz), b, how)

    w, r = some((many, width, 4 * HIDDEN), dtype), some((many, HIDDEN, 4 * HIDDEN), dtype, 1)
    operands = [floats(TIME, BATCH, width), w, r, floats(many, 8 * HIDDEN), None, None, None, None]
    operands += [steps[0], zeros[0], steps[1], zeros[1]]
    check_contributed("DynamicQuantizeLSTM", operands, want, outputs=3, most=1e-4, theirs_most=0.03, **how)
