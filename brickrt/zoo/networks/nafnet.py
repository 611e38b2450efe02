"""NAFNet, an image restoration network whose only nonlinearity is a product of two halves of the channels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

EPSILON = 1e-6
# Mean of beta and gamma, the learned scales of the two branches of a block.
RESIDUAL_SCALE = 0.3


@network(
    name="nafnet",
    title="NAFNet",
    source="Chen et al., Simple Baselines for Image Restoration, ECCV 2022",
    default_size=(512, 512),
)
def nafnet(
    net: Net,
    x: Activation,
    width: int = 32,
    blocks: int = 4,
    encoder: tuple[int, ...] = (),
    decoder: tuple[int, ...] = (),
) -> Activation:
    """A plain chain of blocks at full resolution, or the paper's U shape around them.

    `encoder` and `decoder` hold the blocks per level, finest first and coarsest first; the paper's width-32 model
    has encoder (2, 2, 4, 8), 12 blocks and decoder (2, 2, 2, 2). Sizes are multiples of 2 ** len(encoder).
    """
    if len(encoder) != len(decoder):
        raise ValueError(f"nafnet: encoder has {len(encoder)} levels and decoder {len(decoder)}; they must match")
    net.require(minimum=max(8, 2 ** len(encoder)), multiple=2 ** len(encoder))
    y = net.conv(x, "intro", width, 3, rectified=False)
    skips = []
    for i, count in enumerate(encoder):
        y = _blocks(net, y, f"encoders.{i}", count)
        skips.append(y)
        y = net.conv(y, f"downs.{i}", 2 * y.channels, 2, stride=2, pad=0, rectified=False)
    y = _blocks(net, y, "middle", blocks)
    for i, count in enumerate(decoder):
        y = net.add(_double(net, y, f"ups.{i}"), skips.pop(), f"ups.{i}.add")
        y = _blocks(net, y, f"decoders.{i}", count)
    y = net.conv(y, "ending", x.channels, 3, rectified=False)
    return net.add(y, x, "add")


def _double(net: Net, x: Activation, name: str) -> Activation:
    """Twice the resolution and half the channels, by moving channels into space."""
    y = net.conv(x, name, 2 * x.channels, 1, rectified=False, bias=False)
    shuffled = net.node("DepthToSpace", f"{name}.shuffle", y.name, blocksize=2, mode="CRD")
    return replace(x, name=shuffled, channels=x.channels // 2, spatial=tuple(2 * n for n in x.spatial))


def _blocks(net: Net, x: Activation, name: str, count: int) -> Activation:
    for i in range(count):
        x = _spatial_branch(net, x, f"{name}.{i}")
        x = _channel_branch(net, x, f"{name}.{i}")
    return x


def _spatial_branch(net: Net, x: Activation, name: str) -> Activation:
    y = _layer_norm(net, x, f"{name}.norm1")
    y = net.conv(y, f"{name}.conv1", 2 * x.channels, 1, rectified=False)
    y = net.conv(y, f"{name}.conv2", y.channels, 3, groups=y.channels, rectified=False)
    y = _attention(net, _simple_gate(net, y, f"{name}.gate1"), f"{name}.sca")
    y = net.conv(y, f"{name}.conv3", x.channels, 1, rectified=False)
    return net.add(x, _scaled(net, y, f"{name}.beta"), f"{name}.add1")


def _channel_branch(net: Net, x: Activation, name: str) -> Activation:
    y = _layer_norm(net, x, f"{name}.norm2")
    y = net.conv(y, f"{name}.conv4", 2 * x.channels, 1, rectified=False)
    y = _simple_gate(net, y, f"{name}.gate2")
    y = net.conv(y, f"{name}.conv5", x.channels, 1, rectified=False)
    return net.add(x, _scaled(net, y, f"{name}.gamma"), f"{name}.add2")


def _layer_norm(net: Net, x: Activation, name: str) -> Activation:
    """Normalization over the channels of each pixel, in the primitive operators that PyTorch exports for it."""
    mean = net.node("ReduceMean", f"{name}.mean", x.name, axes=[1], keepdims=1)
    centred = net.node("Sub", f"{name}.sub", x.name, mean)
    square = net.node("Pow", f"{name}.pow", centred, net.scalar(2.0))
    variance = net.node("ReduceMean", f"{name}.var", square, axes=[1], keepdims=1)
    shifted = net.node("Add", f"{name}.eps", variance, net.scalar(EPSILON))
    deviation = net.node("Sqrt", f"{name}.sqrt", shifted)
    y = net.node("Div", f"{name}.div", centred, deviation)
    y = net.node("Mul", f"{name}.mul", y, _per_channel(net, x, f"{name}.weight", 0.1, 1.0))
    y = net.node("Add", f"{name}.add", y, _per_channel(net, x, f"{name}.bias", 0.1, 0.0))
    return x.like(y)


def _simple_gate(net: Net, x: Activation, name: str) -> Activation:
    halves = net.node_many("Split", f"{name}.split", [x.name], [f"{name}.a", f"{name}.b"], axis=1)
    return replace(x, name=net.node("Mul", name, *halves), channels=x.channels // 2)


def _attention(net: Net, x: Activation, name: str) -> Activation:
    """Simplified channel attention: a factor per channel, from the means over space."""
    # Means of a zero-mean signal are small: a bias around 1 lets the signal through.
    means = net.global_mean(x, f"{name}.pool")
    factors = net.conv(means, f"{name}.conv", x.channels, 1, rectified=False, bias_mean=1.0)
    return x.like(net.node("Mul", f"{name}.mul", x.name, factors.name))


def _scaled(net: Net, x: Activation, name: str) -> Activation:
    factors = _per_channel(net, x, name, 0.1 * RESIDUAL_SCALE, RESIDUAL_SCALE)
    return x.like(net.node("Mul", f"{name}.mul", x.name, factors))


def _per_channel(net: Net, x: Activation, name: str, std: float, mean: float) -> str:
    return net.parameter(name, (1, x.channels, 1, 1), std, mean)
