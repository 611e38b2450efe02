"""Normalizations, and those that add what they normalize first."""

from __future__ import annotations

import numpy as np

from brickrt.graph.contrib.body import ContributedBody, defines
from brickrt.graph.contrib.parts import channels_first, channels_last, type_code

FLOAT, INT32 = 1, 6
"""ONNX's numbers of these types."""


@defines("LayerNormalization", needs=range(2))
def layer_norm(b: ContributedBody) -> None:
    """As the standard operator, which models of older opsets lack."""
    given = b.inputs[:3] if b.input(2) else b.inputs[:2]
    outputs = b.add_all("LayerNormalization", given, len(b.wanted), **b.kept("axis", "epsilon"))
    for k, name in enumerate(outputs):
        b.give(name, k)


@defines("SimplifiedLayerNormalization", needs=range(2))
def simplified_layer_norm(b: ContributedBody) -> None:
    """x / root mean square · scale over the trailing axes; the root's reciprocal is the second output."""
    rank = len(b.type(0).shape)
    axis = b.attribute("axis", -1) % max(rank, 1)
    _root_mean_square(b, b.input(0), 1, list(range(axis, rank)), b.attribute("epsilon", 1e-5))


@defines("SkipLayerNormalization", needs=range(3))
def skip_layer_norm(b: ContributedBody) -> None:
    """The layer norm of input + skip + bias, and that sum as the last output."""
    total = _sum(b, 0, 1, 4)
    shift = [b.input(3)] if b.input(3) else []
    epsilon = b.attribute("epsilon", 1e-12)
    outputs = b.add_all("LayerNormalization", [total, b.input(2), *shift], 3, axis=-1, epsilon=epsilon)
    for k, name in enumerate([*outputs, total]):
        b.give(name, k)


@defines("SkipSimplifiedLayerNormalization", needs=range(3))
def skip_simplified_layer_norm(b: ContributedBody) -> None:
    """The same by the root mean square."""
    total = _sum(b, 0, 1, 3)
    last = len(b.type(0).shape) - 1
    inverse = _root_mean_square(b, total, 2, [last], b.attribute("epsilon", 1e-12), second=2)
    b.give(inverse, 2)
    b.give(total, 3)


def _sum(b: ContributedBody, *inputs: int) -> str:
    """The sum of those inputs that are given."""
    first, *others = [b.input(k) for k in inputs if b.input(k)]
    for other in others:
        first = b.add("Add", first, other)
    return first


def _root_mean_square(b: ContributedBody, x: str, scale: int, axes: list[int], epsilon: float, second: int = 1) -> str:
    """Gives x / root mean square · scale, computed in float32, and the root's reciprocal as output `second`, whose name
    it returns."""
    kind, narrow = type_code(b.type(0).dtype), b.type(0).dtype == np.float16
    wide = b.add("Cast", x, to=FLOAT) if narrow else x
    number = np.float32 if narrow else b.type(0).dtype.type
    squares = b.add("ReduceMean", b.add("Mul", wide, wide), b.integers(*axes))
    root = b.add("Sqrt", b.add("Add", squares, b.constant(np.asarray(epsilon, number))))
    inverse = b.add("Reciprocal", root)
    y = b.add("Mul", wide, inverse)
    b.give(b.add("Mul", b.add("Cast", y, to=kind) if narrow else y, b.input(scale)))
    b.give(inverse, second)
    return inverse


@defines("EmbedLayerNormalization", needs=(0, 2, 3, 5, 6))
def embed_layer_norm(b: ContributedBody) -> None:
    """The layer norm of a word's, a position's and a segment's row, how many words the mask leaves, and the sum."""
    rows = [b.add("Gather", b.input(2), b.input(0)), _places(b, b.input(3), 8)]
    if b.input(1):
        rows.append(b.add("Gather", b.input(4), b.input(1)))
    _embedded(b, rows, b.input(5), b.input(6))


@defines("QEmbedLayerNormalization", needs=(0, 2, 3, 5, 6, 8, 9, 11, 12))
def quantized_embed_layer_norm(b: ContributedBody) -> None:
    """The same of tables in bytes; each has a scale and a zero point."""
    rows = [_dequantized(b, b.add("Gather", b.input(2), b.input(0)), 8)]
    rows.append(_dequantized(b, _places(b, b.input(3), len(b.inputs)), 9))
    if b.input(1):
        rows.append(_dequantized(b, b.add("Gather", b.input(4), b.input(1)), 10))
    _embedded(b, rows, _dequantized(b, b.input(5), 11), _dequantized(b, b.input(6), 12))


def _dequantized(b: ContributedBody, x: str, scale: int) -> str:
    """Bytes as floats; zero points are five inputs behind the scales."""
    return b.add("DequantizeLinear", x, b.input(scale), b.input(scale + 5))


def _places(b: ContributedBody, table: str, given: int) -> str:
    """The rows of a table for the places that an input names, or for all of a sequence in order."""
    if b.input(given):
        return b.add("Gather", table, b.input(given))
    return b.add("Slice", table, b.integers(0), b.integers(b.type(0).shape[1]), b.integers(0))


def _embedded(b: ContributedBody, rows: list[str], scale: str, shift: str) -> None:
    """Gives the layer norm of the sum of rows, how many words the mask, input 7, leaves, and the sum."""
    total = rows[0]
    for other in rows[1:]:
        total = b.add("Add", total, other)
    b.give(b.add("LayerNormalization", total, scale, shift, axis=-1, epsilon=b.attribute("epsilon", 1e-12)))
    left = b.add("ReduceSum", b.input(7), b.integers(1), keepdims=0) if b.input(7) else ""
    b.give(left or b.constant(np.zeros(b.type(0).shape[0], np.int32)), 1)
    b.give(total, 2)


@defines("GroupNorm", "SkipGroupNorm", needs=range(3))
def group_norm(b: ContributedBody) -> None:
    """The norm of groups of channels, which are innermost by default; by x · sigmoid(x) where `activation` is 1."""
    rank, last = len(b.type(0).shape), bool(b.attribute("channels_last", 1))
    total = _skipped(b, rank) if b.op_type == "SkipGroupNorm" else b.input(0)
    kind = type_code(b.type(0).dtype)
    scale, shift = (b.add("Cast", b.input(k), to=kind) for k in (1, 2))
    x, groups = channels_first(b, total, rank, last), b.attribute("groups")
    y = b.add("GroupNormalization", x, scale, shift, num_groups=groups, epsilon=b.attribute("epsilon", 1e-5))
    y = channels_last(b, y, rank, last)
    b.give(b.add("Mul", y, b.add("Sigmoid", y)) if b.attribute("activation") else y)
    b.give(total, 1)


def _skipped(b: ContributedBody, rank: int) -> str:
    """Input + skip + bias; a skip of one row per image is the same for all pixels."""
    skip = b.input(3)
    if len(b.type(3).shape) == 2:
        skip = b.add("Unsqueeze", skip, b.integers(*range(1, rank - 1)))
    total = b.add("Add", b.input(0), skip)
    return b.add("Add", total, b.input(4)) if b.input(4) else total
