"""Labels, masks and overlays: what a segmentation network decides for each pixel or voxel."""

from __future__ import annotations

import numpy as np

from brickrt.cli.requests import ResultRequest
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.last_step import with_argmax, with_threshold
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.compiled.compiled_source import CompiledSource

PROBABILITIES = {"Sigmoid", "HardSigmoid", "Softmax"}
KEEPING = {"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Resize", "Clip"}
"""Operators behind which probabilities still are some."""
OPACITY = 0.5
GOLDEN = 0.618034  # steps of hue that stay apart for any number of labels


def decided(source: SourceGraph, asked: ResultRequest) -> SourceGraph:
    """The model with the step that was asked for behind its output. Raises BrickError."""
    axis, threshold = decision_of(source, asked)
    if axis is not None:
        return with_argmax(source, axis)
    return source if threshold is None else with_threshold(source, threshold)


def decision_of(source: SourceGraph, asked: ResultRequest) -> tuple[int | None, float | None]:
    """The axis of which the greatest is taken, or the threshold; None where none was asked for. --argmax and
    --threshold are as they say; --save takes the greatest channel, or of one channel whether it is likelier than not.
    Raises BrickError."""
    if asked.argmax is not None and asked.threshold is not None:
        raise BrickError("--argmax and --threshold exclude each other: leave one out")
    if isinstance(source, CompiledSource) and (asked.argmax, asked.threshold, asked.save) != (None, None, None):
        raise BrickError(f"{source.path}: is compiled, and takes no step more, such as labels: give the .onnx file")
    if asked.argmax is not None or asked.threshold is not None or asked.save is None:
        return asked.argmax, asked.threshold
    if len(source.outputs) != 1:
        raise BrickError(f"--save {asked.save}: the model has {len(source.outputs)} outputs: only one is taken")
    name, info = next(iter(source.outputs.items()))
    channels = info.shape[1] if info.shape is not None and len(info.shape) in (4, 5) else None
    if not isinstance(channels, int):
        raise BrickError(f"--save {asked.save}: '{name}' does not say its channels: add --argmax 1, or --threshold X")
    if channels > 1:
        return 1, None
    return None, 0.5 if gives_probabilities(source) else 0.0


def gives_probabilities(source: SourceGraph) -> bool:
    """Whether the model's output comes from a sigmoid or a softmax."""
    makers = {output: node for node in source.nodes for output in node.outputs}
    node = makers.get(next(iter(source.outputs)))
    while node is not None and node.op_type in KEEPING:
        node = makers.get(node.inputs[0])
    return node is not None and node.op_type in PROBABILITIES


def overlay(pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The picture [height, width, channels] with each label but 0 in a colour of its own half over it, as planes
    [3, height, width]. Raises BrickError where the labels [height, width] are of another size."""
    if labels.shape != pixels.shape[:2]:
        sizes = "x".join(map(str, labels.shape)), "x".join(map(str, pixels.shape[:2]))
        raise BrickError(f"--save overlay: labels are {sizes[0]}, the picture {sizes[1]}: use --save labels")
    grey = pixels if pixels.dtype == np.uint8 else pixels >> 8
    seen = np.broadcast_to(grey[:, :, :3] if grey.shape[2] > 1 else grey, (*labels.shape, 3))
    colours = _colours(int(labels.max(initial=0)) + 1)
    mixed = np.where(labels[:, :, None] != 0, seen * (1 - OPACITY) + colours[labels] * OPACITY, seen)
    return np.rint(mixed).astype(np.uint8).transpose(2, 0, 1)


def _colours(count: int) -> np.ndarray:
    """A bright colour for each label, [count, 3] from 0 to 255."""
    hue = (np.arange(count) - 1) * GOLDEN % 1
    wheel = np.abs((hue[:, None] * 6 + np.array([0, 4, 2])) % 6 - 3) - 1
    return np.clip(wheel, 0, 1) * 255
