"""DarkNet-53, the classifier that YOLOv3 is built on: leaky rectifiers, additions with nothing after them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.zoo.blocks import BRANCH_SCALE, classifier, conv_bn
from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

# Channels and number of residual blocks.
BLOCKS = (64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)


@network(
    name="darknet53",
    title="DarkNet-53",
    source="Redmon and Farhadi, YOLOv3: An Incremental Improvement, arXiv:1804.02767, 2018",
    default_size=(256, 256),
)
def darknet53(net: Net, x: Activation) -> Activation:
    """Any size from 32x32."""
    net.require(minimum=32)
    x = _unit(net, x, "conv1", 32, 3)
    for i, (channels, blocks) in enumerate(BLOCKS, 1):
        x = _unit(net, x, f"stage{i}.down", channels, 3, stride=2)
        for j in range(blocks):
            y = _unit(net, x, f"stage{i}.{j}.conv1", channels // 2, 1)
            y = _unit(net, y, f"stage{i}.{j}.conv2", channels, 3, scale=BRANCH_SCALE)
            x = net.add(x, y, f"stage{i}.{j}.add")
    return classifier(net, x, "fc", 1000)


def _unit(
    net: Net, x: Activation, name: str, channels: int, kernel: int, stride: int = 1, scale: float = 1.0
) -> Activation:
    x = conv_bn(net, x, name, channels, kernel, stride=stride, scale=scale)
    return net.leaky_relu(x, f"{name}.leaky")
