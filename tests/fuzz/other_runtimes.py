"""Compares what a model gave with what ONNX Runtime and ONNX's own reference make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from tests.fuzz.run_case import Outcome

Answers = list[Any]

BY_CHANCE = ("Random", "Multinomial", "Bernoulli", "Dropout")
WRONG = {
    "LRN": "it takes the batch's extent for the channels",
    "Optional": "it gives a list of the value",
}
"""What ONNX's reference does otherwise than ONNX says."""
NEWEST_IR = 11  # that ONNX Runtime reads
TOLERANCE = {np.dtype(np.float16): 2e-2, np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-3}
"""Relative to the largest value of a tensor; other floating-point types have few digits."""


class Compared(NamedTuple):
    """What differs from every other runtime that gives an answer, '' where one agrees or none does; and, in few words,
    what became of the comparison with each."""

    wrong: str
    told: tuple[str, ...]


class NotTaken(Exception):
    """Another runtime does not load a model; the cause says why."""


def compared_with_others(model: bytes, found: Outcome) -> Compared:
    """Runs the model with ONNX Runtime and, unless that agrees, with ONNX's reference, which takes long. What they
    raise decides only that there is no answer: both refuse much that the definition allows."""
    if any(word.encode() in model for word in BY_CHANCE):
        return Compared("", ("left to chance",))
    wrong, told = [], []
    for name, run in OTHERS.items():
        if name == "onnx.reference" and (op := next((op for op in WRONG if op.encode() in model), None)):
            told.append(f"{name} not asked, as it is wrong for {op}")
            continue
        try:
            answers = run(model, found)
        except NotTaken as e:
            told.append(f"{name} does not load the model ({type(e.__cause__).__name__})")
            continue
        except Exception as e:
            told.append(f"{name} fails in the run ({type(e).__name__})")
            continue
        difference = _first_difference(found.outputs or {}, answers)
        told.append(f"{name} {'differs' if difference else 'agrees'}")
        if not difference:
            return Compared("", tuple(told))
        wrong.append(f"{name}: {difference}")
    return Compared("\n".join(wrong), tuple(told))


def _by_onnxruntime(model: bytes, found: Outcome) -> Answers:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        proto = onnx.ModelProto.FromString(model)
        proto.ir_version = min(proto.ir_version, NEWEST_IR)
        for value in (*proto.graph.output, *proto.graph.value_info):
            value.ClearField("type")  # what a model says of tensors that it computes itself decides nothing
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as e:
        raise NotTaken from e
    return session.run(list(found.outputs or {}), found.inputs)


def _by_reference(model: bytes, found: Outcome) -> Answers:
    try:
        evaluator = ReferenceEvaluator(onnx.ModelProto.FromString(model))
    except Exception as e:
        raise NotTaken from e
    return evaluator.run(list(found.outputs or {}), found.inputs)


OTHERS: dict[str, Callable[[bytes, Outcome], Answers]] = {
    "onnxruntime": _by_onnxruntime,
    "onnx.reference": _by_reference,
}


def _first_difference(ours: dict[str, Any], theirs: Answers) -> str:
    for (name, mine), other in zip(ours.items(), theirs, strict=True):
        wrong = _difference(mine, other)
        if wrong:
            return f"'{name}' {wrong}"
    return ""


def _difference(mine: Any, other: Any) -> str:
    if isinstance(other, (list, tuple)):
        if not isinstance(mine, (list, tuple)) or len(mine) != len(other):
            return f"is {mine!r:.80} and not {other!r:.80}"
        return next((wrong for a, b in zip(mine, other) if (wrong := _difference(a, b))), "")
    if not isinstance(other, (np.ndarray, np.generic)):
        return "" if str(mine) == str(other) else f"is {mine!r:.80} and not {other!r:.80}"
    a, b = np.asarray(mine), np.asarray(other)
    if a.shape != b.shape:
        return f"has shape {a.shape} and not {b.shape}"
    if a.dtype != b.dtype and "O" not in (a.dtype.kind, b.dtype.kind):
        return f"is {a.dtype} and not {b.dtype}"
    return "" if _close(a, b) else f"is {a.dtype}{list(a.shape)} {a!r:.300} and not {b!r:.300}"


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind in "OUS":
        return bool((a.astype(str) == b.astype(str)).all())
    if a.dtype.kind in "biu":
        return bool((a == b).all())
    tolerance = TOLERANCE.get(a.dtype, 0.2)
    x, y = a.astype(np.float64), b.astype(np.float64)
    largest = np.abs(y[np.isfinite(y)]).max(initial=0)
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance * largest, equal_nan=True))
