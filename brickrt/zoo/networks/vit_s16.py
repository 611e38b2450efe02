"""ViT-S/16: a pre-norm transformer encoder over patches of 16x16 pixels. Tokens are [batch, 1 + patches, WIDTH]."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

DEPTH = 12
WIDTH = 384
HEADS = 6
PATCH = 16
MLP_WIDTH = 4 * WIDTH
EPSILON = 1e-6
# Variance of the weights that end a branch, times fan-in: the 24 branches together add about what the input has.
BRANCH_GAIN = 0.1


@network(
    name="vit-s16",
    title="ViT-S/16",
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021; Touvron et al., DeiT, ICML 2021",
    default_size=(224, 224),
    any_size=False,
)
def vit_s16(net: Net, x: Activation) -> Activation:
    """Sizes are multiples of 16. Attention and GELU are written in primitive operators."""
    net.require(minimum=PATCH, multiple=PATCH)
    tokens = _embed(net, x)
    for i in range(DEPTH):
        name = f"blocks.{i}"
        y = _attention(net, _layer_norm(net, tokens, f"{name}.norm1"), f"{name}.attn")
        tokens = net.node("Add", f"{name}.add1", tokens, y)
        y = _mlp(net, _layer_norm(net, tokens, f"{name}.norm2"), f"{name}.mlp")
        tokens = net.node("Add", f"{name}.add2", tokens, y)
    tokens = _layer_norm(net, tokens, "norm")
    first = net.node("Gather", "class", tokens, net.ints("class.index", 0), axis=1)
    return net.linear(replace(x, name=first, channels=WIDTH, spatial=()), "head", 1000, rectified=False)


def _embed(net: Net, x: Activation) -> str:
    """The class token, then one token per patch, plus position embeddings."""
    patches = net.conv(x, "patch_embed", WIDTH, PATCH, stride=PATCH, pad=0, rectified=False)
    rows = net.node("Reshape", "patch_embed.rows", patches.name, net.ints("patch_embed.shape", (0, WIDTH, -1)))
    tokens = net.node("Transpose", "patch_embed.tokens", rows, perm=[0, 2, 1])
    token = net.parameter("cls_token", (1, 1, WIDTH), 1.0)
    token = net.node("Expand", "cls_token.expand", token, _class_shape(net))
    tokens = net.node("Concat", "cls_token.concat", token, tokens, axis=1)
    positions = net.parameter("pos_embed", (1, 1 + math.prod(patches.spatial), WIDTH), 0.5)
    return net.node("Add", "pos_embed.add", tokens, positions)


def _class_shape(net: Net) -> str:
    """Shape [batch, 1, WIDTH], read from the input where the batch is symbolic."""
    if isinstance(net.batch, int):
        return net.ints("cls_token.shape", (net.batch, 1, WIDTH))
    batch = net.node("Shape", "cls_token.batch", "x", start=0, end=1)
    return net.node("Concat", "cls_token.shape", batch, net.ints("cls_token.tail", (1, WIDTH)), axis=0)


def _layer_norm(net: Net, x: str, name: str) -> str:
    scale = net.parameter(f"{name}.weight", (WIDTH,), 0.1, 1.0)
    bias = net.parameter(f"{name}.bias", (WIDTH,), 0.1)
    return net.node("LayerNormalization", name, x, scale, bias, axis=-1, epsilon=EPSILON)


def _dense(net: Net, x: str, name: str, fan_in: int, features: int, gain: float = 1.0) -> str:
    """Fully connected layer on each token; its weights have variance gain / fan_in."""
    weight = net.parameter(f"{name}.weight", (fan_in, features), math.sqrt(gain / fan_in))
    y = net.node("MatMul", f"{name}.matmul", x, weight)
    return net.node("Add", name, y, net.parameter(f"{name}.bias", (features,), 0.05))


def _attention(net: Net, x: str, name: str) -> str:
    query = _heads(net, x, f"{name}.query", [0, 2, 1, 3])
    key = _heads(net, x, f"{name}.key", [0, 2, 3, 1])
    value = _heads(net, x, f"{name}.value", [0, 2, 1, 3])
    scores = net.node("MatMul", f"{name}.scores", query, key)
    scores = net.node("Mul", f"{name}.scale", scores, net.scalar((WIDTH // HEADS) ** -0.5))
    y = net.node("MatMul", f"{name}.mix", net.node("Softmax", f"{name}.softmax", scores, axis=-1), value)
    y = net.node("Transpose", f"{name}.transpose", y, perm=[0, 2, 1, 3])
    y = net.node("Reshape", f"{name}.merge", y, net.ints("merged.shape", (0, 0, WIDTH)))
    return _dense(net, y, f"{name}.proj", WIDTH, WIDTH, BRANCH_GAIN)


def _heads(net: Net, x: str, name: str, perm: list[int]) -> str:
    """A projection of the tokens, split into heads; `perm` orders batch, token, head, feature."""
    y = _dense(net, x, name, WIDTH, WIDTH)
    y = net.node("Reshape", f"{name}.split", y, net.ints("heads.shape", (0, 0, HEADS, WIDTH // HEADS)))
    return net.node("Transpose", f"{name}.heads", y, perm=perm)


def _mlp(net: Net, x: str, name: str) -> str:
    y = _gelu(net, _dense(net, x, f"{name}.fc1", WIDTH, MLP_WIDTH), f"{name}.gelu")
    return _dense(net, y, f"{name}.fc2", MLP_WIDTH, WIDTH, BRANCH_GAIN)


def _gelu(net: Net, x: str, name: str) -> str:
    """x (1 + erf(x / sqrt 2)) / 2"""
    y = net.node("Div", f"{name}.div", x, net.scalar(math.sqrt(2)))
    y = net.node("Erf", f"{name}.erf", y)
    y = net.node("Add", f"{name}.add", y, net.scalar(1.0))
    y = net.node("Mul", f"{name}.mul", x, y)
    return net.node("Mul", f"{name}.half", y, net.scalar(0.5))
