"""Attention with its projections, beside NumPy in float64 and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.contrib.contributed import check_contributed, some

RNG = np.random.default_rng(10)
BATCH, ROWS, WIDTH, HEADS, EARLIER = 2, 5, 12, 3, 4


def floats(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def by_heads(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3).astype(np.float64)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | float) -> np.ndarray:
    """softmax(q kᵀ / √features + bias) v, with the heads side by side again."""
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]) + bias
    e = np.exp(scores - scores.max(-1, keepdims=True))
    y = (e / e.sum(-1, keepdims=True)) @ v
    return y.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1)


def masks(keys: int) -> dict[str, np.ndarray | None]:
    raw = np.ones((BATCH, keys), np.int32)
    raw[1, 3:] = 0
    each = np.ones((BATCH, ROWS, keys), np.int32)
    each[0, 2, :2] = 0
    return {"none": None, "keys": raw, "rows": each, "lengths": np.array([keys, 3], np.int32)}


def masked(mask: np.ndarray | None, keys: int) -> np.ndarray | float:
    """-10000 for what a mask leaves out."""
    if mask is None:
        return 0.0
    if mask.ndim == 1:
        mask = np.arange(keys) < mask[:, None]
    return np.where(mask > 0, 0, -10000.0).reshape(BATCH, 1, -1, keys)


def causal(keys: int) -> np.ndarray:
    return np.where(np.arange(keys) > np.arange(ROWS)[:, None] + keys - ROWS, -1e30, 0)


@pytest.mark.parametrize("mask", masks(1))
@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("past", [False, True])
def test_self_attention(mask, unidirectional, past):
    """Keys and values are an output too, behind those of earlier calls."""
    keys = ROWS + EARLIER * past
    given = masks(keys)[mask]

    def want(x, w, b, m, earlier=None):
        q, k, v = (by_heads(part) for part in np.split(x @ w + b, 3, 2))
        if earlier is not None:
            k, v = (np.concatenate([e, n], 2) for e, n in zip(earlier, (k, v)))
        bias = masked(m, keys) + (causal(keys) if unidirectional else 0)
        return attended(q, k, v, bias), np.stack([k, v])

    operands = [floats(BATCH, ROWS, WIDTH), floats(WIDTH, 3 * WIDTH), floats(3 * WIDTH), given]
    operands += [floats(2, BATCH, HEADS, EARLIER, WIDTH // HEADS)] if past else []
    free = [0, *([3] if given is not None else []), *([4] if past else [])]
    how = {"num_heads": HEADS, "unidirectional": unidirectional}
    check_contributed("Attention", operands, want, free=free, outputs=2, **how)


def test_values_of_another_size_and_a_bias():
    def want(x, w, b, m, p, bias):
        q, k, v = (by_heads(part) for part in np.split(x @ w + b, [WIDTH, 2 * WIDTH], 2))
        return attended(q, k, v, bias)

    operands = [floats(BATCH, ROWS, WIDTH), floats(WIDTH, 2 * WIDTH + 6), floats(2 * WIDTH + 6), None, None]
    operands += [floats(BATCH, HEADS, ROWS, ROWS)]
    how = {"num_heads": HEADS, "qkv_hidden_sizes": [WIDTH, WIDTH, 6]}
    check_contributed("Attention", operands, want, free=(0, 5), **how)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", ["none", "keys", "lengths"])
def test_queries_over_other_keys(bias, mask):
    keys, given = 7, masks(7)[mask]

    def want(q, k, v, b=None, m=None, a=None):
        parts = (0, 0, 0) if b is None else np.split(b, 3)
        q, k, v = (by_heads(x + part) for x, part in zip((q, k, v), parts))
        return attended(q, k, v, masked(m, keys) + (0 if a is None else a))

    operands = [floats(BATCH, ROWS, WIDTH), floats(BATCH, keys, WIDTH), floats(BATCH, keys, WIDTH)]
    operands += [floats(3 * WIDTH) if bias else None, given, floats(1, HEADS, ROWS, keys) if bias else None]
    free = [0, 1, 2, *([4] if given is not None else [])]
    check_contributed("MultiHeadAttention", operands, want, free=free, num_heads=HEADS)


def test_keys_of_earlier_calls():
    """Three outputs: the result, all keys, all values."""

    def want(q, k, v, b, m, a, past_k, past_v):
        k, v = (np.concatenate([p, by_heads(x)], 2) for p, x in ((past_k, k), (past_v, v)))
        return attended(by_heads(q), k, v, 0), k, v

    earlier = (BATCH, HEADS, EARLIER, WIDTH // HEADS)
    operands = [*(floats(BATCH, ROWS, WIDTH) for _ in range(3)), None, None, None, floats(*earlier), floats(*earlier)]
    check_contributed("MultiHeadAttention", operands, want, free=(0, 1, 2, 6, 7), outputs=3, num_heads=HEADS)


def test_keys_that_lie_by_heads():
    want = lambda q, k, v: attended(by_heads(q), k, v, 0)  # noqa: E731
    by = (BATCH, HEADS, 7, WIDTH // HEADS)
    operands = [floats(BATCH, ROWS, WIDTH), floats(*by), floats(*by)]
    check_contributed("MultiHeadAttention", operands, want, free=(0, 1, 2), num_heads=HEADS)


@pytest.mark.parametrize("mask", ["none", "keys"])
def test_projections_of_bytes(mask):
    given = masks(ROWS)[mask]
    steps = RNG.uniform(0.002, 0.006, 3 * WIDTH).astype(np.float32)

    def want(x, w, b, sx, sw, m, zx, zw):
        centered = (x.astype(np.float64) - zx) * sx @ (w.astype(np.float64) * sw)
        q, k, v = (by_heads(part) for part in np.split(centered + b, 3, 2))
        return attended(q, k, v, masked(m, ROWS))

    operands = [some((BATCH, ROWS, WIDTH), np.uint8), some((WIDTH, 3 * WIDTH), np.int8, 1), floats(3 * WIDTH)]
    operands += [np.float32(0.02).reshape(()), steps, given, np.array(120, np.uint8), np.zeros(3 * WIDTH, np.int8)]
    free = (0, 5) if given is not None else (0,)
    check_contributed("QAttention", operands, want, free=free, num_heads=HEADS)
