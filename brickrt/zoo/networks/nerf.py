"""NeRF: colour and density of points in space, seen from a direction, by a perceptron of sines and cosines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brickrt.zoo.registry import Input, network
from brickrt.zoo.tokens import dense

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

WIDTH = 256
DEPTH = 8
SKIP = 5  # the layer that reads the encoded points again
POINT_FREQUENCIES = 10
VIEW_FREQUENCIES = 4


@network(
    name="nerf",
    title="NeRF",
    source="Mildenhall et al., NeRF: Representing Scenes as Neural Radiance Fields for View Synthesis, ECCV 2020",
    default_size=(65536,),
    inputs=(Input("points", ("batch", "size", 3)), Input("views", ("batch", "size", 3))),
)
def nerf(net: Net, x: Activation) -> Activation:
    """Red, green and blue, before their sigmoid, and density, before its rectifier, of each point; `views` are the
    directions from which the points are seen. Encodings hold what they encode, as in the authors' code."""
    points, features = _encoded(net, x.name, "points.encoded", POINT_FREQUENCIES)
    views, more = _encoded(net, "views", "views.encoded", VIEW_FREQUENCIES)
    y, width = points, features
    for i in range(DEPTH):
        if i == SKIP:
            y, width = net.node("Concat", "skip", points, y, axis=-1), features + WIDTH
        y = _rectified(net, y, f"points.{i}", width, WIDTH, rectified=i > 0)
        width = WIDTH
    density = dense(net, y, "density", WIDTH, 1, rectified=True)
    y = dense(net, y, "feature", WIDTH, WIDTH, rectified=True)
    y = net.node("Concat", "seen", y, views, axis=-1)
    y = _rectified(net, y, "views.0", WIDTH + more, WIDTH // 2, rectified=False)
    colour = dense(net, y, "colour", WIDTH // 2, 3, rectified=True)
    return replace(x, name=net.node("Concat", "outputs", colour, density, axis=-1), channels=4)


def _rectified(net: Net, x: str, name: str, width: int, features: int, rectified: bool) -> str:
    return net.node("Relu", f"{name}.relu", dense(net, x, name, width, features, rectified=rectified))


def _encoded(net: Net, x: str, name: str, frequencies: int) -> tuple[str, int]:
    """`x` beside sines and cosines of its multiples by powers of two, and how many features that are."""
    parts = [x]
    for k in range(frequencies):
        for wave in ("Sin", "Cos"):
            scaled = net.node("Mul", f"{name}.{k}.{wave.lower()}.mul", x, net.scalar(2.0**k))
            parts.append(net.node(wave, f"{name}.{k}.{wave.lower()}", scaled))
    return net.node("Concat", name, *parts, axis=-1), 3 * len(parts)
