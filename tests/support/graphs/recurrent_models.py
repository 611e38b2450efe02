"""Models of one LSTM, GRU or RNN with random weights."""

from __future__ import annotations

import numpy as np
import onnx

from tests.support.graphs.builders_harness import one_node

STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": 3, "GRU": 2, "RNN": 2}


def recurrent_model(
    op_type: str, *, directions: int = 1, optional: tuple[str, ...] = (), **attrs: object
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model and its inputs, of which `optional` are the optional ones to give."""
    random = np.random.default_rng(1)

    def floats(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    gates = GATES[op_type] * HIDDEN
    given = {
        "B": floats(directions, 2 * gates),
        "lengths": np.array([5, 2, 0], np.int32),
        "h": floats(directions, BATCH, HIDDEN),
        "c": floats(directions, BATCH, HIDDEN),
        "P": floats(directions, 3 * HIDDEN),
    }
    order = ["B", "lengths", "h", *(["c", "P"] if op_type == "LSTM" else [])]
    inputs: list[np.ndarray | None] = [
        floats(STEPS, BATCH, INPUT),
        floats(directions, gates, INPUT),
        floats(directions, gates, HIDDEN),
    ]
    inputs += [given[name] if name in optional else None for name in order]
    return one_node(op_type, 14, inputs, OUTPUTS[op_type], hidden_size=HIDDEN, **attrs)
