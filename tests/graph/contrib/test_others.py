"""Rotary embeddings, tables of bytes, and operators that are standard by now, beside NumPy and ONNX Runtime."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from brickrt import Runtime
from brickrt.graph.contrib.body import contributed
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from tests.support.contrib.contributed import check_contributed, contributed_model, dequantize, some

RNG = np.random.default_rng(12)
BATCH, ROWS, HEADS, SIZE = 2, 5, 3, 8


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: int) -> np.ndarray:
    """Pairs of features [batch, heads, rows, features], turned; those beyond the tables stay."""
    count = cos.shape[-1]
    first, second = (x[..., 0 : 2 * count : 2], x[..., 1 : 2 * count : 2]) if interleaved else (
        x[..., :count], x[..., count : 2 * count])  # fmt: skip
    y = x.astype(np.float64)
    both = first * cos - second * sin, second * cos + first * sin
    for at, part in enumerate(both):
        y[..., slice(at, 2 * count, 2) if interleaved else slice(at * count, (at + 1) * count)] = part
    return y


# half of all combinations, in which any three of the four occur in all ways
@pytest.mark.parametrize(
    ("interleaved", "places", "by_heads", "part"),
    [(a, ("each", "first")[b], bool(c), bool(a ^ b ^ c)) for a, b, c in product((0, 1), repeat=3)],
)
def test_rotary_embeddings(interleaved, places, by_heads, part):
    count = SIZE // 4 if part else SIZE // 2
    angles = np.outer(np.arange(20), 1 / 3.0 ** np.arange(count))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    at = RNG.integers(0, 20, (BATCH, ROWS)) if places == "each" else np.array([4])

    def want(x, at, cos, sin):
        rows = at if at.size > 1 else at + np.arange(ROWS)[None]
        heads = x if by_heads else x.reshape(BATCH, ROWS, HEADS, SIZE).transpose(0, 2, 1, 3)
        y = turned(heads, cos[rows][:, None], sin[rows][:, None], interleaved)
        return y if by_heads else y.transpose(0, 2, 1, 3).reshape(x.shape)

    x = floats(BATCH, HEADS, ROWS, SIZE) if by_heads else floats(BATCH, ROWS, HEADS * SIZE)
    how = {"num_heads": HEADS, "rotary_embedding_dim": 2 * count} if part else {}
    operands = [x, at.astype(np.int64), cos, sin]
    check_contributed("RotaryEmbedding", operands, want, free=(0, 1), interleaved=interleaved, **how)


def test_embeddings_of_bytes():
    tables = [some((9, 16), np.uint8, 1), some((7, 16), np.uint8, 2), some((2, 16), np.uint8, 3)]
    tables += [some((16,), np.uint8, 4), some((16,), np.uint8, 5)]
    steps = [np.float32(v).reshape(()) for v in (0.01, 0.02, 0.03, 0.011, 0.007)]
    zeros = [np.array(v, np.uint8) for v in (120, 130, 110, 60, 128)]
    ids = [RNG.integers(0, 9, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)]
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)

    def want(*given):
        words, at, of, g, b = (dequantize(*each) for each in zip(tables, steps, zeros))
        total = words[ids[0]] + at[:5] + of[ids[1]]
        centered = total - total.mean(-1, keepdims=True)
        y = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12) * g + b
        return y, mask.sum(1).astype(np.int32)

    operands = [*ids, *tables, mask, *steps, *zeros]
    check_contributed("QEmbedLayerNormalization", operands, want, free=(0, 1, 7), outputs=2, epsilon=1e-12)


@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_tables_in_few_bits(zeros):
    table = RNG.integers(0, 16, (9, 32)).astype(ml_dtypes.uint4)
    steps = RNG.uniform(0.01, 0.1, (9, 2)).astype(np.float32)
    points = RNG.integers(0, 16, (9, 2)).astype(ml_dtypes.uint4) if zeros else None

    def want(q, ids, steps, points=None):
        shift = 0 if points is None else np.repeat(points.astype(np.float64), 16, 1)
        return ((q.astype(np.float64) - shift) * np.repeat(steps, 16, 1))[ids]

    operands = [table, RNG.integers(0, 9, (2, 3)), steps, points]
    check_contributed("GatherBlockQuantized", operands, want, free=(1,), block_size=16, quantize_axis=1)


def test_norms_of_groups_of_sums():
    """ONNX Runtime has no kernel for them on a CPU."""

    def want(x, g, b, skip, bias):
        total = x + skip[:, None, None] + bias
        parted = total.reshape(2, 15, 4, 2).transpose(0, 2, 1, 3).reshape(2, 4, -1)
        centered = parted - parted.mean(-1, keepdims=True)
        y = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
        return y.reshape(2, 4, 15, 2).transpose(0, 2, 1, 3).reshape(x.shape) * g + b, total

    operands = [floats(2, 5, 3, 8), floats(8), floats(8), floats(2, 8), floats(8)]
    check_contributed("SkipGroupNorm", operands, want, outputs=2, theirs=False, groups=4, activation=0)


def test_products_through_an_activation():
    """ONNX Runtime has no kernel for them on a CPU."""
    want = lambda a, b: np.maximum(0.5 * a.T.astype(np.float64) @ b, 0)  # noqa: E731
    operands, how = [floats(6, 4), floats(6, 5)], {"transA": 1, "alpha": 0.5, "activation": "Relu"}
    check_contributed("FusedMatMulActivation", operands, want, free=(0, 1), theirs=False, **how)


@pytest.mark.parametrize(
    ("kind", "operands", "how", "want"),
    [
        ("Trilu", [floats(3, 4, 5), np.array(1, np.int64)], {"upper": 0}, lambda x, k: np.tril(x, 1)),
        ("ExpandDims", [floats(3, 4), np.array(1, np.int32)], {}, lambda x, k: x[:, None]),
        ("GatherND", [floats(3, 4, 5), np.array([[0, 1], [2, 3]])], {}, lambda x, i: x[i[:, 0], i[:, 1]]),
        (
            "Pad",
            [floats(3, 4), np.array([1, 0, 0, 2])],
            {"mode": "edge"},
            lambda x, p: np.pad(x, ((1, 0), (0, 2)), "edge"),
        ),
        ("Range", [np.float32(1), np.float32(4), np.float32(0.5)], {}, lambda *ends: np.arange(1, 4, 0.5)),
    ],
    ids=["Trilu", "ExpandDims", "GatherND", "Pad", "Range"],
)
def test_what_is_standard_by_now(kind, operands, how, want):
    check_contributed(kind, operands, want, **how)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_sampling(mode):
    grid = RNG.uniform(-1, 1, (2, 4, 5, 2)).astype(np.float32)
    operands, how = [floats(2, 3, 6, 7), grid], {"mode": mode, "align_corners": 1, "padding_mode": "border"}
    check_contributed("GridSample", operands, None, free=(0, 1), **how)


def test_what_is_left_out_or_makes_no_sense_is_named():
    """In one line, with the node's name."""
    cases = [
        ("QLinearAdd", [some((3,), np.uint8), None], {}, ["input 1", "QLinearAdd", "'n'"]),
        ("QLinearSoftmax", [some((3,), np.uint8), *[np.float32(1)] * 2, np.float32(1)], {}, ["opset", "'n'"]),
        ("FusedConv", [floats(1, 1, 4, 4), floats(1, 1, 1, 1)], {"activation": "Nope"}, ["Nope", "'n'"]),
        ("MatMulNBits", [floats(2, 16), some((4, 1, 8), np.uint8), floats(4)], {"K": 16, "N": 4}, ["block_size"]),
        ("MatMulNBits", [None, some((4, 1, 8), np.uint8), floats(4)], {"K": 16, "N": 4, "block_size": 16}, ["input 0"]),
        ("NhwcMaxPool", [some((1, 4, 4, 2), np.uint8)], {}, ["kernel_shape", "'n'"]),
        ("FusedConv", [floats(1, 1, 4, 4), floats(1, 1, 1, 1)], {"pads": 1}, ["pads", "'n'"]),
        (
            "GroupNorm",
            [floats(8), floats(8), floats(8)],
            {"groups": 2, "activation": 0, "channels_last": 0},
            ["channels"],
        ),
        ("QLinearConcat", [*[np.float32(1)] * 5], {"axis": 2**40}, ["axis"]),
        ("Attention", [floats(1, 2, 4), floats(4, 12)], {"num_heads": 3}, ["4 features", "3"]),
    ]
    for kind, operands, how, words in cases:
        model, feeds = contributed_model(kind, operands, [] if operands[0] is None else [0], **how)
        with pytest.raises(BrickError) as caught:
            Runtime(model, device="cpu", threads=1).execute(feeds)
        assert "\n" not in str(caught.value) and all(word in str(caught.value) for word in words), str(caught.value)


def test_every_definition_has_a_test():
    """Their names are in these files."""
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in sorted(contributed()) if f'"{name}"' not in text] == []
    assert load(contributed_model("Gelu", [floats(3)])[0]).nodes[0].domain == "com.microsoft"
