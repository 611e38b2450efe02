"""LSTM with weights in bytes, which stay that small."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.recurrent import LSTM, LayerWeights, recurrent_layer
from brickrt.graph.builders.scalar import F32
from brickrt.graph.contrib.body import CONTRIB
from brickrt.graph.errors import Unsupported

BYTES = np.iinfo(np.int8)


@builds("DynamicQuantizeLSTM", domain=CONTRIB)
def dynamic_lstm(b: Builder, node: OnnxNode) -> tuple[str, ...]:
    """Y, Y_h, Y_c by the weights less their zero points, times their scales. Raises Unsupported for weights that are
    computed, or no signed bytes once their zero point is taken off."""
    if not b.recurrences or not b.integers:
        raise Unsupported("recurrent layers of bytes on this device")
    read, fed_back = (_factors(b, node, k, scale) for k, scale in ((1, 8), (2, 10)))
    given = LayerWeights(read[0], fed_back[0], (read[1], fed_back[1]))
    return recurrent_layer(b, replace(node, inputs=node.inputs[:8]), LSTM, given)


def _factors(b: Builder, node: OnnxNode, k: int, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights [D, gates, inputs] as signed bytes, and their scales [D, gates]."""
    values, scale, zero = (b.known(node.inputs[i]) for i in (k, at, at + 1))
    if values is None or scale is None or zero is None or values.ndim != 3:
        raise Unsupported("weights that are no constants")
    many = (values.shape[0], 1, values.shape[2])
    scales = np.broadcast_to(scale.astype(F32).reshape(len(scale), 1, -1), many)
    centered = values.astype(np.int16) - zero.astype(np.int16).reshape(len(zero), 1, -1)
    if centered.min(initial=0) < BYTES.min or centered.max(initial=0) > BYTES.max:
        raise Unsupported("weights that are no signed bytes")
    turned = np.ascontiguousarray(centered.astype(np.int8).transpose(0, 2, 1))
    return turned, np.ascontiguousarray(scales[:, 0])
