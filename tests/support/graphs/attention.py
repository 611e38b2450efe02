"""Attention over all positions of an image between convolutions, as exporters write it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from tests.support.graphs.onnx_models import model, node, tensor

F32 = np.float32
CHANNELS, HEADS = 8, 2
FORMS = ("latent diffusion", "non-local", "self-attention GAN", "BigGAN", "tokens", "keys in rows")
"""VAE's middle block; Wang et al. 2018; Zhang et al. 2018; with pooled keys and values; with heads and a group norm, as
Diffusers export it; the third with its scores the other way round."""


def attention_network(form: str, extents: Sequence[int], batch: int = 1, channels: int = CHANNELS) -> onnx.ModelProto:
    """x [batch, 3, H, W] ─ 3×3 convolution ─ attention and its residual ─ 3×3 convolution ─ y."""
    shapes = {
        "flat": (batch, channels, -1),
        "image": (batch, channels, *extents),
        "split": (batch, -1, HEADS, channels // HEADS),
        "joined": (batch, -1, channels),
    }
    values = {name: np.array(shape, np.int64) for name, shape in shapes.items()}
    values |= _weights(channels, (channels, channels) if form == "tokens" else (channels, channels, 1, 1))
    values["scale"] = np.array(channels**-0.5, F32)
    middle = _tokens() if form == "tokens" else _convolutions(form)
    nodes = [
        node("Conv", "x first", "a", pads=[1] * 4),
        *middle,
        node("Add", "o a", "b"),
        node("Conv", "b last", "y", pads=[1] * 4),
    ]
    return model(nodes, [tensor("x", (batch, 3, *extents))], opset=21, **values)


def _weights(channels: int, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {"first": (channels, 3, 3, 3), "last": (5, channels, 3, 3), **{f"w{name}": shape for name in "qkvo"}}
    found = {name: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(F32) for name, s in shapes.items()}
    return found | {"one": np.ones(channels, F32), "zero": np.zeros(channels, F32)}


def _convolutions(form: str) -> list[onnx.NodeProto]:
    """Queries, keys and values by pointwise convolutions; scores have a query in each row, or a key."""
    nodes, x = [], "a"
    if form == "latent diffusion":
        nodes, x = [node("GroupNormalization", "a one zero", "g", num_groups=2)], "g"
    for name in "qkv":
        nodes.append(node("Conv", f"{x} w{name}", f"{name}c"))
        image = f"{name}c"
        if form == "BigGAN" and name != "q":
            nodes.append(node("MaxPool", image, f"{name}p", kernel_shape=[2, 2], strides=[2, 2]))
            image = f"{name}p"
        nodes.append(node("Reshape", f"{image} flat", f"{name}f"))
    nodes += [node("Transpose", "qf", "qt", perm=[0, 2, 1]), node("MatMul", "qt kf", "s")]
    scores = "s"
    if form in ("latent diffusion", "non-local"):
        nodes.append(node("Mul", "s scale", "scaled"))
        scores = "scaled"
    nodes.append(node("Softmax", scores, "p", axis=1 if form == "keys in rows" else 2))
    if form == "keys in rows":
        nodes.append(node("MatMul", "vf p", "of"))
    elif form == "non-local":
        nodes += [node("Transpose", "vf", "vt", perm=[0, 2, 1]), node("MatMul", "p vt", "ot")]
        nodes += [node("Transpose", "ot", "of", perm=[0, 2, 1])]
    else:
        nodes += [node("Transpose", "p", "pt", perm=[0, 2, 1]), node("MatMul", "vf pt", "of")]
    return [*nodes, node("Reshape", "of image", "oi"), node("Conv", "oi wo", "o")]


def _tokens() -> list[onnx.NodeProto]:
    """Positions in rows, products for queries, keys and values, heads."""
    nodes = [
        node("Reshape", "a flat", "af"),
        node("GroupNormalization", "af one zero", "g", num_groups=2),
        node("Transpose", "g", "t", perm=[0, 2, 1]),
    ]
    for name in "qkv":
        nodes += [node("MatMul", f"t w{name}", f"{name}1"), node("Reshape", f"{name}1 split", f"{name}2")]
        nodes += [node("Transpose", f"{name}2", f"{name}3", perm=[0, 2, 1, 3])]
    return [
        *nodes,
        node("Transpose", "k3", "kt", perm=[0, 1, 3, 2]),
        node("Mul", "q3 scale", "qs"),
        node("MatMul", "qs kt", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p v3", "o1"),
        node("Transpose", "o1", "o2", perm=[0, 2, 1, 3]),
        node("Reshape", "o2 joined", "o3"),
        node("MatMul", "o3 wo", "o4"),
        node("Transpose", "o4", "o5", perm=[0, 2, 1]),
        node("Reshape", "o5 image", "o"),
    ]
