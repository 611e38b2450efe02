"""Layers on tokens: tensors whose last axis holds features, in the primitive operators that exporters write.

Each takes the name of a tensor and gives that of another.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brickrt.zoo.layers import Net

# Variance of the weights that end a branch, times fan-in: the branches of a dozen blocks together add about what the
# input has.
BRANCH_GAIN = 0.1


def dense(
    net: Net,
    x: str,
    name: str,
    width: int,
    features: int,
    gain: float = 1.0,
    bias: bool = True,
    rectified: bool = False,
) -> str:
    """Fully connected layer from `width` features on each token. `gain` is what the variance grows by; `rectified` says
    whether its input comes from a rectifier."""
    weight = net.filters(name, (width, features), width / gain, rectified, (0,))
    if not bias:
        return net.node("MatMul", name, x, weight)
    y = net.node("MatMul", f"{name}.matmul", x, weight)
    return net.node("Add", name, y, net.parameter(f"{name}.bias", (features,), 0.05))


def layer_norm(net: Net, x: str, name: str, width: int, epsilon: float = 1e-5) -> str:
    """Normalization over the features of each token."""
    scale = net.parameter(f"{name}.weight", (width,), 0.1, 1.0)
    bias = net.parameter(f"{name}.bias", (width,), 0.1)
    return net.node("LayerNormalization", name, x, scale, bias, axis=-1, epsilon=epsilon)


def heads(net: Net, x: str, name: str, width: int, count: int, perm: list[int]) -> str:
    """A projection of tokens [batch, token, width], split into heads; `perm` orders batch, token, head, feature."""
    y = dense(net, x, name, width, width)
    y = net.node("Reshape", f"{name}.split", y, net.shape(0, 0, count, width // count))
    return net.node("Transpose", f"{name}.heads", y, perm=perm)


def merged(net: Net, x: str, name: str, width: int) -> str:
    """[batch, head, token, feature] to [batch, token, width]."""
    y = net.node("Transpose", f"{name}.transpose", x, perm=[0, 2, 1, 3])
    return net.node("Reshape", f"{name}.merge", y, net.shape(0, 0, width))


def attention(net: Net, x: str, name: str, width: int, count: int, gain: float = BRANCH_GAIN) -> str:
    """Each token of [batch, token, width] attends to all, in `count` heads."""
    query = heads(net, x, f"{name}.query", width, count, [0, 2, 1, 3])
    key = heads(net, x, f"{name}.key", width, count, [0, 2, 3, 1])
    value = heads(net, x, f"{name}.value", width, count, [0, 2, 1, 3])
    scores = net.node("MatMul", f"{name}.scores", query, key)
    scores = net.node("Mul", f"{name}.scale", scores, net.scalar((width // count) ** -0.5))
    y = net.node("MatMul", f"{name}.mix", net.node("Softmax", f"{name}.softmax", scores, axis=-1), value)
    return dense(net, merged(net, y, name, width), f"{name}.proj", width, width, gain)


def gelu(net: Net, x: str, name: str) -> str:
    """x (1 + erf(x / sqrt 2)) / 2"""
    y = net.node("Div", f"{name}.div", x, net.scalar(math.sqrt(2)))
    y = net.node("Erf", f"{name}.erf", y)
    y = net.node("Add", f"{name}.add", y, net.scalar(1.0))
    y = net.node("Mul", f"{name}.mul", x, y)
    return net.node("Mul", f"{name}.half", y, net.scalar(0.5))


def silu(net: Net, x: str, name: str) -> str:
    """x / (1 + exp -x)"""
    return net.node("Mul", name, x, net.node("Sigmoid", f"{name}.sigmoid", x))


def mlp(net: Net, x: str, name: str, width: int, hidden: int, gain: float = BRANCH_GAIN) -> str:
    """Two fully connected layers with GELU between them."""
    y = gelu(net, dense(net, x, f"{name}.fc1", width, hidden), f"{name}.gelu")
    return dense(net, y, f"{name}.fc2", hidden, width, gain)
