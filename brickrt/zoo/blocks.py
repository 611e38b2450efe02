"""Groups of layers that several networks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

# Mean batch norm scale at the end of a residual branch.
BRANCH_SCALE = 0.3


def conv_bn(
    net: Net,
    x: Activation,
    name: str,
    channels: int,
    kernel: int | tuple[int, ...],
    scale: float = 1.0,
    epsilon: float = 1e-5,
    **conv: Any,
) -> Activation:
    """Convolution without bias, then batch normalization; `conv` goes to `Net.conv`."""
    x = net.conv(x, name, channels, kernel, bias=False, **conv)
    return net.batch_norm(x, f"{name}.bn", scale, epsilon)


def conv_bn_relu(
    net: Net, x: Activation, name: str, channels: int, kernel: int | tuple[int, ...], **conv: Any
) -> Activation:
    """`conv_bn`, then ReLU."""
    return net.relu(conv_bn(net, x, name, channels, kernel, **conv), f"{name}.relu")


def shortcut(net: Net, x: Activation, name: str, channels: int, stride: int) -> Activation:
    """`x` itself where a block keeps its shape, else its projection by a 1-wide convolution."""
    if stride == 1 and channels == x.channels:
        return x
    return conv_bn(net, x, f"{name}.downsample", channels, 1, stride=stride)


def basic_block(
    net: Net, x: Activation, name: str, channels: int, stride: int = 1, dilations: tuple[int, int] = (1, 1)
) -> Activation:
    """Two 3-wide convolutions and a shortcut (He et al. 2016), in any number of dimensions."""
    y = conv_bn_relu(net, x, f"{name}.conv1", channels, 3, stride=stride, dilation=dilations[0])
    y = conv_bn(net, y, f"{name}.conv2", channels, 3, dilation=dilations[1], scale=BRANCH_SCALE)
    y = net.add(y, shortcut(net, x, name, channels, stride), f"{name}.add")
    return net.relu(y, f"{name}.relu")


def classifier(net: Net, x: Activation, name: str, classes: int) -> Activation:
    """Mean over space, then a fully connected layer."""
    x = net.flatten(net.global_mean(x, "avgpool"), "flatten")
    return net.linear(x, name, classes)
