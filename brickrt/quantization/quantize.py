"""`quantize`: a float32 model becomes one of bytes, and what that costs is measured."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import Model, load
from brickrt.quantization.float_model import WeightedLayer, chosen_layers, layers_of, name_nodes, read_model
from brickrt.quantization.given import Method, Samples
from brickrt.quantization.noise import OutputNoise
from brickrt.quantization.probe import LayerNoise, probed_noise
from brickrt.runtime.files.extras import needed
from brickrt.runtime.progress import Progress
from brickrt.runtime.session.runtime import Runtime

TIMED_RUNS = 5


@dataclass(frozen=True)
class QuantizationResult:
    """A model of bytes in QDQ form, with what was measured of it.

    `layers` are in the model's order; `outputs` compare float32 outputs over `samples` inputs; `bytes_before` and
    `bytes_after` are sizes of the models, `ms_before` and `ms_after` the least milliseconds of a few runs in turns.
    """

    proto: onnx.ModelProto
    layers: tuple[LayerNoise, ...]
    outputs: tuple[OutputNoise, ...]
    samples: int
    bytes_before: int
    bytes_after: int
    ms_before: float
    ms_after: float


def quantize(
    model: Model,
    samples: Samples,
    *,
    method: Method = "minmax",
    keep: Sequence[str] = (),
    sqnr: float | None = None,
    checks: Samples | None = None,
    threads: int | None = None,
    progress: Progress = lambda what, done, total: None,
) -> QuantizationResult:
    """Quantizes a float32 model: weights become signed bytes with a scale per output channel, activations unsigned
    bytes with one scale. Ranges come from `samples`, inputs like those to come, by `method`. Layers stay in float that
    patterns of `keep` match, and whose own ratio of signal to noise is below `sqnr` dB. The result is compared with the
    model on `checks`, else on `samples`. Raises BrickError for models that are not float32, and samples that do not
    fit."""
    if not len(samples) or (checks is not None and not len(checks)):
        raise BrickError("no input is given to calibrate with or to check: give some like those to come")
    needed("onnxruntime", "quantize", "quantize")
    from brickrt.quantization.qdq import calibrated, folded, with_bytes  # which import it

    source = load(model)
    before = read_model(model, source)
    with tempfile.TemporaryDirectory(prefix="brickrt-quantize-") as name:
        folder = Path(name)
        progress("fold constants", 0, 1)
        ready = folded(before, source.name, folder)
        name_nodes(ready)
        layers = layers_of(ready)
        if not layers:
            raise BrickError(f"{source.name}: has no convolution or product with constant weights: nothing to quantize")
        asked = chosen_layers(layers, keep)
        ranges = calibrated(ready, samples, method, threads, folder, progress)
    made = with_bytes(ready, ranges, layers, set())
    found = _judged(layers, probed_noise(ready, made, layers, samples, threads, progress), asked, sqnr)
    kept = {each.layer.name for each in found if each.why_float}
    made = with_bytes(ready, ranges, layers, kept) if kept else made
    return _checked(before, made, found, samples if checks is None else checks, threads, progress)


def _judged(
    layers: Sequence[WeightedLayer], noise: Mapping[str, float], asked: set[str], least: float | None
) -> list[LayerNoise]:
    """The layers with their noise, and why some stay in float: those of `asked`, and those below `least` dB."""

    def why(name: str) -> str:
        below = least is not None and noise[name] < least
        return "asked for" if name in asked else f"below {least:g} dB" if below else ""

    found = [LayerNoise(layer, noise[layer.name], why(layer.name)) for layer in layers]
    if all(each.why_float for each in found):
        raise BrickError(f"all {len(layers)} layers would stay in float: lower --sqnr, or keep fewer")
    return found


def _checked(
    before: onnx.ModelProto,
    made: onnx.ModelProto,
    layers: Sequence[LayerNoise],
    samples: Samples,
    threads: int | None,
    progress: Progress,
) -> QuantizationResult:
    """Runs both models on the samples and compares what they give."""
    both = [Runtime(each, device="cpu", threads=threads) for each in (before, made)]
    outputs: dict[str, OutputNoise] = {}
    for k in range(len(samples)):
        progress("check", k, len(samples))
        expected, found = (runtime.execute(samples[k]) for runtime in both)
        for name, value in expected.items():
            if isinstance(value, np.ndarray) and value.dtype == np.float32:
                outputs.setdefault(name, OutputNoise(name)).add(value, found[name])
    times = _least_ms(both, samples)
    sizes = before.ByteSize(), made.ByteSize()
    return QuantizationResult(made, tuple(layers), tuple(outputs.values()), len(samples), *sizes, *times)


def _least_ms(both: Sequence[Runtime], samples: Samples) -> list[float]:
    """The least time of each of several runtimes, which are compiled, for the last sample."""
    sample, times = samples[len(samples) - 1], [float("inf")] * len(both)
    for _ in range(TIMED_RUNS):
        for k, runtime in enumerate(both):
            began = time.perf_counter()
            runtime.execute(sample)
            times[k] = min(times[k], (time.perf_counter() - began) * 1e3)
    return times
