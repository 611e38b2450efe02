"""MobileNetV2: inverted residuals around depthwise convolutions, with linear bottlenecks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brickrt.zoo.blocks import BRANCH_SCALE, classifier, conv_bn
from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

# Expansion, channels, number of blocks, stride of the first block (table 2 of the paper).
BLOCKS = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)


@network(
    name="mobilenetv2",
    title="MobileNetV2",
    source="Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018",
    default_size=(224, 224),
)
def mobilenetv2(net: Net, x: Activation) -> Activation:
    """Any size from 32x32."""
    net.require(minimum=32)
    x = _unit(net, x, "features.0", 32, 3, stride=2)
    index = 1
    for expansion, channels, blocks, stride in BLOCKS:
        for j in range(blocks):
            x = _block(net, x, f"features.{index}", expansion, channels, stride if j == 0 else 1)
            index += 1
    x = _unit(net, x, f"features.{index}", 1280, 1, rectified=False)
    return classifier(net, x, "classifier", 1000)


def _unit(net: Net, x: Activation, name: str, channels: int, kernel: int, **conv: Any) -> Activation:
    return net.relu6(conv_bn(net, x, name, channels, kernel, **conv), f"{name}.relu6")


def _block(net: Net, x: Activation, name: str, expansion: int, channels: int, stride: int) -> Activation:
    keeps_shape = stride == 1 and channels == x.channels
    wide = x.channels * expansion
    y = x
    if expansion > 1:
        y = _unit(net, x, f"{name}.expand", wide, 1, rectified=False)
    y = _unit(net, y, f"{name}.depthwise", wide, 3, stride=stride, groups=wide)
    y = conv_bn(net, y, f"{name}.project", channels, 1, scale=BRANCH_SCALE if keeps_shape else 1.0)
    return net.add(x, y, f"{name}.add") if keeps_shape else y
