"""Rotary embeddings: pairs of features, turned by an angle that grows with the place of their row."""

from __future__ import annotations

import numpy as np

from brickrt.graph.contrib.body import ContributedBody, defines

INT64 = 7
"""ONNX's number of the type."""


@defines("RotaryEmbedding", needs=range(4))
def rotary_embedding(b: ContributedBody) -> None:
    """Queries or keys [batch, rows, features] or [batch, heads, rows, features], turned by tables of cosines and sines
    [places, half the turned features]. Raises ValueError for packed batches."""
    if b.attribute("is_packed_batching", 0):
        raise ValueError("is_packed_batching has no kernels")
    shape, rank = b.type(0).shape, len(b.type(0).shape)
    turned = 2 * b.type(2).shape[-1]
    size = shape[-1] if rank == 4 else _head_size(b, shape[-1], turned)
    x = b.input(0) if rank == 4 else b.add("Reshape", b.input(0), b.integers(0, 0, -1, size))
    places = _places(b, shape[2 if rank == 4 else 1])
    angles = angles_of(b, places, (2, 3), 1 if rank == 4 else 2)
    y = turned_heads(b, x, angles, (size, turned), "interleaved")
    y = b.add("Reshape", y, b.integers(*shape), allowzero=1)
    factor = b.attribute("scale", 1.0)
    b.give(y if factor == 1 else b.add("Mul", y, b.number(factor, 0)))


def angles_of(b: ContributedBody, places: str, tables: tuple[int, int], heads: int) -> tuple[str, str]:
    """Cosines and sines of the inputs `tables` at the places of rows [batch or 1, rows], for heads along an axis."""
    axis = b.integers(heads)
    cos, sin = (b.add("Unsqueeze", b.add("Gather", b.input(table), places), axis) for table in tables)
    return cos, sin


def turned_heads(b: ContributedBody, x: str, angles: tuple[str, str], sizes: tuple[int, int], how: str) -> str:
    """Heads of `sizes` features, of which as many as the second says are turned; attribute `how` tells if pairs are
    neighbours."""
    size, turned = sizes
    kept = []
    if turned < size:
        x, *kept = b.add_all("Split", [x, b.integers(turned, size - turned)], 2, axis=-1)
    turn = _adjacent if b.attribute(how, 0) else _halves
    y = turn(b, x, *angles, turned)
    return b.add("Concat", y, *kept, axis=-1) if kept else y


def _head_size(b: ContributedBody, features: int, turned: int) -> int:
    """The features of a head: those that are turned, if the node does not say how many heads there are."""
    heads = b.attribute("num_heads", 0)
    return features // heads if heads else turned


def _places(b: ContributedBody, rows: int) -> str:
    """The place of each row [batch or 1, rows]; a single one is that of the first row."""
    if b.type(1).size > 1 or len(b.type(1).shape) == 2:
        return b.input(1)
    first = b.add("Reshape", b.add("Cast", b.input(1), to=INT64), b.integers(1, 1))
    return b.add("Add", first, b.constant(np.arange(rows, dtype=np.int64)[None]))


def _halves(b: ContributedBody, x: str, cos: str, sin: str, turned: int) -> str:
    """Pairs of a feature of the first half and one of the second."""
    first, second = b.add_all("Split", [x], 2, axis=-1, num_outputs=2)
    return b.add("Concat", *_turned(b, first, second, cos, sin), axis=-1)


def _adjacent(b: ContributedBody, x: str, cos: str, sin: str, turned: int) -> str:
    """Pairs of neighbours."""
    pairs = b.add("Reshape", x, b.integers(0, 0, 0, turned // 2, 2))
    parts = b.add_all("Split", [pairs], 2, axis=-1, num_outputs=2)
    first, second = (b.add("Squeeze", part, b.integers(-1)) for part in parts)
    both = [b.add("Unsqueeze", part, b.integers(-1)) for part in _turned(b, first, second, cos, sin)]
    return b.add("Reshape", b.add("Concat", *both, axis=-1), b.integers(0, 0, 0, turned))


def _turned(b: ContributedBody, first: str, second: str, cos: str, sin: str) -> tuple[str, str]:
    """Both features of pairs after the turn."""
    return (
        b.add("Sub", b.add("Mul", first, cos), b.add("Mul", second, sin)),
        b.add("Add", b.add("Mul", second, cos), b.add("Mul", first, sin)),
    )
