"""ResNet-50, with the stride in the 3x3 convolution of the first block of each width, as it is commonly exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.zoo.blocks import BRANCH_SCALE, classifier, conv_bn, conv_bn_relu, shortcut
from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

# Width of the bottleneck and number of blocks.
BLOCKS = (64, 3), (128, 4), (256, 6), (512, 3)


@network(
    name="resnet50",
    title="ResNet-50",
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016",
    default_size=(224, 224),
)
def resnet50(net: Net, x: Activation) -> Activation:
    """Any size from 32x32."""
    net.require(minimum=32)
    x = conv_bn_relu(net, x, "conv1", 64, 7, stride=2)
    x = net.max_pool(x, "maxpool", 3, stride=2, pad=1)
    for i, (width, blocks) in enumerate(BLOCKS, 1):
        for j in range(blocks):
            x = _bottleneck(net, x, f"layer{i}.{j}", width, stride=2 if i > 1 and j == 0 else 1)
    return classifier(net, x, "fc", 1000)


def _bottleneck(net: Net, x: Activation, name: str, width: int, stride: int) -> Activation:
    y = conv_bn_relu(net, x, f"{name}.conv1", width, 1)
    y = conv_bn_relu(net, y, f"{name}.conv2", width, 3, stride=stride)
    y = conv_bn(net, y, f"{name}.conv3", 4 * width, 1, scale=BRANCH_SCALE)
    y = net.add(y, shortcut(net, x, name, 4 * width, stride), f"{name}.add")
    return net.relu(y, f"{name}.relu")
