"""BSRN: four times the resolution, by blueprint separable convolutions, of which distilled parts are kept, and by
attention in space and among channels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brickrt.zoo.registry import network
from brickrt.zoo.tokens import gelu

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

WIDTH = 64
BLOCKS = 8
SCALE = 4
COPIES = 4  # of the image, which the network reads side by side
REDUCTION = 16
# Of the GELU of a normal deviate, the variance with the squared mean is about 0.43.
GELU_GAIN = 2.3


@network(
    name="bsrn",
    title="BSRN",
    source="Li et al., Blueprint Separable Residual Network for Efficient Image Super-Resolution, CVPR Workshops 2022",
    default_size=(180, 320),
)
def bsrn(net: Net, x: Activation) -> Activation:
    """An image of four times the height and width. Any size from 15x15."""
    net.require(minimum=15)
    copies = net.concat([x] * COPIES, "copies")
    first = y = _blueprint(net, copies, "first", WIDTH)
    parts = []
    for i in range(BLOCKS):
        y = _block(net, y, f"blocks.{i}")
        parts.append(y)
    y = net.conv(net.concat(parts, "concat"), "fuse1", WIDTH, 1, rectified=False)
    y = _blueprint(net, _gelu(net, y, "fuse1.gelu"), "fuse2", WIDTH, GELU_GAIN)
    y = net.add(y, first, "add")
    y = net.conv(y, "upsample", x.channels * SCALE**2, 3, rectified=False)
    image = net.node("DepthToSpace", "shuffle", y.name, blocksize=SCALE, mode="CRD")
    return replace(x, name=image, spatial=tuple(SCALE * n for n in x.spatial))


def _blueprint(
    net: Net, x: Activation, name: str, channels: int, gain: float = 1.0, stride: int = 1, pad: int | None = None
) -> Activation:
    """A blueprint separable convolution: pointwise, then depthwise 3x3."""
    x = net.conv(x, f"{name}.pointwise", channels, 1, rectified=False, bias=False, gain=gain)
    return net.conv(x, f"{name}.depthwise", channels, 3, stride=stride, pad=pad, groups=channels, rectified=False)


def _gelu(net: Net, x: Activation, name: str) -> Activation:
    return x.like(gelu(net, x.name, name))


def _block(net: Net, x: Activation, name: str) -> Activation:
    """An efficient separable distillation block: three times, half the channels are kept and all go on."""
    kept, y = [], x
    for i, gain in ((1, 1.0), (2, GELU_GAIN), (3, GELU_GAIN)):
        part = net.conv(y, f"{name}.distil{i}", WIDTH // 2, 1, rectified=False, gain=gain)
        kept.append(_gelu(net, part, f"{name}.distil{i}.gelu"))
        refined = net.add(_blueprint(net, y, f"{name}.refine{i}", WIDTH, 0.5 * gain), y, f"{name}.add{i}")
        y = _gelu(net, refined, f"{name}.refine{i}.gelu")
    kept.append(_gelu(net, _blueprint(net, y, f"{name}.refine4", WIDTH // 2, GELU_GAIN), f"{name}.refine4.gelu"))
    y = net.conv(net.concat(kept, f"{name}.concat"), f"{name}.fuse", WIDTH, 1, rectified=False, gain=GELU_GAIN)
    y = _channel_attention(net, _spatial_attention(net, y, f"{name}.esa"), f"{name}.cca")
    return net.add(y, x, f"{name}.add")


def _spatial_attention(net: Net, x: Activation, name: str) -> Activation:
    """Enhanced spatial attention: a factor for each element, from a view of a sixth of the resolution."""
    few = net.conv(x, f"{name}.conv1", x.channels // 4, 1, rectified=False)
    y = _blueprint(net, few, f"{name}.conv2", few.channels, stride=2, pad=0)
    y = net.max_pool(y, f"{name}.pool", 7, 3)
    y = _gelu(net, _blueprint(net, y, f"{name}.conv_max", few.channels), f"{name}.conv_max.gelu")
    y = _gelu(net, _blueprint(net, y, f"{name}.conv3", few.channels, GELU_GAIN), f"{name}.conv3.gelu")
    y = few.like(_resized(net, _blueprint(net, y, f"{name}.conv4", few.channels, GELU_GAIN), few, f"{name}.resize"))
    skip = net.conv(few, f"{name}.skip", few.channels, 1, rectified=False)
    y = net.conv(net.add(y, skip, f"{name}.add"), f"{name}.conv5", x.channels, 1, rectified=False)
    return x.like(net.node("Mul", name, x.name, net.node("Sigmoid", f"{name}.sigmoid", y.name)))


def _resized(net: Net, x: Activation, like: Activation, name: str) -> str:
    """Bilinear interpolation to the extents of `like`."""
    batch = net.extent(like.name, 0, net.batch)
    high, wide = (net.extent(like.name, axis, like.spatial[axis - 2]) for axis in (2, 3))
    sizes = net.extents(f"{name}.sizes", batch, x.channels, high, wide)
    how = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
    return net.node("Resize", name, x.name, "", "", sizes, **how)


def _channel_attention(net: Net, x: Activation, name: str) -> Activation:
    """Contrast-aware channel attention: a factor per channel, from deviation and mean over space."""
    mean = net.node("ReduceMean", f"{name}.mean", x.name, axes=[2, 3], keepdims=1)
    off = net.node("Sub", f"{name}.sub", x.name, mean)
    square = net.node("Pow", f"{name}.pow", off, net.scalar(2.0))
    variance = net.node("ReduceMean", f"{name}.variance", square, axes=[2, 3], keepdims=1)
    deviation = net.node("Pow", f"{name}.deviation", variance, net.scalar(0.5))
    contrast = net.node("Add", f"{name}.contrast", deviation, net.global_mean(x, f"{name}.pool").name)
    y = replace(x, name=contrast, spatial=(1, 1))
    y = net.relu(net.conv(y, f"{name}.conv1", WIDTH // REDUCTION, 1, rectified=False), f"{name}.relu")
    y = net.conv(y, f"{name}.conv2", WIDTH, 1)
    return x.like(net.node("Mul", name, x.name, net.node("Sigmoid", f"{name}.sigmoid", y.name)))
