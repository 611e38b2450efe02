"""GroupQueryAttention, which language models are exported with: heads of queries share keys and values, which earlier
calls left.

Sequences of a batch may have begun at different times. Place j of the keys of one holds

    j < begun           those of earlier calls         begun = seqlens_k + 1 - rows, 0 in a first call
    begun ≤ j           those of row j - begun         of this call
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from brickrt.graph.contrib.body import ContributedBody, defines
from brickrt.graph.contrib.parts import type_code
from brickrt.graph.contrib.rotary import angles_of, turned_heads

INT64 = type_code(np.dtype(np.int64))
HEADS_FIRST = [0, 2, 1, 3]
LOCAL, BIAS, SINK = "local_window_size", 10, 11
REFUSED = ("qk_output", "sliding_window_cache")
LAST_KNOWN = 12  # inputs; those behind are scales of quantized keys and norms of queries


@dataclass(frozen=True)
class Extents:
    """`heads` of queries, in equal groups for each of `shared` heads of keys and values, all of `size` features."""

    batch: int
    rows: int
    heads: int
    shared: int
    size: int
    earlier: int

    @property
    def keys(self) -> int:
        """All places of keys."""
        return self.earlier + self.rows


@defines("GroupQueryAttention", needs=(0, 5))
def group_query_attention(b: ContributedBody) -> None:
    """The result, and all keys and values."""
    _refuse(b)
    q, k, v = _operands(b)
    e = _extents(b, k)
    begun = _begun(b, e)
    q, k, v = (_by_heads(b, name, e, count) for name, count in ((q, e.heads), (k, e.shared), (v, e.shared)))
    if b.attribute("do_rotary", 0):
        angles, sizes = _angles(b, e, begun), (e.size, 2 * b.type(7).shape[-1])
        q, k = (turned_heads(b, name, angles, sizes, "rotary_interleaved") for name in (q, k))
    if e.earlier:
        k, v = (_behind(b, name, 3 + n, e, begun) for n, name in enumerate((k, v)))
    b.give(_attended(b, (q, k, v), e, begun))
    b.give(k, 1)
    b.give(v, 2)


def _refuse(b: ContributedBody) -> None:
    """Raises ValueError for what has no kernels."""
    on = [name for name in REFUSED if b.attribute(name, 0)]
    on += [name for name in ("k_quant_type", "v_quant_type") if b.attribute(name, "NONE") != "NONE"]
    on += [f"input {k}" for k in range(LAST_KNOWN, len(b.inputs)) if b.input(k)]
    on += [] if b.attribute("causal", 1) else ["causal = 0"]
    if on:
        raise ValueError(f"{on[0]} has no kernels")


def _operands(b: ContributedBody) -> list[str]:
    """Queries, keys and values, of which rows may hold all three."""
    if b.input(1):
        return b.inputs[:3]
    heads, shared = b.attribute("num_heads"), b.attribute("kv_num_heads")
    size = b.type(0).shape[-1] // (heads + 2 * shared)
    return b.add_all("Split", [b.input(0), b.integers(heads * size, shared * size, shared * size)], 3, axis=-1)


def _extents(b: ContributedBody, keys: str) -> Extents:
    """Raises ValueError where they do not fit."""
    heads, shared = b.attribute("num_heads"), b.attribute("kv_num_heads")
    batch, rows, features = b.type(0).shape
    count = heads if b.input(1) else heads + 2 * shared
    if heads < 1 or shared < 1 or heads % shared or features % count:
        raise ValueError(f"{features} features and {heads} heads over {shared} of keys do not fit")
    return Extents(batch, rows, heads, shared, features // count, b.type(3).shape[2] if b.input(3) else 0)


def _begun(b: ContributedBody, e: Extents) -> str:
    """Keys that each sequence has of earlier calls, int64 [batch, 1]."""
    if not e.earlier:
        return b.constant(np.zeros((1, 1), np.int64))
    last = b.add("Reshape", b.add("Cast", b.input(5), to=INT64), b.integers(-1, 1))
    begun = b.add("Add", last, b.constant(np.array(1 - e.rows, np.int64)))
    return b.add("Clip", begun, *(b.constant(np.array(n, np.int64)) for n in (0, e.earlier)))


def _by_heads(b: ContributedBody, x: str, e: Extents, count: int) -> str:
    """[batch, rows, features] as [batch, heads, rows, features of a head]."""
    split = b.add("Reshape", x, b.integers(e.batch, e.rows, count, e.size), allowzero=1)
    return b.add("Transpose", split, perm=HEADS_FIRST)


def _angles(b: ContributedBody, e: Extents, begun: str) -> tuple[str, str]:
    """Cosines and sines of the places of rows."""
    places = b.input(9) or b.add("Add", begun, b.constant(np.arange(e.rows, dtype=np.int64)))
    return angles_of(b, places, (7, 8), 1)


def _behind(b: ContributedBody, x: str, past: int, e: Extents, begun: str) -> str:
    """Keys or values behind those of earlier calls, [batch, heads, places, features]: a row of this call is moved to
    its place by a product with a matrix of zeros and ones."""
    joined = b.add("Concat", b.input(past), x, axis=2)
    places = b.constant(np.arange(e.keys, dtype=np.int64)[:, None])
    begun = b.add("Unsqueeze", begun, b.integers(1, 2))
    mine = b.add("Add", begun, b.constant(np.arange(e.rows, dtype=np.int64)))
    moves = b.add("Cast", b.add("Equal", places, mine), to=type_code(b.type(0).dtype))
    return b.add("Where", b.add("Less", places, begun), joined, b.add("MatMul", moves, x))


def _attended(b: ContributedBody, heads: tuple[str, str, str], e: Extents, begun: str) -> str:
    """softmax(q kᵀ · scale + bias) v as [batch, rows, features]."""
    q, k, v = heads
    groups = (e.batch, e.shared, e.heads // e.shared)
    q = b.add("Reshape", q, b.integers(*groups, e.rows, e.size), allowzero=1)
    k, v = (b.add("Unsqueeze", name, b.integers(2)) for name in (k, v))
    scale = b.attribute("scale", 0.0) or 1 / math.sqrt(e.size)
    scores = b.add("MatMul", q, b.add("Transpose", k, perm=[0, 1, 2, 4, 3]))
    scores = b.add("Mul", scores, b.number(scale, 0))
    cap = b.attribute("softcap", 0.0)
    if cap > 0:
        limit = b.number(cap, 0)
        scores = b.add("Mul", b.add("Tanh", b.add("Div", scores, limit)), limit)
    if b.input(BIAS):
        scores = b.add("Add", scores, _in_groups(b, e))
    scores = b.add("Where", _seen(b, e, begun), scores, b.constant(np.array(-np.inf, b.type(0).dtype)))
    mixed = b.add("MatMul", _weights(b, scores, e), v)
    mixed = b.add("Reshape", mixed, b.integers(e.batch, e.heads, e.rows, e.size), allowzero=1)
    mixed = b.add("Transpose", mixed, perm=HEADS_FIRST)
    return b.add("Reshape", mixed, b.integers(e.batch, e.rows, e.heads * e.size), allowzero=1)


def _in_groups(b: ContributedBody, e: Extents) -> str:
    """The bias [batch or 1, heads or 1, rows, places], with heads by groups."""
    batch, heads, rows, keys = b.type(BIAS).shape
    split = (1, 1) if heads == 1 else (e.shared, heads // e.shared)
    return b.add("Reshape", b.input(BIAS), b.integers(batch, *split, rows, keys), allowzero=1)


def _seen(b: ContributedBody, e: Extents, begun: str) -> str:
    """Which places a row attends to, [batch or 1, 1, 1, rows, places]: up to its own, of a window if there is one."""
    places = b.constant(np.arange(e.keys, dtype=np.int64))
    rows = b.constant(np.arange(e.rows, dtype=np.int64)[:, None])
    own = b.add("Add", b.add("Unsqueeze", begun, b.integers(1, 2, 3)), rows)
    seen = b.add("LessOrEqual", places, own)
    window = b.attribute(LOCAL, -1)
    if window < 0:
        return seen
    near = b.add("Greater", places, b.add("Sub", own, b.constant(np.array(window, np.int64))))
    return b.add("And", seen, near)


def _weights(b: ContributedBody, scores: str, e: Extents) -> str:
    """The softmax of each row of scores, beside one that no value has where the node says so."""
    if not b.input(SINK) and b.attribute("smooth_softmax", 0) != 1:
        return b.add("Softmax", scores, axis=-1)
    groups = (e.shared, e.heads // e.shared)
    sink = b.add("Reshape", b.input(SINK), b.integers(1, *groups, 1, 1)) if b.input(SINK) else b.number(0.0, 0)
    sinks = b.add("Expand", sink, b.integers(e.batch, *groups, e.rows, 1))
    every = b.add("Softmax", b.add("Concat", scores, sinks, axis=-1), axis=-1)
    return b.add("Slice", every, b.integers(0), b.integers(e.keys), b.integers(4))
