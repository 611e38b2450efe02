"""U-Net in two and in three dimensions, with padded convolutions and batch normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.zoo.blocks import conv_bn_relu
from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net


@network(
    name="unet",
    title="U-Net 2-D",
    source="Ronneberger et al., U-Net: Convolutional Networks for Biomedical Image Segmentation, MICCAI 2015",
    default_size=(512, 512),
)
def unet(net: Net, x: Activation, width: int = 32, levels: int = 4) -> Activation:
    """One-channel output at the input's resolution. Sizes are multiples of 2 ** levels."""
    return _u_shape(net, x, width, levels)


@network(
    name="unet3d",
    title="U-Net 3-D",
    source="Cicek et al., 3D U-Net: Learning Dense Volumetric Segmentation from Sparse Annotation, MICCAI 2016",
    default_size=(96, 96, 96),
    channels=1,
)
def unet3d(net: Net, x: Activation, width: int = 16, levels: int = 4) -> Activation:
    """One-channel output at the input's resolution. Sizes are multiples of 2 ** levels."""
    return _u_shape(net, x, width, levels)


def _u_shape(net: Net, x: Activation, width: int, levels: int) -> Activation:
    net.require(minimum=2**levels, multiple=2**levels)
    skips = []
    for i in range(levels):
        x = _double_conv(net, x, f"encoder{i + 1}", width << i)
        skips.append(x)
        x = net.max_pool(x, f"pool{i + 1}", 2, stride=2)
    x = _double_conv(net, x, "bottleneck", width << levels)
    for i in reversed(range(levels)):
        x = net.conv_transpose(x, f"upconv{i + 1}", width << i, 2, rectified=False)
        x = net.concat([x, skips[i]], f"concat{i + 1}")
        x = _double_conv(net, x, f"decoder{i + 1}", width << i)
    return net.conv(x, "conv", 1, 1)


def _double_conv(net: Net, x: Activation, name: str, channels: int) -> Activation:
    x = conv_bn_relu(net, x, f"{name}.conv1", channels, 3)
    return conv_bn_relu(net, x, f"{name}.conv2", channels, 3)
