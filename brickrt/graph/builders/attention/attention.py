"""The Attention operator, as the subgraph that exporters write out for older opsets: passes and kernels know that.

    q ─ MatMul kᵀ ─ scale ─ cap ─ + bias ─ softmax ─ MatMul v ─

Query heads that share a head of keys and values are an axis of their own, along which these broadcast, uncopied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.arithmetic.matrix import product
from brickrt.graph.builders.arithmetic.softmax import masked_softmax
from brickrt.graph.builders.attention.bias import attention_bias
from brickrt.graph.builders.common import convert, elementwise, optional, transpose, uses, view, wide
from brickrt.graph.builders.scalar import F64, add, div, like, mul, tanh, wide_type
from brickrt.graph.errors import Unsupported
from brickrt.ops.operators.move import Concat

DOUBLE, FLOAT = 11, 1
"""Element types of ONNX in which a softmax may be asked for."""


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values, each [batch, heads, sequence, features]."""

    q: str
    k: str
    v: str


@builds("Attention")
def attention(b: Builder, node: OnnxNode) -> tuple[str, ...]:
    """softmax(q kᵀ · scale + bias) v per head; all keys and values, and the scores where somebody reads them."""
    dtype, rank = b.type(node.inputs[0]).dtype, b.type(node.inputs[0]).rank
    heads = _with_past(b, node, _heads(b, node))
    batch, count, rows, _ = b.type(heads.q).shape
    keys, features = b.type(heads.v).shape[2:]
    bias = attention_bias(b, node, rows, keys)
    grouped = _grouped(b, heads)
    scores = _scores(b, node, grouped, _in_groups(b, bias.tensor, heads))
    weights = _weights(b, node, scores[-1], _in_groups(b, bias.masked, heads))
    result = view(b, convert(b, product(b, weights, grouped.v), dtype), (batch, count, rows, features))
    if rank == 3:
        result = view(b, transpose(b, result, (0, 2, 1, 3)), (batch, rows, count * features))
    shown = ""
    if uses(b, node, 3):
        wanted = (*scores, weights)[node.attrs.get("qk_matmul_output_mode", 0)]
        shown = view(b, convert(b, wanted, dtype), (batch, count, rows, keys))
    return (result, heads.k, heads.v, shown)[: len(node.outputs)]


def _heads(b: Builder, node: OnnxNode) -> Heads:
    """The three operands by heads, which tensors of rank 3 have side by side in their rows."""
    names = node.inputs[:3]
    if len({b.type(name).rank for name in names}) > 1 or b.type(names[0]).rank not in (3, 4):
        raise ValueError("queries, keys and values must all be of rank 3 or 4")
    if b.type(names[0]).rank == 3:
        counts = [node.attrs.get(key, 0) for key in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
        names = tuple(_split(b, name, count) for name, count in zip(names, counts, strict=True))
    q, k, v = (b.type(name).shape for name in names)
    if k[:3] != v[:3] or q[0] != k[0] or q[3] != k[3] or not k[1] or q[1] % k[1]:
        raise ValueError(f"queries {list(q)}, keys {list(k)} and values {list(v)} do not fit")
    return Heads(*names)


def _split(b: Builder, name: str, count: int) -> str:
    batch, rows, features = b.type(name).shape
    if count < 1 or features % count:
        raise ValueError(f"'{name}' with {features} features has no {count} equal heads")
    return transpose(b, view(b, name, (batch, rows, count, features // count)), (0, 2, 1, 3))


def _with_past(b: Builder, node: OnnxNode, heads: Heads) -> Heads:
    """With the keys and values of earlier calls in front."""
    past = optional(node, 4), optional(node, 5)
    if not all(past):
        if any(past):
            raise ValueError("past keys and past values must be given together")
        return heads
    k, v = (b.emit(Concat(2), before, now) for before, now in zip(past, (heads.k, heads.v), strict=True))
    return replace(heads, k=k, v=v)


def _grouped(b: Builder, heads: Heads) -> Heads:
    """The operands, wide, with an axis for the query heads that share keys and values, where there are several."""
    named = Heads(*(wide(b, name) for name in (heads.q, heads.k, heads.v)))
    if b.type(heads.q).shape[1] == b.type(heads.k).shape[1]:
        return named
    k, v = (view(b, name, (*b.type(name).shape[:2], 1, *b.type(name).shape[2:])) for name in (named.k, named.v))
    return Heads(_in_groups(b, named.q, heads), k, v)


def _in_groups(b: Builder, name: str, heads: Heads) -> str:
    """A tensor that goes with the queries, or is the same for some of their axes, with the axis of `_grouped`."""
    count, shared = b.type(heads.q).shape[1], b.type(heads.k).shape[1]
    if not name or count == shared or b.type(name).rank < 3:
        return name
    *batch, own, rows, columns = b.type(name).shape
    return view(b, name, (*batch, *((1, 1) if own == 1 else (shared, count // shared)), rows, columns))


def _scores(b: Builder, node: OnnxNode, heads: Heads, bias: str) -> tuple[str, str, str]:
    """How each query compares with each key: as multiplied, capped, and with the bias."""
    rank = b.type(heads.k).rank
    keys = transpose(b, heads.k, (*range(rank - 2), rank - 1, rank - 2))
    scale = node.attrs.get("scale", 1 / math.sqrt(b.type(heads.q).shape[-1] or 1))
    raw = elementwise(b, lambda x: mul(x, like(x, scale)), product(b, heads.q, keys))
    cap = node.attrs.get("softcap", 0.0)
    capped = elementwise(b, lambda x: mul(tanh(div(x, like(x, cap))), like(x, cap)), raw) if cap > 0 else raw
    return raw, capped, elementwise(b, add, capped, bias) if bias else capped


def _weights(b: Builder, node: OnnxNode, scores: str, masked: str) -> str:
    """The softmax of each row of scores; 0 in rows that are masked as a whole."""
    dtype, asked = b.type(scores).dtype, node.attrs.get("softmax_precision")
    own = b.type(node.inputs[0]).dtype
    if asked not in (None, FLOAT, DOUBLE) and wide_type(own) == own:
        raise Unsupported("a softmax in fewer bits than its operands")
    inner = convert(b, scores, F64) if asked == DOUBLE else scores
    axis = b.type(scores).rank - 1
    return convert(b, masked_softmax(b, inner, (axis,), masked), np.dtype(dtype))
