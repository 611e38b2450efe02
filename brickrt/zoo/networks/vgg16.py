"""VGG-16 (configuration D): thirteen 3x3 convolutions and three fully connected layers, no batch normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

BLOCKS = (64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)


@network(
    name="vgg16",
    title="VGG-16",
    source="Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, ICLR 2015",
    default_size=(224, 224),
    any_size=False,
)
def vgg16(net: Net, x: Activation) -> Activation:
    """The first fully connected layer has as many inputs as the size implies, so above 480 the model passes 2 GB."""
    net.require(minimum=32, maximum=480)
    for i, widths in enumerate(BLOCKS, 1):
        for j, channels in enumerate(widths, 1):
            x = net.conv(x, f"conv{i}_{j}", channels, 3)
            x = net.relu(x, f"relu{i}_{j}")
        x = net.max_pool(x, f"pool{i}", 2, stride=2)
    x = net.flatten(x, "flatten")
    for i in (6, 7):
        x = net.relu(net.linear(x, f"fc{i}", 4096), f"relu{i}")
    return net.linear(x, "fc8", 1000)
