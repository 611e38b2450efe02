"""Runs one broken model, and says what came of it."""

from __future__ import annotations

import traceback
from typing import Any, Literal, NamedTuple

import numpy as np

from brickrt.graph.errors import BrickError, Defect
from brickrt.graph.onnx_import.source import load
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.runtime.session.runtime import Runtime

MOST_INPUT = 1 << 22
MOST_OUTPUT = 1 << 25
OPEN_DIMENSION = 2

Case = tuple[bytes, Literal["cpu", "reference"]]


class Outcome(NamedTuple):
    """A word: `ran`, `refused` (a BrickError) or `broke`; its text or traceback; and, of what ran, the arrays."""

    word: str
    text: str = ""
    inputs: dict[str, np.ndarray] | None = None
    outputs: dict[str, Any] | None = None


def outcome(case: Case) -> Outcome:
    """What comes of a case."""
    model, device = case
    try:
        source = load(model)
        inputs = {name: _example(info) for name, info in source.inputs.items()}
        if sum(a.nbytes for a in inputs.values()) > MOST_INPUT:
            return Outcome("refused", "inputs are larger than a test should make them")
        outputs = Runtime(source, device=device, threads=1).execute(inputs)
    except Defect:
        return Outcome("broke", traceback.format_exc())
    except BrickError as e:
        return Outcome("refused", str(e))
    except Exception:
        return Outcome("broke", traceback.format_exc())
    if sum(getattr(a, "nbytes", 0) for a in outputs.values()) > MOST_OUTPUT:
        return Outcome("ran")  # to send them on would take as much again
    return Outcome("ran", "", inputs, outputs)


def _example(info: TensorInfo) -> np.ndarray:
    """An input that fits: small numbers, ones where the type has few."""
    dims = [d if isinstance(d, int) else OPEN_DIMENSION for d in info.shape or ()]
    dtype = info.dtype or np.dtype(np.float32)
    if np.prod([float(d) for d in dims]) * dtype.itemsize > MOST_INPUT:
        fits = len(dims) <= 32 and np.prod([float(d) for d in dims]) < 1 << 60  # else NumPy knows no such shape
        return np.broadcast_to(np.zeros((), dtype), dims) if fits else np.zeros(1)
    if dtype.kind in "OUS":
        return np.full(dims, "a", object)
    return (np.arange(int(np.prod(dims, dtype=np.int64))) % 3).reshape(dims).astype(dtype)
