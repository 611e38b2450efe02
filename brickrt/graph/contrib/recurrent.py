"""LSTM with quantized weights."""

from __future__ import annotations

from brickrt.graph.contrib.body import ContributedBody, defines

KEPT_ATTRIBUTES = (
    "activation_alpha",
    "activation_beta",
    "activations",
    "clip",
    "direction",
    "hidden_size",
    "input_forget",
)
FLOAT = 1
"""ONNX's number of float32."""


@defines("DynamicQuantizeLSTM", needs=(0, 1, 2, *range(8, 12)))
def dynamic_lstm(b: ContributedBody) -> None:
    """LSTM by the dequantized weights [directions, inputs, gates], of what it reads, quantized by its own range. States
    stay in float between steps: rounding them to bytes each time, as ONNX Runtime does for speed, would add noise."""
    near = b.add("DequantizeLinear", *b.add_all("DynamicQuantizeLinear", [b.input(0)], 3))
    given = [_weights(b, 1, 8, 9), _weights(b, 2, 10, 11), *b.inputs[3:8]]
    outputs = b.add_all("LSTM", [near, *given], len(b.wanted), **b.kept(*KEPT_ATTRIBUTES))
    for k, name in enumerate(outputs):
        b.give(name, k)


def _weights(b: ContributedBody, k: int, scale: int, zero: int) -> str:
    """Weights as LSTM takes them, [directions, gates, inputs]: one scale for each direction, or for each of its
    gates' columns."""
    count = len(b.type(k).shape)
    if count != 3:
        raise ValueError(f"weights of rank {count}, not 3")
    wide = b.add("Cast", b.input(k), to=FLOAT)
    centered = b.add("Sub", wide, b.add("Cast", _spread(b, zero), to=FLOAT))
    return b.add("Transpose", b.add("Mul", centered, _spread(b, scale)), perm=[0, 2, 1])


def _spread(b: ContributedBody, k: int) -> str:
    """Scales or zero points as they broadcast to weights."""
    shape = b.type(k).shape
    return b.add("Reshape", b.input(k), b.integers(shape[0], 1, shape[1] if len(shape) > 1 else 1))
