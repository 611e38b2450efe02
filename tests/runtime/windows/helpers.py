"""Small networks that take windows of any size, and blended windows as NumPy has them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray


def layers(
    axes: int = 2,
    channels: int = 2,
    classes: int = 3,
    up: bool = False,
    down: bool = False,
    batch: int | str = "n",
    edge: int | None = None,
) -> bytes:
    """x [batch, channels, …] → Conv 3 → Relu → Conv 3 → y [batch, classes, …], whose last layer is a transposed one of
    stride 2 with `up`, and has stride 2 with `down`; extents are open, or `edge`."""
    rng = np.random.default_rng(3)
    kernels = {"v": (4, channels, *(3,) * axes), "w": ((4, classes) if up else (classes, 4)) + (2 if up else 3,) * axes}
    weights = [
        numpy_helper.from_array((0.3 * rng.standard_normal(shape)).astype(np.float32), name)
        for name, shape in kernels.items()
    ]
    last = {"strides": [2] * axes} if up or down else {}
    pads = {} if up else {"pads": [1] * 2 * axes}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"], pads=[1] * 2 * axes),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("ConvTranspose" if up else "Conv", ["r", "w"], ["y"], **last, **pads),
    ]
    space = tuple(edge or name for name in "dhw"[3 - axes :])
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, channels, *space)),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, (batch, classes, *(None,) * axes)),
    ]
    graph = helper.make_graph(nodes, "windows", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def image(*extents: int, channels: int = 2, images: int = 1) -> Array:
    return np.random.default_rng(1).standard_normal((images, channels, *extents)).astype(np.float32)


def blended(given: Array, network: Callable[[Array], Array], window: tuple[int, ...], overlap: float, blend: str):
    """What blended windows are: all windows of the padded image, weighted, over the sum of the weights, in float64."""
    space = given.shape[2:]
    short = [max(0, w - extent) for w, extent in zip(window, space)]
    padded = np.pad(given, [(0, 0), (0, 0), *((n // 2, n - n // 2) for n in short)])
    sums = shares = None
    for at in product(*map(begins, padded.shape[2:], window, [overlap] * len(window))):
        box = tuple(slice(a, a + w) for a, w in zip(at, window))
        result = network(np.ascontiguousarray(padded[(..., *box)])).astype(np.float64)
        ratio = [out / w for out, w in zip(result.shape[2:], window)]
        if sums is None:
            whole = [int(n * r) for n, r in zip(padded.shape[2:], ratio)]
            sums, shares = np.zeros((*result.shape[:2], *whole)), np.zeros(whole)
        place = tuple(slice(int(a * r), int(a * r) + n) for a, r, n in zip(at, ratio, result.shape[2:]))
        weight = stretched(weights(window, blend), result.shape[2:])
        sums[(..., *place)] += weight * result
        shares[place] += weight
    kept = (slice(int(n // 2 * r), int((n // 2 + e) * r)) for n, e, r in zip(short, space, ratio))
    return (sums / shares)[(..., *kept)]


def begins(image: int, window: int, overlap: float) -> list[int]:
    step = max(1, int(window * (1 - overlap)))
    found = [0]
    while found[-1] + window < image:
        found.append(min(found[-1] + step, image - window))
    return found


def weights(window: tuple[int, ...], blend: str) -> Array:
    if blend == "constant":
        return np.ones(window)
    away = np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in window), indexing="ij")
    found = np.exp(-sum(at**2 / (2 * (n / 8) ** 2) for at, n in zip(away, window)))
    return np.maximum(found, max(1e-3, found.min()))


def stretched(weight: Array, extents: tuple[int, ...]) -> Array:
    for axis, n in enumerate(extents):
        weight = weight.take(np.arange(n) * weight.shape[axis] // n, axis)
    return weight
