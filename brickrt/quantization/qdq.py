"""What onnxruntime.quantization does: folding before, calibration, and writing QuantizeLinear and DequantizeLinear.

Its calibrators collect what a session gives them; here that session is brickrt's.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import QDQQuantizer, QuantType
from onnxruntime.quantization.calibrate import EntropyCalibrater, MinMaxCalibrater, PercentileCalibrater

from brickrt.graph.errors import BrickError
from brickrt.onnxruntime.inference_session import InferenceSession
from brickrt.quantization.float_model import WEIGHTED, WeightedLayer
from brickrt.quantization.given import Method, Samples
from brickrt.runtime.progress import Progress

Ranges = Any
"""The `TensorsData` of onnxruntime.quantization."""

KEEPING = (
    "Relu",
    "Clip",
    "MaxPool",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Slice",
    "Split",
    "Resize",
)
"""Operators that stay in bytes between layers: what they give has the scale of what they take, or is cut off by it.
Others read floats, and layers behind them quantize what they get: sums, sigmoids and norms are then as exact as floats,
and brickrt computes them from bytes to bytes all the same where it can."""
ENTROPY_BINS = 512  # the least range it may choose is a quarter of the largest value; its time grows with the square
CALIBRATORS: Mapping[Method, Callable[..., Any]] = {
    "minmax": MinMaxCalibrater,
    "entropy": lambda *args, **options: EntropyCalibrater(*args, num_bins=ENTROPY_BINS, **options),
    "percentile": PercentileCalibrater,
}


class OneSample:
    """A reader, as calibrators want it, of one sample: they keep all that they are given at once in memory."""

    def __init__(self, sample: Mapping[str, np.ndarray]) -> None:
        self._left: list[Mapping[str, np.ndarray]] = [sample]

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        """The sample, and then None."""
        return self._left.pop() if self._left else None


def folded(model: onnx.ModelProto, name: str, folder: Path) -> onnx.ModelProto:
    """The model as ONNX Runtime's basic passes leave it: batch norms are part of convolutions, constants computed."""
    before, after = folder / "float.onnx", folder / "folded.onnx"
    onnx.save(model, before)
    options = ort.SessionOptions()
    options.log_severity_level = 4  # of what it says, errors are raised
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(after)
    try:
        # sharing would give constants names that no layer has
        ort.InferenceSession(before, options, ["CPUExecutionProvider"], disabled_optimizers=["ConstantSharing"])
    except Exception as e:  # of many classes, which it does not document
        raise BrickError(f"{name}: ONNX Runtime, whose tools quantize, cannot read it: {e}") from e
    made = onnx.load(after)
    used = {node.domain for node in made.graph.node} | {""}
    opsets = [each for each in made.opset_import if each.domain in used]
    del made.opset_import[:]
    made.opset_import.extend(opsets)
    return onnx.shape_inference.infer_shapes(made)


def calibrated(
    model: onnx.ModelProto, samples: Samples, method: Method, threads: int | None, folder: Path, progress: Progress
) -> Ranges:
    """The ranges of the tensors that layers read and write, from what brickrt computes of the samples. Raises
    BrickError where one is not finite."""
    path, watched = folder / "calibrated.onnx", folder / "watched.onnx"
    onnx.save(model, path)
    calibrator = CALIBRATORS[method](path, [*WEIGHTED, *KEEPING], augmented_model_path=str(watched))
    calibrator.augment_graph()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or 0
    calibrator.infer_session = InferenceSession(watched, options, ["CPUExecutionProvider"])
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():  # calibrators print what they do
        warnings.simplefilter("ignore", RuntimeWarning)  # of NaN, which is refused below
        for k in range(len(samples)):
            progress("calibrate", k, len(samples))
            calibrator.collect_data(OneSample(samples[k]))
        ranges = calibrator.compute_data()
    for name, found in ranges.items():
        if not np.isfinite(found.range_value).all():
            raise BrickError(f"tensor '{name}' is not finite on the calibration inputs: give others")
    return ranges


def with_bytes(
    model: onnx.ModelProto, ranges: Ranges, layers: Sequence[WeightedLayer], kept: set[str]
) -> onnx.ModelProto:
    """The model with signed weights per channel and unsigned activations, the layers of `kept` in float. What would
    multiply two tensors that vary stays in float too."""
    names = {layer.name for layer in layers} - kept
    others = [node.name for node in model.graph.node if node.op_type in WEIGHTED and node.name not in names]
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    types = QuantType.QInt8, QuantType.QUInt8
    with redirect_stdout(io.StringIO()):
        quantizer = QDQQuantizer(copy, True, False, *types, ranges, [], others, [*WEIGHTED, *KEEPING], {})
        quantizer.quantize_model()
        quantizer.model.topological_sort()
    return quantizer.model.model
