"""DeepCAM: DeepLabv3+ on an aligned Xception encoder, decoding by transposed convolutions, for climate data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.zoo.blocks import BRANCH_SCALE, conv_bn, conv_bn_relu
from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

# Dilations of the 3x3 branches of the pyramid.
RATES = 6, 12, 18
MIDDLE_BLOCKS = 16
# Batch norm scale of both terms of a sum, where neither is the identity.
SUM_SCALE = 0.7


@network(
    name="deepcam",
    title="DeepCAM",
    source="Kurth et al., Exascale Deep Learning for Climate Analytics, SC 2018; MLPerf HPC reference model",
    default_size=(768, 1152),
    channels=16,
)
def deepcam(net: Net, x: Activation) -> Activation:
    """Sizes are multiples of 16; the output has three classes at the input's resolution."""
    net.require(minimum=32, multiple=16)
    x, low_level = _encoder(net, x)
    x = _pyramid(net, x)
    low_level = conv_bn_relu(net, low_level, "low_level", 48, 1)
    return _decoder(net, x, low_level)


def _encoder(net: Net, x: Activation) -> tuple[Activation, Activation]:
    """Features at 1/16 of the resolution, and those at 1/4."""
    x = conv_bn_relu(net, x, "conv1", 32, 3, stride=2)
    x = conv_bn_relu(net, x, "conv2", 64, 3)
    x = low_level = net.relu(_down_block(net, x, "block1", 128), "block1.relu")
    x = net.relu(_down_block(net, x, "block2", 256), "block2.relu")
    x = net.relu(_down_block(net, x, "block3", 728), "block3.relu")
    for i in range(4, 4 + MIDDLE_BLOCKS):
        x = _middle_block(net, x, f"block{i}")
    x = _exit_block(net, x, f"block{4 + MIDDLE_BLOCKS}", 1024)
    x = _separable_bn_relu(net, x, "conv3", 1536, rectified=False, dilation=2)
    x = _separable_bn_relu(net, x, "conv4", 1536, dilation=2)
    return _separable_bn_relu(net, x, "conv5", 2048, dilation=2), low_level


def _separable(
    net: Net, x: Activation, name: str, channels: int, stride: int = 1, dilation: int = 1, rectified: bool = True
) -> Activation:
    """Depthwise 3x3 and pointwise convolution with nothing between them."""
    window = {"stride": stride, "dilation": dilation, "groups": x.channels}
    x = net.conv(x, f"{name}.depthwise", x.channels, 3, rectified=rectified, bias=False, **window)
    return net.conv(x, f"{name}.pointwise", channels, 1, rectified=False, bias=False)


def _separable_bn_relu(
    net: Net, x: Activation, name: str, channels: int, dilation: int = 1, rectified: bool = True
) -> Activation:
    x = _separable(net, x, name, channels, dilation=dilation, rectified=rectified)
    return net.relu(net.batch_norm(x, f"{name}.bn"), f"{name}.relu")


def _down_block(net: Net, x: Activation, name: str, channels: int) -> Activation:
    y = _separable_bn_relu(net, x, f"{name}.sep1", channels)
    y = net.batch_norm(_separable(net, y, f"{name}.sep2", channels), f"{name}.sep2.bn", SUM_SCALE)
    y = _separable(net, y, f"{name}.sep3", channels, stride=2, rectified=False)
    skip = conv_bn(net, x, f"{name}.skip", channels, 1, stride=2, scale=SUM_SCALE)
    return net.add(y, skip, f"{name}.add")


def _middle_block(net: Net, x: Activation, name: str) -> Activation:
    y = _separable_bn_relu(net, x, f"{name}.sep1", x.channels)
    y = _separable_bn_relu(net, y, f"{name}.sep2", x.channels)
    y = net.batch_norm(_separable(net, y, f"{name}.sep3", x.channels), f"{name}.sep3.bn", BRANCH_SCALE)
    return net.relu(net.add(y, x, f"{name}.add"), f"{name}.relu")


def _exit_block(net: Net, x: Activation, name: str, channels: int) -> Activation:
    y = _separable_bn_relu(net, x, f"{name}.sep1", x.channels)
    y = net.batch_norm(_separable(net, y, f"{name}.sep2", channels), f"{name}.sep2.bn", SUM_SCALE)
    y = _separable(net, y, f"{name}.sep3", channels, rectified=False)
    return net.add(y, conv_bn(net, x, f"{name}.skip", channels, 1, scale=SUM_SCALE), f"{name}.add")


def _pyramid(net: Net, x: Activation) -> Activation:
    """Atrous spatial pyramid: one 1x1 and three dilated 3x3 convolutions, and the mean over space, tiled."""
    parts = [conv_bn_relu(net, x, "aspp1", 256, 1)]
    for i, rate in enumerate(RATES, 2):
        parts.append(conv_bn_relu(net, x, f"aspp{i}", 256, 3, dilation=rate))
    mean = net.relu(net.conv(net.global_mean(x, "aspp5.pool"), "aspp5", 256, 1), "aspp5.relu")
    tiled = net.node("Tile", "aspp5.tile", mean.name, _repeats(net, x))
    parts.append(parts[0].like(tiled))
    return conv_bn_relu(net, net.concat(parts, "aspp.concat"), "aspp.project", 256, 1)


def _repeats(net: Net, x: Activation) -> str:
    """The extents of space behind two ones, read from `x` where they are open."""
    if not net.open_size:
        return net.ints("aspp5.repeats", (1, 1, *x.spatial))
    extents = net.node("Shape", "aspp5.extents", x.name, start=2)
    return net.node("Concat", "aspp5.repeats", net.ints("aspp5.ones", (1, 1)), extents, axis=0)


def _decoder(net: Net, x: Activation, low_level: Activation) -> Activation:
    for name in "up1", "up2":
        x = _up_bn_relu(net, x, name)
    x = net.concat([x, low_level], "concat")
    x = conv_bn_relu(net, x, "decode1", 256, 3)
    x = conv_bn_relu(net, x, "decode2", 256, 3)
    x = _up_bn_relu(net, net.conv(x, "decode3", 256, 1), "up3", rectified=False)
    return net.conv_transpose(x, "up4", 3, 3, pad=1, bias=False)


def _up_bn_relu(net: Net, x: Activation, name: str, rectified: bool = True) -> Activation:
    x = net.conv_transpose(x, name, x.channels, 3, pad=1, rectified=rectified, bias=False)
    return net.relu(net.batch_norm(x, f"{name}.bn"), f"{name}.relu")
