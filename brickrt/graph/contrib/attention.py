"""Attention, with the projections that ONNX Runtime's optimizer joined to it.

x ─ MatMul ─ + bias ─ split ─ q, k, v ─ by heads ─ softmax(q kᵀ · scale + mask) v ─
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from brickrt.graph.contrib.body import ContributedBody, defines
from brickrt.graph.contrib.parts import type_code

KEYS_TO_COLUMNS = [0, 1, 3, 2]
HEADS_FIRST = [0, 2, 1, 3]


@defines("Attention", needs=range(2))
def attention(b: ContributedBody) -> None:
    """Self-attention of what a matrix projects, with the keys and values of earlier calls in front."""
    _self_attention(b, b.add("MatMul", *b.inputs[:2]), 1, 2, mask=3, past=4, bias=5)


@defines("QAttention", needs=range(5))
def quantized_attention(b: ContributedBody) -> None:
    """The same, projected in integers."""
    zeros = [b.input(6), b.input(7)] if b.input(7) else [b.input(6)] if b.input(6) else []
    product = b.add("MatMulInteger", *b.inputs[:2], *zeros)
    kind = type_code(b.type(3).dtype)
    projected = b.add("Mul", b.add("Cast", product, to=kind), b.add("Mul", b.input(3), b.input(4)))
    _self_attention(b, projected, 1, 2, mask=5, past=8, bias=-1)


def _self_attention(
    b: ContributedBody, projected: str, weights: int, shift: int, mask: int, past: int, bias: int
) -> None:
    """Gives what heads make of projected rows [batch, rows, 3 · features], and the keys and values if asked for."""
    _plain(b, "do_rotary", "past_present_share_buffer")
    columns = b.type(weights).shape[-1]
    sizes = [int(n) for n in b.attribute("qkv_hidden_sizes", ()) or (columns // 3,) * 3]
    projected = b.add("Add", projected, b.input(shift)) if b.input(shift) else projected
    parts = b.add_all("Split", [projected, b.integers(*sizes)], 3, axis=-1)
    batch, rows, _ = b.type(0).shape
    q, k, v = (_by_heads(b, name, batch, rows, size) for name, size in zip(parts, sizes, strict=True))
    earlier = b.type(past).shape[3] if b.input(past) else 0
    if earlier:
        k, v = (b.add("Concat", _part(b, past, k_or_v), new, axis=2) for k_or_v, new in ((0, k), (1, v)))
    b.give(_attended(b, (q, k, v), (batch, rows, rows + earlier), sizes, _bias(b, mask, bias, rows, rows + earlier)))
    if b.wants(1):
        b.give(b.add("Concat", *(b.add("Unsqueeze", each, b.integers(0)) for each in (k, v)), axis=0), 1)


def _part(b: ContributedBody, past: int, which: int) -> str:
    """The keys, 0, or the values, 1, of earlier calls."""
    return b.add("Gather", b.input(past), b.constant(np.array(which, np.int64)), axis=0)


@defines("MultiHeadAttention", needs=range(3))
def multi_head_attention(b: ContributedBody) -> None:
    """Attention of queries [batch, rows, features] over keys and values, which may lie by heads already."""
    heads, shapes = b.attribute("num_heads"), [b.type(k).shape for k in range(3)]
    if len(shapes[0]) != 3 or len(shapes[1]) not in (3, 4) or b.input(8):
        raise ValueError("queries, keys and values that are packed or share a buffer have no kernels")
    batch, rows, features = shapes[0]
    by_heads = len(shapes[1]) == 4
    keys = shapes[1][2 if by_heads else 1]
    sizes = [features, features, shapes[2][3] * heads if by_heads else shapes[2][2]]
    parts = _with_bias(b, sizes) if b.input(3) else b.inputs[:3]
    q = _by_heads(b, parts[0], batch, rows, features)
    k, v = (
        name if by_heads else _by_heads(b, name, batch, keys, size)
        for name, size in zip(parts[1:], sizes[1:], strict=True)
    )
    if b.input(6):
        k, v = (b.add("Concat", b.input(6 + at), new, axis=2) for at, new in enumerate((k, v)))
        keys += b.type(6).shape[2]
    b.give(_attended(b, (q, k, v), (batch, rows, keys), sizes, _bias(b, 4, 5, rows, keys)))
    b.give(k, 1)
    b.give(v, 2)


def _with_bias(b: ContributedBody, sizes: Sequence[int]) -> list[str]:
    """Queries, keys and values plus their parts of the bias."""
    parts = b.add_all("Split", [b.input(3), b.integers(*sizes)], 3, axis=0)
    return [b.add("Add", name, part) for name, part in zip(b.inputs, parts)]


def _plain(b: ContributedBody, *switches: str) -> None:
    """Raises ValueError where one of these attributes is on."""
    on = next((name for name in switches if b.attribute(name, 0)), None)
    if on:
        raise ValueError(f"{on} has no kernels")


def _by_heads(b: ContributedBody, x: str, batch: int, rows: int, features: int) -> str:
    """[batch, rows, features] as [batch, heads, rows, features of a head]. Raises ValueError where they do not part."""
    heads = b.attribute("num_heads")
    if heads < 1 or features % heads:
        raise ValueError(f"{features} features have no {heads} equal heads")
    shape = b.integers(batch, rows, heads, features // heads)
    return b.add("Transpose", b.add("Reshape", x, shape, allowzero=1), perm=HEADS_FIRST)


def _attended(
    b: ContributedBody, heads: tuple[str, str, str], extents: tuple[int, int, int], sizes: Sequence[int], bias: str
) -> str:
    """softmax(q kᵀ · scale + bias) v as [batch, rows, features]."""
    q, k, v = heads
    batch, rows, _ = extents
    scale = b.attribute("scale", 0.0) or 1 / math.sqrt(sizes[0] // b.attribute("num_heads"))
    scores = b.add("MatMul", q, b.add("Transpose", k, perm=KEYS_TO_COLUMNS))
    scores = b.add("Mul", scores, _number(b, scale))
    scores = b.add("Add", scores, bias) if bias else scores
    mixed = b.add("Transpose", b.add("MatMul", b.add("Softmax", scores, axis=-1), v), perm=HEADS_FIRST)
    return b.add("Reshape", mixed, b.integers(batch, rows, sizes[2]), allowzero=1)


def _float(b: ContributedBody) -> np.dtype:
    """The element type of the scores."""
    return b.type(3).dtype if b.op_type == "QAttention" else b.type(0).dtype


def _number(b: ContributedBody, value: float) -> str:
    return b.constant(np.array(value, _float(b)))


def _bias(b: ContributedBody, mask: int, bias: int, rows: int, keys: int) -> str:
    """What is added to the scores: of keys that the mask leaves out, of later keys, and what the node has itself."""
    parts = [_masked(b, mask, keys)] if b.input(mask) else []
    if b.attribute("unidirectional", 0) and rows > 1:
        later = np.arange(keys) > np.arange(rows)[:, None] + (keys - rows)
        lowest = np.finfo(_float(b)).min
        parts.append(b.constant(np.where(later, lowest, 0).astype(_float(b))))
    if bias >= 0 and b.input(bias):
        parts.append(b.input(bias))
    if not parts:
        return ""
    first, *others = parts
    for other in others:
        first = b.add("Add", first, other)
    return first


def _masked(b: ContributedBody, mask: int, keys: int) -> str:
    """0 for the keys that a row attends to, `mask_filter_value` for others, [batch, 1, rows or 1, keys]. Raises
    ValueError for a mask of another shape than [batch, keys], [batch, rows, keys], or the lengths [batch]."""
    shape, batch = b.type(mask).shape, b.type(0).shape[0]
    given = b.add("Cast", b.input(mask), to=type_code(np.dtype(np.int64)))
    if shape == (batch,):
        places = b.constant(np.arange(keys, dtype=np.int64))
        seen = b.add("Less", places, b.add("Reshape", given, b.integers(-1, 1, 1, 1)))
    elif len(shape) in (2, 3) and shape[-1] == keys:
        seen = b.add("Greater", given, b.constant(np.array(0, np.int64)))
        seen = b.add("Unsqueeze", seen, b.integers(*((1, 2) if len(shape) == 2 else (1,))))
    else:
        raise ValueError(f"a mask of the shape {list(shape)} has no kernels")
    return b.add("Where", seen, _number(b, 0), _number(b, b.attribute("mask_filter_value", -10000.0)))
