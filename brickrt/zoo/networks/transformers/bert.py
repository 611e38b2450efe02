"""BERT (base): a post-norm transformer encoder of text. Tokens are [batch, length, WIDTH]."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import brickrt.zoo.tokens as layers
from brickrt.zoo.registry import Input, network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

DEPTH = 12
WIDTH = 768
HEADS = 12
MLP_WIDTH = 4 * WIDTH
VOCABULARY = 30522
LONGEST = 512
EPSILON = 1e-12
MASKED_SCORE = -3.4028234663852886e38  # of a token that is masked: the least float32
# Variance of what ends a branch, beside the 1 that each norm gives its sum.
GAIN = 0.3


@network(
    name="bert",
    title="BERT (base)",
    source="Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, NAACL 2019",
    default_size=(128,),
    inputs=(
        Input("input_ids", ("batch", "size"), "int64", VOCABULARY),
        Input("attention_mask", ("batch", "size"), "int64", 2),
    ),
)
def bert(net: Net, x: Activation) -> Activation:
    """The last hidden states, of up to 512 tokens; `attention_mask` is 0 for those that none attends to. All tokens are
    of the first segment."""
    net.require(maximum=LONGEST)
    mask = _mask(net)
    tokens = _embed(net, x)
    for i in range(DEPTH):
        name = f"layer.{i}"
        y = net.node("Add", f"{name}.add1", _attention(net, tokens, mask, f"{name}.attention"), tokens)
        tokens = layers.layer_norm(net, y, f"{name}.norm1", WIDTH, EPSILON)
        y = layers.mlp(net, tokens, f"{name}.mlp", WIDTH, MLP_WIDTH, GAIN)
        y = net.node("Add", f"{name}.add2", y, tokens)
        tokens = layers.layer_norm(net, y, f"{name}.norm2", WIDTH, EPSILON)
    return replace(x, name=tokens, channels=WIDTH, last=True)


def _embed(net: Net, x: Activation) -> str:
    """Embeddings of words, of the segment and of positions."""
    words = net.parameter("embeddings.word.weight", (VOCABULARY, WIDTH), 1.0)
    segment = net.parameter("embeddings.segment.weight", (1, 1, WIDTH), 0.3)
    positions = net.parameter("embeddings.position.weight", (1, LONGEST, WIDTH), 0.5)
    tokens = net.node("Gather", "embeddings.word", words, x.name, axis=0)
    tokens = net.node("Add", "embeddings.segment", tokens, segment)
    length = net.extents("length", net.extent(x.name, 1, x.spatial[0]))
    positions = net.node("Slice", "embeddings.slice", positions, net.shape(0), length, net.shape(1))
    tokens = net.node("Add", "embeddings.position", tokens, positions)
    return layers.layer_norm(net, tokens, "embeddings.norm", WIDTH, EPSILON)


def _mask(net: Net) -> str:
    """What is added to scores [batch, head, query, key]."""
    mask = net.node("Unsqueeze", "mask.unsqueeze", "attention_mask", net.shape(1, 2))
    mask = net.node("Cast", "mask.float", mask, to=1)
    inverted = net.node("Sub", "mask.inverted", net.scalar(1.0), mask)
    masked = net.node("Cast", "mask.bool", inverted, to=9)
    return net.node("Where", "mask", masked, net.scalar(MASKED_SCORE), inverted)


def _attention(net: Net, x: str, mask: str, name: str) -> str:
    query = layers.heads(net, x, f"{name}.query", WIDTH, HEADS, [0, 2, 1, 3])
    key = layers.heads(net, x, f"{name}.key", WIDTH, HEADS, [0, 2, 3, 1])
    value = layers.heads(net, x, f"{name}.value", WIDTH, HEADS, [0, 2, 1, 3])
    scores = net.node("MatMul", f"{name}.scores", query, key)
    scores = net.node("Div", f"{name}.scale", scores, net.scalar((WIDTH // HEADS) ** 0.5))
    scores = net.node("Add", f"{name}.mask", scores, mask)
    y = net.node("MatMul", f"{name}.mix", net.node("Softmax", f"{name}.softmax", scores, axis=-1), value)
    return layers.dense(net, layers.merged(net, y, name, WIDTH), f"{name}.output", WIDTH, WIDTH, GAIN)
