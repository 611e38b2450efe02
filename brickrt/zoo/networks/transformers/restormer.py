"""Restormer: image restoration by attention among channels and gated feed-forward layers, in a U shape."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brickrt.zoo.registry import network
from brickrt.zoo.tokens import gelu

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

HEADS = 1, 2, 4, 8  # by level, finest first
EXPANSION = 2.66
EPSILON = 1e-5
LEAST_LENGTH = 1e-12  # that is divided by
# Variance of what ends a branch. Attention takes means of about as many signals as a head has channels.
GAIN = 0.1
MIXED = 24


@network(
    name="restormer",
    title="Restormer",
    source="Zamir et al., Restormer: Efficient Transformer for High-Resolution Image Restoration, CVPR 2022",
    default_size=(256, 256),
)
def restormer(
    net: Net, x: Activation, width: int = 48, blocks: tuple[int, ...] = (4, 6, 6, 8), refinement: int = 4
) -> Activation:
    """The paper's network: `blocks` are those of each level, finest first, `refinement` those that end it. Sizes are
    multiples of 2 ** (levels - 1)."""
    levels = len(blocks)
    if not 1 <= levels <= len(HEADS) or width < 2 or width % 2:
        raise ValueError(f"restormer: {levels} levels of width {width}: use 1 to {len(HEADS)} and an even width")
    net.require(minimum=max(8, 2 ** (levels - 1)), multiple=2 ** (levels - 1))
    y = net.conv(x, "patch_embed", width, 3, rectified=False, bias=False)
    skips = []
    for i in range(levels - 1):
        skips.append(_blocks(net, y, f"encoder{i + 1}", blocks[i], HEADS[i]))
        y = _half(net, skips[-1], f"down{i + 1}")
    y = _blocks(net, y, "latent", blocks[-1], HEADS[levels - 1])
    for i in reversed(range(levels - 1)):
        y = net.concat([_double(net, y, f"up{i + 1}"), skips[i]], f"concat{i + 1}")
        if i:  # the finest level keeps the channels of both
            y = net.conv(y, f"reduce{i + 1}", y.channels // 2, 1, rectified=False, bias=False)
        y = _blocks(net, y, f"decoder{i + 1}", blocks[i], HEADS[i])
    y = _blocks(net, y, "refinement", refinement, HEADS[0])
    return net.add(net.conv(y, "output", x.channels, 3, rectified=False, bias=False), x, "add")


def _half(net: Net, x: Activation, name: str) -> Activation:
    """Half the resolution and twice the channels, by moving space into channels."""
    y = net.conv(x, name, x.channels // 2, 3, rectified=False, bias=False)
    high, wide = (net.extent(y.name, axis, y.spatial[axis - 2], over=2) for axis in (2, 3))
    rows = net.node("Reshape", f"{name}.split", y.name, net.extents(f"{name}.six", 0, y.channels, high, 2, wide, 2))
    rows = net.node("Transpose", f"{name}.transpose", rows, perm=[0, 1, 3, 5, 2, 4])
    image = net.node("Reshape", f"{name}.unshuffle", rows, net.extents(f"{name}.four", 0, 4 * y.channels, high, wide))
    return replace(x, name=image, channels=4 * y.channels, spatial=tuple(n // 2 for n in y.spatial))


def _double(net: Net, x: Activation, name: str) -> Activation:
    """Twice the resolution and half the channels, by moving channels into space."""
    y = net.conv(x, name, 2 * x.channels, 3, rectified=False, bias=False)
    image = net.node("DepthToSpace", f"{name}.shuffle", y.name, blocksize=2, mode="CRD")
    return replace(x, name=image, channels=x.channels // 2, spatial=tuple(2 * n for n in x.spatial))


def _blocks(net: Net, x: Activation, name: str, count: int, heads: int) -> Activation:
    for i in range(count):
        y = _attention(net, _layer_norm(net, x, f"{name}.{i}.norm1"), f"{name}.{i}.attn", heads)
        x = net.add(x, y, f"{name}.{i}.add1")
        y = _feed_forward(net, _layer_norm(net, x, f"{name}.{i}.norm2"), f"{name}.{i}.ffn")
        x = net.add(x, y, f"{name}.{i}.add2")
    return x


def _layer_norm(net: Net, x: Activation, name: str) -> Activation:
    """Normalization over the channels of each pixel, as tokens [batch, pixel, channel]."""
    tokens = net.node("Transpose", f"{name}.last", x.name, perm=[0, 2, 3, 1])
    tokens = net.node("Reshape", f"{name}.tokens", tokens, net.shape(0, -1, x.channels))
    mean = net.node("ReduceMean", f"{name}.mean", tokens, axes=[-1], keepdims=1)
    off = net.node("Sub", f"{name}.var.sub", tokens, net.node("ReduceMean", f"{name}.var.mean", tokens, axes=[-1]))
    variance = net.node("ReduceMean", f"{name}.var", net.node("Mul", f"{name}.var.mul", off, off), axes=[-1])
    deviation = net.node("Sqrt", f"{name}.sqrt", net.node("Add", f"{name}.eps", variance, net.scalar(EPSILON)))
    y = net.node("Div", f"{name}.div", net.node("Sub", f"{name}.sub", tokens, mean), deviation)
    y = net.node("Mul", f"{name}.mul", y, net.parameter(f"{name}.weight", (x.channels,), 0.1, 1.0))
    y = net.node("Add", f"{name}.add", y, net.parameter(f"{name}.bias", (x.channels,), 0.1))
    high, wide = (net.extent(x.name, axis, x.spatial[axis - 2]) for axis in (2, 3))
    y = net.node("Reshape", f"{name}.rows", y, net.extents(f"{name}.shape", 0, high, wide, x.channels))
    return x.like(net.node("Transpose", f"{name}.first", y, perm=[0, 3, 1, 2]))


def _attention(net: Net, x: Activation, name: str, heads: int) -> Activation:
    """Channels of a head attend to each other, by how their images agree over all pixels."""
    y = net.conv(x, f"{name}.qkv", 3 * x.channels, 1, rectified=False, bias=False)
    y = net.conv(y, f"{name}.depthwise", y.channels, 3, groups=y.channels, rectified=False, bias=False)
    parts = net.node_many("Split", f"{name}.split", [y.name], [f"{name}.{part}" for part in "qkv"], axis=1)
    shape = net.shape(0, heads, x.channels // heads, -1)
    query, key, value = (net.node("Reshape", f"{part}.heads", part, shape) for part in parts)
    query, key = _unit_length(net, query, f"{name}.q.unit"), _unit_length(net, key, f"{name}.k.unit")
    key = net.node("Transpose", f"{name}.k.transpose", key, perm=[0, 1, 3, 2])
    scores = net.node("MatMul", f"{name}.scores", query, key)
    scores = net.node("Mul", f"{name}.scale", scores, net.parameter(f"{name}.temperature", (heads, 1, 1), 0.5, 4.0))
    z = net.node("MatMul", f"{name}.mix", net.node("Softmax", f"{name}.softmax", scores, axis=-1), value)
    high, wide = (net.extent(x.name, axis, x.spatial[axis - 2]) for axis in (2, 3))
    z = net.node("Reshape", f"{name}.merge", z, net.extents(f"{name}.shape", 0, x.channels, high, wide))
    return net.conv(x.like(z), f"{name}.project", x.channels, 1, rectified=False, bias=False, gain=GAIN * MIXED)


def _unit_length(net: Net, x: str, name: str) -> str:
    """Vectors along the last axis, divided by their lengths."""
    length = net.node("ReduceL2", f"{name}.length", x, axes=[-1], keepdims=1)
    length = net.node("Clip", f"{name}.clip", length, net.scalar(LEAST_LENGTH))
    length = net.node("Expand", f"{name}.expand", length, net.node("Shape", f"{name}.shape", x))
    return net.node("Div", name, x, length)


def _feed_forward(net: Net, x: Activation, name: str) -> Activation:
    """GELU of half the channels, times the other half."""
    hidden = int(EXPANSION * x.channels)
    y = net.conv(x, f"{name}.in", 2 * hidden, 1, rectified=False, bias=False)
    y = net.conv(y, f"{name}.depthwise", 2 * hidden, 3, groups=2 * hidden, rectified=False, bias=False)
    first, second = net.node_many("Split", f"{name}.split", [y.name], [f"{name}.a", f"{name}.b"], axis=1)
    gated = net.node("Mul", f"{name}.gate", gelu(net, first, f"{name}.gelu"), second)
    y = replace(y, name=gated, channels=hidden)
    return net.conv(y, f"{name}.out", x.channels, 1, rectified=False, bias=False, gain=2 * GAIN)
