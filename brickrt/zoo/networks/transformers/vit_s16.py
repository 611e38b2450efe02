"""ViT-S/16: a pre-norm transformer encoder over patches of 16x16 pixels. Tokens are [batch, 1 + patches, WIDTH]."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from brickrt.zoo.registry import network
from brickrt.zoo.tokens import attention, layer_norm, mlp

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

DEPTH = 12
WIDTH = 384
HEADS = 6
PATCH = 16
MLP_WIDTH = 4 * WIDTH
EPSILON = 1e-6


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
        y = layer_norm(net, tokens, f"{name}.norm1", WIDTH, EPSILON)
        tokens = net.node("Add", f"{name}.add1", tokens, attention(net, y, f"{name}.attn", WIDTH, HEADS))
        y = layer_norm(net, tokens, f"{name}.norm2", WIDTH, EPSILON)
        tokens = net.node("Add", f"{name}.add2", tokens, mlp(net, y, f"{name}.mlp", WIDTH, MLP_WIDTH))
    tokens = layer_norm(net, tokens, "norm", WIDTH, EPSILON)
    first = net.node("Gather", "class", tokens, net.ints("class.index", 0), axis=1)
    return net.linear(replace(x, name=first, channels=WIDTH, spatial=()), "head", 1000, rectified=False)


def _embed(net: Net, x: Activation) -> str:
    """The class token, then one token per patch, plus position embeddings."""
    patches = net.conv(x, "patch_embed", WIDTH, PATCH, stride=PATCH, pad=0, rectified=False)
    rows = net.node("Reshape", "patch_embed.rows", patches.name, net.shape(0, WIDTH, -1))
    tokens = net.node("Transpose", "patch_embed.tokens", rows, perm=[0, 2, 1])
    token = net.parameter("cls_token", (1, 1, WIDTH), 1.0)
    batch = net.extent(x.name, 0, net.batch)
    token = net.node("Expand", "cls_token.expand", token, net.extents("cls_token.shape", batch, 1, WIDTH))
    tokens = net.node("Concat", "cls_token.concat", token, tokens, axis=1)
    positions = net.parameter("pos_embed", (1, 1 + math.prod(patches.spatial), WIDTH), 0.5)
    return net.node("Add", "pos_embed.add", tokens, positions)
