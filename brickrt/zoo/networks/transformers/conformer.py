"""Conformer (M), an encoder of speech: convolutions beside attention with relative positions. Tokens are [batch, frame,
WIDTH]; the operators are those that ESPnet's encoder is exported as."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import brickrt.zoo.tokens as layers
from brickrt.zoo.registry import Input, network

if TYPE_CHECKING:
    import numpy as np

    from brickrt.zoo.layers import Activation, Net

DEPTH = 16
WIDTH = 256
HEADS = 4
MLP_WIDTH = 4 * WIDTH
MELS = 80
KERNEL = 31  # the paper's 32 has no middle: implementations take one less
LONGEST = 5000  # tokens that there are positions for
# Variance of what ends a branch, beside the 1 that the norm behind each block gives the sum.
GAIN = 0.1


@network(
    name="conformer",
    title="Conformer (M)",
    source="Gulati et al., Conformer: Convolution-augmented Transformer for Speech Recognition, Interspeech 2020",
    default_size=(1000,),
    inputs=(Input("features", ("batch", "size", MELS)),),
)
def conformer(net: Net, x: Activation) -> Activation:
    """Hidden states of a quarter of the frames, which are of 80 features and commonly of 10 ms. Attention is with
    relative positions (Dai et al., Transformer-XL, 2019)."""
    net.require(minimum=16, maximum=4 * LONGEST)
    x = _subsampled(net, x)
    positions = _positions(net, x)
    for i in range(DEPTH):
        x = _block(net, x, f"blocks.{i}", positions)
    return x


def _subsampled(net: Net, x: Activation) -> Activation:
    """A token for every four frames, by two convolutions."""
    image = net.node("Unsqueeze", "subsample.unsqueeze", x.name, net.shape(1))
    y = replace(x, name=image, channels=1, spatial=(*x.spatial, x.channels), last=False)
    y = net.relu(net.conv(y, "subsample.conv1", WIDTH, 3, stride=2, pad=0, rectified=False), "subsample.relu1")
    y = net.relu(net.conv(y, "subsample.conv2", WIDTH, 3, stride=2, pad=0), "subsample.relu2")
    frames, features = y.spatial
    tokens = net.node("Transpose", "subsample.transpose", y.name, perm=[0, 2, 1, 3])
    tokens = net.node("Reshape", "subsample.tokens", tokens, net.shape(0, -1, WIDTH * features))
    tokens = layers.dense(net, tokens, "subsample.out", WIDTH * features, WIDTH, 1 / WIDTH, rectified=True)
    tokens = net.node("Mul", "subsample.scale", tokens, net.scalar(WIDTH**0.5))
    return replace(x, name=tokens, channels=WIDTH, spatial=(frames,))


def _positions(net: Net, x: Activation) -> str:
    """Sines and cosines of all distances of two tokens, from the longest ahead to the longest behind."""
    frames = net.extent(x.name, 1, x.spatial[0])
    if isinstance(frames, int):
        return net.weight("positions", _sinusoids(frames))
    first = net.node("Sub", "positions.first", net.shape(LONGEST), frames)
    last = net.node("Add", "positions.last", net.shape(LONGEST - 1), frames)
    return net.node("Slice", "positions", net.weight("positions.all", _sinusoids(LONGEST)), first, last, net.shape(1))


def _sinusoids(tokens: int) -> np.ndarray:
    """float32 [1, 2 tokens - 1, WIDTH]"""
    import numpy as np  # here, so that listing networks does not load it

    distance = np.arange(tokens - 1, -tokens, -1.0)
    angles = distance[:, None] * 10000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(1, -1, WIDTH).astype(np.float32)


def _block(net: Net, x: Activation, name: str, positions: str) -> Activation:
    """Half a feed-forward layer, attention, convolution, and the other half."""
    x = _half_step(net, x, f"{name}.ffn1")
    y = layers.layer_norm(net, x.name, f"{name}.attn.norm", WIDTH)
    x = x.like(net.node("Add", f"{name}.attn.add", x.name, _attention(net, x.like(y), f"{name}.attn", positions)))
    y = layers.layer_norm(net, x.name, f"{name}.conv.norm", WIDTH)
    x = x.like(net.node("Add", f"{name}.conv.add", x.name, _convolution(net, x.like(y), f"{name}.conv")))
    x = _half_step(net, x, f"{name}.ffn2")
    return x.like(layers.layer_norm(net, x.name, f"{name}.norm", WIDTH))


def _half_step(net: Net, x: Activation, name: str) -> Activation:
    y = layers.dense(net, layers.layer_norm(net, x.name, f"{name}.norm", WIDTH), f"{name}.fc1", WIDTH, MLP_WIDTH)
    y = layers.dense(net, layers.silu(net, y, f"{name}.silu"), f"{name}.fc2", MLP_WIDTH, WIDTH, 4 * GAIN)
    y = net.node("Mul", f"{name}.half", y, net.scalar(0.5))
    return x.like(net.node("Add", f"{name}.add", x.name, y))


def _convolution(net: Net, x: Activation, name: str) -> str:
    """A gated linear unit, and a depthwise convolution along time."""
    y = replace(x, name=net.node("Transpose", f"{name}.rows", x.name, perm=[0, 2, 1]), last=False)
    y = net.conv(y, f"{name}.in", 2 * WIDTH, 1, rectified=False)
    value, gate = net.node_many("Split", f"{name}.split", [y.name], [f"{name}.value", f"{name}.gate"], axis=1)
    gate = net.node("Sigmoid", f"{name}.sigmoid", gate)
    y = replace(y, name=net.node("Mul", f"{name}.glu", value, gate), channels=WIDTH)
    y = net.conv(y, f"{name}.depthwise", WIDTH, KERNEL, groups=WIDTH, rectified=False, gain=3)
    y = net.batch_norm(y, f"{name}.bn")
    y = net.conv(y.like(layers.silu(net, y.name, f"{name}.silu")), f"{name}.out", WIDTH, 1, gain=GAIN)
    return net.node("Transpose", f"{name}.tokens", y.name, perm=[0, 2, 1])


def _attention(net: Net, x: Activation, name: str, positions: str) -> str:
    """Scores are of what a token and another hold, and of what it holds and how far apart they are."""
    part, perm = WIDTH // HEADS, [0, 2, 1, 3]
    query = layers.dense(net, x.name, f"{name}.query", WIDTH, WIDTH)
    query = net.node("Reshape", f"{name}.query.split", query, net.shape(0, 0, HEADS, part))
    key = layers.heads(net, x.name, f"{name}.key", WIDTH, HEADS, [0, 2, 3, 1])
    value = layers.heads(net, x.name, f"{name}.value", WIDTH, HEADS, perm)
    place = layers.dense(net, positions, f"{name}.place", WIDTH, WIDTH, bias=False)
    place = net.node("Reshape", f"{name}.place.split", place, net.shape(0, 0, HEADS, part))
    place = net.node("Transpose", f"{name}.place.heads", place, perm=[0, 2, 3, 1])
    scores = []
    for what, other in (("content", key), ("distance", place)):
        biased = net.node("Add", f"{name}.{what}.add", query, net.parameter(f"{name}.{what}.bias", (HEADS, part), 0.3))
        biased = net.node("Transpose", f"{name}.{what}.heads", biased, perm=perm)
        scores.append(net.node("MatMul", f"{name}.{what}", biased, other))
    score = net.node("Add", f"{name}.scores", scores[0], _shifted(net, x, scores[1], f"{name}.shift"))
    score = net.node("Div", f"{name}.scale", score, net.scalar(part**0.5))
    y = net.node("MatMul", f"{name}.mix", net.node("Softmax", f"{name}.softmax", score, axis=-1), value)
    return layers.dense(net, layers.merged(net, y, name, WIDTH), f"{name}.out", WIDTH, WIDTH, GAIN)


def _shifted(net: Net, x: Activation, scores: str, name: str) -> str:
    """[batch, head, query, distance] to [batch, head, query, key], by shifting each row by one more."""
    batch, frames = net.extent(x.name, 0, net.batch), net.extent(x.name, 1, x.spatial[0])
    column = net.extents(f"{name}.column", batch, HEADS, frames, 1)
    zeros = net.node("Expand", f"{name}.zeros", net.scalar(0.0), column)
    y = net.node("Concat", f"{name}.concat", zeros, scores, axis=-1)
    y = net.node("Reshape", f"{name}.turned", y, net.extents(f"{name}.columns", 0, HEADS, -1, frames))
    y = net.node("Slice", f"{name}.rest", y, net.shape(1), net.shape(2**63 - 1), net.shape(2))
    y = net.node("Reshape", f"{name}.rows", y, net.extents(f"{name}.back", 0, HEADS, frames, -1))
    return net.node("Slice", name, y, net.shape(0), net.extents(f"{name}.end", frames), net.shape(3))
