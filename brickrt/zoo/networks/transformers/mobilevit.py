"""MobileViT-S: inverted residuals, and blocks that attend among pixels of the same place in patches of 2x2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brickrt.zoo.blocks import BRANCH_SCALE, classifier, conv_bn
from brickrt.zoo.registry import network
from brickrt.zoo.tokens import attention, dense, layer_norm, silu

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

# Channels, number of inverted residuals, stride of the first, features and depth of the transformer behind them.
BLOCKS = (32, 1, 1, 0, 0), (64, 3, 2, 0, 0), (96, 1, 2, 144, 2), (128, 1, 2, 192, 4), (160, 1, 2, 240, 3)
STEM, LAST = 16, 640
EXPANSION = 4
HEADS = 4
PATCH = 2


@network(
    name="mobilevit-s",
    title="MobileViT-S",
    source="Mehta and Rastegari, MobileViT: Light-weight, General-purpose, Mobile-friendly Transformer, ICLR 2022",
    default_size=(256, 256),
)
def mobilevit_s(net: Net, x: Activation) -> Activation:
    """Sizes are multiples of 64, so that patches of 2x2 fit the coarsest features."""
    net.require(minimum=64, multiple=64)
    x = _unit(net, x, "stem", STEM, 3, stride=2)
    for i, (channels, blocks, stride, features, depth) in enumerate(BLOCKS, 1):
        for j in range(blocks):
            x = _inverted_residual(net, x, f"layer{i}.{j}", channels, stride if j == 0 else 1)
        if depth:
            x = _block(net, x, f"layer{i}.vit", features, depth)
    return classifier(net, _unit(net, x, "last", LAST, 1), "classifier", 1000)


def _unit(net: Net, x: Activation, name: str, channels: int, kernel: int, **conv: Any) -> Activation:
    """Convolution, batch normalization and SiLU."""
    y = conv_bn(net, x, name, channels, kernel, **conv)
    return y.like(silu(net, y.name, f"{name}.silu"))


def _inverted_residual(net: Net, x: Activation, name: str, channels: int, stride: int) -> Activation:
    keeps_shape = stride == 1 and channels == x.channels
    wide = EXPANSION * x.channels
    y = _unit(net, x, f"{name}.expand", wide, 1, rectified=False)
    y = _unit(net, y, f"{name}.depthwise", wide, 3, stride=stride, groups=wide)
    y = conv_bn(net, y, f"{name}.project", channels, 1, scale=BRANCH_SCALE if keeps_shape else 1.0)
    return net.add(x, y, f"{name}.add") if keeps_shape else y


def _block(net: Net, x: Activation, name: str, features: int, depth: int) -> Activation:
    """Local features by convolution, global ones by attention, both with what came in."""
    y = _unit(net, x, f"{name}.local", x.channels, 3, rectified=False)
    y = net.conv(y, f"{name}.widen", features, 1, bias=False)
    tokens = _unfold(net, y, f"{name}.unfold")
    for i in range(depth):
        tokens = _transformer(net, tokens, f"{name}.{i}", features)
    tokens = layer_norm(net, tokens, f"{name}.norm", features)
    y = y.like(_fold(net, y, tokens, f"{name}.fold"))
    y = _unit(net, y, f"{name}.narrow", x.channels, 1, rectified=False)
    return _unit(net, net.concat([x, y], f"{name}.concat"), f"{name}.fuse", x.channels, 3)


def _transformer(net: Net, tokens: str, name: str, features: int) -> str:
    y = attention(net, layer_norm(net, tokens, f"{name}.norm1", features), f"{name}.attn", features, HEADS)
    tokens = net.node("Add", f"{name}.add1", tokens, y)
    y = dense(net, layer_norm(net, tokens, f"{name}.norm2", features), f"{name}.fc1", features, 2 * features)
    y = dense(net, silu(net, y, f"{name}.silu"), f"{name}.fc2", 2 * features, features, 0.3)
    return net.node("Add", f"{name}.add2", tokens, y)


def _patches(net: Net, x: Activation, axis: int) -> int | str:
    """How many patches there are along axis 2 or 3 of an image."""
    return net.extent(x.name, axis, x.spatial[axis - 2], over=PATCH)


def _tokens(net: Net, x: Activation) -> int | str:
    """How many patches there are."""
    high, wide = _patches(net, x, 2), _patches(net, x, 3)
    if isinstance(high, int) and isinstance(wide, int):
        return high * wide
    return net.once("Mul", f"{x.name}.patches", str(high), str(wide))


def _unfold(net: Net, x: Activation, name: str) -> str:
    """[batch, features, height, width] to tokens [batch · 4, patch, features]: 4 pixels of a patch are apart."""
    wide, batch = _patches(net, x, 3), net.extent(x.name, 0, net.batch)
    y = net.node("Reshape", f"{name}.split", x.name, net.extents(f"{name}.rows", -1, PATCH, wide, PATCH))
    y = net.node("Transpose", f"{name}.transpose", y, perm=[0, 2, 1, 3])
    patches = net.extents(f"{name}.patches", batch, x.channels, -1, PATCH * PATCH)
    y = net.node("Reshape", f"{name}.join", y, patches)
    y = net.node("Transpose", f"{name}.apart", y, perm=[0, 3, 2, 1])
    return net.node("Reshape", name, y, net.extents(f"{name}.tokens", -1, _tokens(net, x), x.channels))


def _fold(net: Net, x: Activation, tokens: str, name: str) -> str:
    """The image that `_unfold` has cut, of the shape of `x`."""
    high, wide = (net.extent(x.name, axis, x.spatial[axis - 2]) for axis in (2, 3))
    batch = net.extent(x.name, 0, net.batch)
    y = net.node("Reshape", f"{name}.split", tokens, net.extents(f"{name}.four", batch, PATCH * PATCH, -1, x.channels))
    y = net.node("Transpose", f"{name}.apart", y, perm=[0, 3, 2, 1])
    y = net.node("Reshape", f"{name}.rows", y, net.extents(f"{name}.wide", -1, _patches(net, x, 3), PATCH, PATCH))
    y = net.node("Transpose", f"{name}.transpose", y, perm=[0, 2, 1, 3])
    return net.node("Reshape", name, y, net.extents(f"{name}.image", batch, x.channels, high, wide))
