"""Attention of grouped heads over the keys of earlier calls, beside loops in NumPy and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt import BrickError, Runtime
from tests.support.contrib.contributed import check_contributed, contributed_model

RNG = np.random.default_rng(3)
HEADS, SHARED, SIZE, EARLIER = 4, 2, 32, 6


def floats(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def angles(turned: int) -> list[np.ndarray]:
    x = np.arange(32)[:, None] / 10 ** (np.arange(turned // 2) / turned)
    return [np.cos(x).astype(np.float32), np.sin(x).astype(np.float32)]


def turn(x: np.ndarray, place: int, cos: np.ndarray, sin: np.ndarray, neighbours: bool) -> np.ndarray:
    """One head at one place."""
    y, half = x.copy(), cos.shape[1]
    first, second = (
        (range(0, 2 * half, 2), range(1, 2 * half, 2)) if neighbours else (range(half), range(half, 2 * half))
    )
    for n, (i, j) in enumerate(zip(first, second)):
        y[i] = x[i] * cos[place, n] - x[j] * sin[place, n]
        y[j] = x[j] * cos[place, n] + x[i] * sin[place, n]
    return y


def definition(operands, *, window=-1, cap=0.0, rotary=None, smooth=False):
    """The result, and keys and values of all places, sequence by sequence, row by row, head by head."""
    q, k, v, past_k, past_v, last, _, cos, sin, places, bias, sink = [*operands, *[None] * 12][:12]
    if k is None:
        q, k, v = np.split(q, [HEADS * SIZE, (HEADS + SHARED) * SIZE], 2)
    batch, rows = q.shape[:2]
    earlier = 0 if past_k is None else past_k.shape[2]
    y = np.zeros((batch, rows, HEADS * SIZE))
    keys, values = (np.zeros((batch, SHARED, earlier + rows, SIZE)) for _ in range(2))
    for n in range(batch):
        begun = int(last[n]) + 1 - rows if earlier else 0
        for s in range(SHARED):
            part = slice(s * SIZE, s * SIZE + SIZE)
            if earlier:
                keys[n, s, :begun], values[n, s, :begun] = past_k[n, s, :begun], past_v[n, s, :begun]
            for i in range(rows):
                at = begun + i if places is None else places[n, i]
                row = k[n, i, part].astype(float)
                keys[n, s, begun + i] = row if rotary is None else turn(row, at, cos, sin, rotary)
                values[n, s, begun + i] = v[n, i, part]
        for h in range(HEADS):
            for i in range(rows):
                at, row = begun + i, q[n, i, h * SIZE : (h + 1) * SIZE].astype(float)
                if rotary is not None:
                    row = turn(row, at if places is None else places[n, i], cos, sin, rotary)
                seen = range(0 if window < 0 else max(0, at + 1 - window), at + 1)
                shared = h // (HEADS // SHARED)
                scores = keys[n, shared, seen] @ row / np.sqrt(SIZE)
                scores = cap * np.tanh(scores / cap) if cap else scores
                scores = scores if bias is None else scores + bias[n % len(bias), h % bias.shape[1], i, seen]
                e = np.exp(scores)
                beside = np.exp(sink[h]) if sink is not None else float(smooth)
                y[n, i, h * SIZE : (h + 1) * SIZE] = e @ values[n, shared, seen] / (e.sum() + beside)
    return y, keys, values


def operands(batch, rows, *, earlier=0, last=None, packed=False, tables=(None, None), others=()):
    width = (HEADS + 2 * SHARED) * SIZE if packed else HEADS * SIZE
    q = floats(batch, rows, width)
    k, v = (None if packed else floats(batch, rows, SHARED * SIZE) for _ in range(2))
    past = [floats(batch, SHARED, earlier, SIZE) if earlier else None for _ in range(2)]
    last = np.array(last or [earlier + rows - 1] * batch, np.int32)
    return [q, k, v, *past, last, np.array(earlier + rows, np.int32), *tables, *others]


CASES = {
    "first call": (operands(2, 5), {}),
    "rows behind others": (operands(1, 3, earlier=EARLIER), {}),
    "sequences that began at other times": (operands(2, 1, earlier=EARLIER, last=[EARLIER, 3]), {}),
    "turned": (operands(2, 5, tables=angles(SIZE)), {"rotary": False}),
    "turned by neighbours, packed": (operands(2, 5, packed=True, tables=angles(SIZE)), {"rotary": True}),
    "turned in part": (operands(1, 2, earlier=EARLIER, tables=angles(SIZE // 2)), {"rotary": False}),
    "turned, other times": (
        operands(2, 1, earlier=EARLIER, last=[4, EARLIER], tables=angles(SIZE)),
        {"rotary": False},
    ),
    "a window": (operands(1, 5, earlier=EARLIER), {"window": 3}),
    "capped": (operands(2, 4), {"cap": 0.3}),
    "smooth": (operands(2, 4), {"smooth": True}),
    "a bias": (operands(2, 4, others=(None, floats(1, HEADS, 4, 4))), {}),
    "one bias": (operands(2, 4, others=(None, floats(2, 1, 4, 4))), {}),
    "sinks": (operands(2, 4, others=(None, None, floats(HEADS))), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_as_defined(name):
    given, how = CASES[name]
    free = [k for k, x in enumerate(given[:6]) if x is not None]
    attributes = {"local_window_size": how.get("window", -1), "softcap": how.get("cap", 0.0)}
    attributes |= {"smooth_softmax": int(how.get("smooth", False)), "do_rotary": int("rotary" in how)}
    attributes |= {"rotary_interleaved": int(how.get("rotary", False)), "num_heads": HEADS, "kv_num_heads": SHARED}

    def want(*_):
        return definition(given, **how)

    runtime = check_contributed("GroupQueryAttention", given, want, free=free, outputs=3, **attributes)
    assert len(runtime.stats.host_nodes) <= (2 if "rotary" in how else 0)  # rows of the tables of angles


@pytest.mark.parametrize(
    ("attributes", "message"),
    [({"num_heads": 3}, "do not fit"), ({"qk_output": 1}, "qk_output"), ({"k_quant_type": "PER_TENSOR"}, "k_quant")],
)
def test_what_has_no_kernels_is_refused(attributes, message):
    how = {"num_heads": HEADS, "kv_num_heads": SHARED, **attributes}
    given = operands(1, 2)
    model, feeds = contributed_model("GroupQueryAttention", given, (0, 1, 2, 5), 3, **how)
    with pytest.raises(BrickError, match=message):
        Runtime(model, device="cpu").execute(feeds)
