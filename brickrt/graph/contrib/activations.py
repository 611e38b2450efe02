"""Activations, and those that add a bias first."""

from __future__ import annotations

from brickrt.graph.contrib.body import ContributedBody, defines


@defines("Gelu", needs=range(1))
def gelu(b: ContributedBody) -> None:
    """x·Φ(x)."""
    b.give(b.add("Gelu", b.input(0)))


@defines("BiasGelu", needs=range(2))
def bias_gelu(b: ContributedBody) -> None:
    """As Gelu, of a sum."""
    b.give(b.add("Gelu", b.add("Add", *b.inputs[:2])))


@defines("FastGelu", needs=range(1))
def fast_gelu(b: ContributedBody) -> None:
    """As Gelu by tanh, of a sum if there is a bias."""
    x = b.add("Add", *b.inputs[:2]) if b.input(1) else b.input(0)
    b.give(b.add("Gelu", x, approximate="tanh"))


@defines("GemmFastGelu", needs=range(2))
def gemm_fast_gelu(b: ContributedBody) -> None:
    """As FastGelu, of a product."""
    x = b.add("MatMul", *b.inputs[:2])
    x = b.add("Add", x, b.input(2)) if b.input(2) else x
    b.give(b.add("Gelu", x, approximate="tanh"))


@defines("QuickGelu", needs=range(1))
def quick_gelu(b: ContributedBody) -> None:
    """x · sigmoid(alpha · x)."""
    x = b.input(0)
    scaled = b.add("Mul", x, b.number(b.attribute("alpha", 1.702), 0))
    b.give(b.add("Mul", x, b.add("Sigmoid", scaled)))


@defines("BiasSplitGelu", needs=range(2))
def bias_split_gelu(b: ContributedBody) -> None:
    """One half of the last axis times Gelu of the other."""
    left, right = b.add_all("Split", [b.add("Add", *b.inputs[:2])], 2, axis=-1, num_outputs=2)
    b.give(b.add("Mul", left, b.add("Gelu", right)))


@defines("BiasAdd", needs=range(3))
def bias_add(b: ContributedBody) -> None:
    """x + bias + skip."""
    b.give(b.add("Add", b.add("Add", *b.inputs[:2]), b.input(2)))


@defines("BiasSoftmax", needs=range(2))
def bias_softmax(b: ContributedBody) -> None:
    """Softmax of a sum over all axes from one on. The bias lacks axes in the middle of the batch, or in front."""
    shape, bias = b.type(0).shape, b.type(1).shape
    axis = b.attribute("axis", 1) % len(shape)
    added = b.input(1)
    if not b.attribute("is_inner_broadcast"):  # each entry of the bias serves several in a row of the batch
        fewer = len(shape) - len(bias)
        ones = [k for k in range(axis) if k >= axis - fewer]
        added = b.add("Unsqueeze", added, b.integers(*ones)) if ones else added
    rows = b.add("Flatten", b.add("Add", b.input(0), added), axis=axis)
    b.give(b.add("Reshape", b.add("Softmax", rows, axis=-1), b.integers(*shape), allowzero=1))
