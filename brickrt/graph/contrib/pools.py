"""Pools of quantized tensors, and those of tensors with channels innermost."""

from __future__ import annotations

from brickrt.graph.contrib.body import ContributedBody, defines
from brickrt.graph.contrib.parts import WINDOW, channels_first, channels_last, dequantized, quantized


@defines("QLinearAveragePool", "QLinearGlobalAveragePool", needs=(0, 1, 3))
def average_pool(b: ContributedBody) -> None:
    """The mean of windows, or of all pixels."""
    rank, last = len(b.type(0).shape), bool(b.attribute("channels_last", 0))
    x = channels_first(b, dequantized(b, 0, 1, 2), rank, last)
    y = b.add(b.op_type.removeprefix("QLinear"), x, **b.kept(*WINDOW))
    b.give(quantized(b, channels_last(b, y, rank, last), 3, 4, like=0))


@defines("NhwcMaxPool", needs=range(1))
def max_pool(b: ContributedBody) -> None:
    """The largest of windows."""
    rank = len(b.type(0).shape)
    y = b.add("MaxPool", channels_first(b, b.input(0), rank, True), **b.kept(*WINDOW))
    b.give(channels_last(b, y, rank, True))
