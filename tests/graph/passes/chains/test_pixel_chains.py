"""Which neighbours on pixels become one, and that the graph computes the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.ir import Graph
from brickrt.graph.passes.chains import pixel_chains as passes
from brickrt.graph.passes.chains.pixel_chains import pixel_chains
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.chains.pixel_chain import PixelChain
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.rowwise import Rowwise, Step
from tests.support.graphs.small_graphs import array, make, same_results

F32 = np.dtype(np.float32)
X = (2, 8, 3, 5)
ADD = apply("add", arg(0, F32), arg(1, F32))
HALVE = Map(apply("mul", arg(0, F32), const(0.5, F32)))
MEAN = Step("sum", arg(0, F32), apply("mul", arg(0, F32), const(0.125, F32)))
CENTRE = Rowwise((1,), (MEAN,), apply("sub", arg(0, F32), arg(1, F32)))


def conv(b: Builder, x: str, *extras: str, columns: int = 8, size: int = 1, stride: int = 1, **how) -> str:
    """A convolution without bias; 1×1 unless it has another size."""
    w = b.constant(array(columns * how.get("gate_parts", 1), b.type(x).shape[1], size, size, seed=columns), "w")
    pads = (size // 2,) * 2
    return b.emit(Conv((size, size), (stride,) * 2, (1, 1), pads, pads, **how), x, w, *extras)


def chained(build: Callable[[Builder], str | tuple[str, ...]], rounds: bool = True) -> list[list[str]]:
    """The operators of each node of the graph with chains, which computes the same."""
    graph = make(build, x=X)
    found = same_results(graph, pixel_chains(graph, rounds))
    return [names(node.op) for node in found.nodes]


def names(op) -> list[str]:
    return [link.op.name for link in op.links] if isinstance(op, PixelChain) else [op.name]


def test_a_norm_and_products() -> None:
    def build(b: Builder) -> str:
        return conv(b, b.emit(HALVE, conv(b, b.emit(CENTRE, "x"), columns=12)), columns=4)

    assert chained(build) == [["Rowwise", "Conv", "Map", "Conv"]]
    assert chained(build, rounds=False) == [["Rowwise"], ["Conv"], ["Map"], ["Conv"]]


def test_what_a_later_link_reads_too() -> None:
    """Sums around products and gates; channels scaled by what is known when the network runs."""
    gate = apply("mul", arg(0, F32), arg(1, F32))

    def build(b: Builder) -> str:
        scales = b.emit(HALVE, b.constant(array(1, 8, 1, 1), "s"))
        first = conv(b, "x", scales, "x", epilogue=ADD, channel_scaled=True)
        gated = conv(b, b.emit(CENTRE, first), epilogue=gate, gate_parts=2)
        return conv(b, gated, first, epilogue=ADD)

    assert chained(build) == [["Map"], ["Conv", "Rowwise", "Conv", "Conv"]]


def test_a_chain_ends_where_others_read() -> None:
    def window(b: Builder) -> tuple[str, ...]:
        y = conv(b, b.emit(CENTRE, "x"))
        return conv(b, y, size=3), conv(b, y)

    def output(b: Builder) -> tuple[str, ...]:
        y = conv(b, b.emit(CENTRE, "x"))
        return y, conv(b, b.emit(HALVE, y))

    assert chained(window) == [["Rowwise", "Conv"], ["Conv"], ["Conv"]]
    assert chained(output) == [["Rowwise", "Conv"], ["Map", "Conv"]]


@pytest.mark.parametrize(
    "build, expected",
    [
        (lambda b: b.emit(HALVE, b.emit(CENTRE, "x")), [["Rowwise"], ["Map"]]),
        (lambda b: conv(b, conv(b, "x", size=3)), [["Conv"], ["Conv"]]),
        (lambda b: conv(b, conv(b, "x"), stride=2), [["Conv"], ["Conv"]]),
        (lambda b: b.emit(Map(ADD), conv(b, "x"), "x"), [["Conv", "Map"]]),
        (lambda b: conv(b, conv(b, conv(b, "x"), size=3)), [["Conv"], ["Conv"], ["Conv"]]),
        (lambda b: conv(b, conv(b, "x", columns=1), columns=16), [["Conv"], ["Conv"]]),
    ],
    ids=["no product", "a window", "a stride", "a sum", "a window between", "little between"],
)
def test_what_joins(build, expected) -> None:
    assert chained(build) == expected


def test_a_result_of_one_channel_is_not_repeated() -> None:
    """As attention gates have it: one value a pixel scales all channels. Lanes have channels of their own."""

    def build(b: Builder) -> str:
        gate = b.emit(HALVE, conv(b, conv(b, "x"), columns=1))
        return conv(b, b.emit(Map(apply("mul", arg(0, F32), arg(1, F32))), "x", gate))

    assert chained(build) == [["Conv", "Conv", "Map"], ["Map", "Conv"]]


def test_registers_are_few(monkeypatch) -> None:
    """Channels that are alive at a time, and links, are bounded; what is beyond begins a chain of its own."""

    def build(b: Builder) -> str:
        return conv(b, conv(b, conv(b, conv(b, "x"), columns=16)), columns=16)

    assert chained(build) == [["Conv"] * 4]
    monkeypatch.setattr(passes, "MOST_ALIVE", 20)
    assert chained(build) == [["Conv"], ["Conv"], ["Conv"], ["Conv"]]
    monkeypatch.setattr(passes, "MOST_ALIVE", 999)
    monkeypatch.setattr(passes, "MOST_LINKS", 3)
    assert chained(build) == [["Conv"] * 3, ["Conv"]]


def test_weights_that_are_read_otherwise_too() -> None:
    """Weights lie in memory as products take them; a Map that reads the same constant has it as it is."""

    def build(b: Builder) -> str:
        w = b.constant(array(8, 8, 1, 1), "w")
        op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
        scaled = b.emit(
            Map(apply("mul", arg(0, F32), arg(1, F32))), b.emit(op, "x", w), b.constant(array(8, 1, 1), "s")
        )
        return b.emit(op, scaled, w)

    graph: Graph = pixel_chains(make(build, x=X), True)
    (node,) = graph.nodes
    assert node.inputs == ("x", "w", "s", "w") and node.op.links[2].reads == (5, 3)
