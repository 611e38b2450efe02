"""3D ResNet-34 for video: input [batch, 3, frames, height, width]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.zoo.blocks import basic_block, classifier, conv_bn_relu
from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

# Channels and number of blocks.
BLOCKS = (64, 3), (128, 4), (256, 6), (512, 3)


@network(
    name="resnet34-3d",
    title="3D ResNet-34",
    source="Hara et al., Can Spatiotemporal 3D CNNs Retrace the History of 2D CNNs and ImageNet?, CVPR 2018",
    default_size=(16, 112, 112),
)
def resnet34_3d(net: Net, x: Activation) -> Activation:
    """Any size from 8x32x32. The first convolution halves the frames too, which gives the 13.3 GFLOP quoted for it.

    Shortcuts that change shape are projections (type B); the output has the 400 classes of Kinetics.
    """
    net.require(minimum=(8, 32, 32))
    x = conv_bn_relu(net, x, "conv1", 64, 7, stride=2)
    x = net.max_pool(x, "maxpool", 3, stride=2, pad=1)
    for i, (channels, blocks) in enumerate(BLOCKS, 1):
        for j in range(blocks):
            x = basic_block(net, x, f"layer{i}.{j}", channels, stride=2 if i > 1 and j == 0 else 1)
    return classifier(net, x, "fc", 400)
