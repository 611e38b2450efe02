"""DRN-C-26: a residual network that keeps 1/8 resolution by dilation, and ends in plain layers that remove gridding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.zoo.blocks import basic_block, conv_bn_relu
from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

# Channels, number of blocks, stride of the first block, dilation.
LEVELS = (16, 1, 1, 1), (32, 1, 2, 1), (64, 2, 2, 1), (128, 2, 2, 1), (256, 2, 1, 2), (512, 2, 1, 4)
# Dilations of the levels without shortcuts that follow.
DEGRIDDING = 2, 1


@network(
    name="drn-c-26",
    title="DRN-C-26",
    source="Yu et al., Dilated Residual Networks, CVPR 2017",
    default_size=(224, 224),
)
def drn_c_26(net: Net, x: Activation) -> Activation:
    """Any size from 32x32; the classifier is a 1x1 convolution."""
    net.require(minimum=32)
    x = conv_bn_relu(net, x, "conv1", 16, 7)
    for i, (channels, blocks, stride, dilation) in enumerate(LEVELS, 1):
        for j in range(blocks):
            first = stride if j == 0 else 1
            x = basic_block(net, x, f"layer{i}.{j}", channels, first, (dilation, dilation))
    for i, dilation in enumerate(DEGRIDDING, len(LEVELS) + 1):
        for j in (1, 2):
            x = conv_bn_relu(net, x, f"layer{i}.0.conv{j}", x.channels, 3, dilation=dilation)
    x = net.conv(net.global_mean(x, "avgpool"), "fc", 1000, 1)
    return net.flatten(x, "flatten")
