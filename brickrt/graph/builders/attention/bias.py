"""What is added to the scores of attention: its mask, and -∞ at keys that are not to be seen.

A query at place p sees keys up to p if `is_causal`, those in a window around p if the node has one, and of padded keys
those before `nonpad_kv_seqlen`. Queries come after all keys of the past, or are the last of those keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode
from brickrt.graph.builders.common import convert, elementwise, optional, take, view, wide
from brickrt.graph.builders.common import reduce as reduced
from brickrt.graph.builders.scalar import add, less, less_equal, like, sub, where, wide_type
from brickrt.ops.expr import Expr, apply, const

INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class Bias:
    """`tensor` broadcasts to the scores; `masked` is true in rows without a key, and broadcasts too. '' for none."""

    tensor: str = ""
    masked: str = ""


def attention_bias(b: Builder, node: OnnxNode, queries: int, keys: int) -> Bias:
    """The bias of a node with so many queries and keys."""
    dtype = wide_type(b.type(node.inputs[0]).dtype)
    terms = [*_mask(b, node, keys, dtype), *_hidden(b, node, queries, keys, dtype)]
    if not terms:
        return Bias()
    known = [array for name in terms if (array := b.known(name)) is not None]
    if len(known) == len(terms):
        total = reduce(np.add, known)
        without = np.isneginf(np.max(total, axis=-1, keepdims=True, initial=-np.inf))
        return Bias(b.constant(total), b.constant(without) if without.any() else "")
    tensor = terms[0]
    for name in terms[1:]:
        tensor = elementwise(b, add, tensor, name)
    return Bias(tensor, _without_keys(b, tensor))


def _without_keys(b: Builder, tensor: str) -> str:
    """Where all of a row of the bias is -∞, which only the run can tell."""
    last = b.type(tensor).rank - 1
    most = reduced(b, "max", (last,), tensor)
    return elementwise(b, lambda x: apply("isneginf", x), most)


def _mask(b: Builder, node: OnnxNode, keys: int, dtype: np.dtype) -> list[str]:
    """The mask that the node is given, in wide floating point, -∞ at the keys beyond it."""
    name = optional(node, 3)
    if not name:
        return []
    if b.type(name).dtype == np.bool_:
        known = b.known(name)
        if known is not None:
            name = b.constant(np.where(known, dtype.type(0), dtype.type(-np.inf)))
        else:
            name = _blocked(b, name, dtype)
    shape = b.type(name).shape
    if shape[-1:] != (1,) and shape[-1] > keys:
        raise ValueError(f"a mask for {shape[-1]} keys, of which there are {keys}")
    name = convert(b, wide(b, name), dtype)
    table = [k if k < shape[-1] else -1 for k in range(keys)]
    padded = take(b, name, {len(shape) - 1: table}, fill=-np.inf) if shape[-1] < keys else name
    return [padded]


def _blocked(b: Builder, seen: str, dtype: np.dtype) -> str:
    """0 at keys that are seen, else -∞."""
    return elementwise(b, lambda s: where(s, const(0.0, dtype), const(-np.inf, dtype)), seen)


def _hidden(b: Builder, node: OnnxNode, queries: int, keys: int, dtype: np.dtype) -> list[str]:
    """-∞ at keys that a query does not see because of where they are."""
    lengths = optional(node, 6)
    limits = _limits(node)
    if lengths and (optional(node, 4) or optional(node, 5)):
        raise ValueError("lengths without padding cannot be given along with past keys and values")
    found: list[str] = []
    b.check_constant((queries, keys), dtype)
    row = np.arange(queries, dtype=np.int64)[:, None]
    column = np.arange(keys, dtype=np.int64)[None, :]
    if not lengths:
        past = b.type(optional(node, 4)).shape[2] if optional(node, 4) else 0
        seen = [_within(column - row - past, low, high) for low, high in limits]
        return [b.constant(np.where(s, dtype.type(0), dtype.type(-np.inf))) for s in seen if not s.all()]
    count = view(b, convert(b, lengths, INT64), (b.type(lengths).size, 1, 1, 1))
    ahead = b.constant(column - row + queries)  # of the query's place, where no key is padding
    for low, high in limits:
        found.append(_blocked(b, _seen(b, ahead, count, low, high), dtype))
    found.append(_blocked(b, elementwise(b, less, b.constant(column), count), dtype))
    return found


def _limits(node: OnnxNode) -> list[tuple[int | None, int | None]]:
    """How many places a key may be before and behind its query, for each of the ways to say so."""
    left, right = (node.attrs.get(f"{side}_window_size", -1) for side in ("left", "right"))
    if min(left, right) < -1:
        raise ValueError(f"windows of {left} and {right} keys; -1 stands for all")
    limits: list[tuple[int | None, int | None]] = [(None, 0)] if node.attrs.get("is_causal", 0) else []
    if max(left, right) >= 0:
        limits.append((left if left >= 0 else None, right if right >= 0 else None))
    return limits


def _within(distance: np.ndarray, low: int | None, high: int | None) -> np.ndarray:
    seen = np.ones(distance.shape, bool)
    if low is not None:
        seen &= distance >= -low
    if high is not None:
        seen &= distance <= high
    return seen


def _seen(b: Builder, ahead: str, count: str, low: int | None, high: int | None) -> str:
    """`_within` for places that depend on how many keys are no padding."""

    def test(place: Expr, keys: Expr) -> Expr:
        distance = sub(place, keys)
        tests = [less_equal(distance, like(distance, high))] if high is not None else []
        if low is not None:
            tests.append(less_equal(like(distance, -low), distance))
        return tests[0] if len(tests) == 1 else apply("and", *tests)

    return elementwise(b, test, ahead, count)
