"""Inception-v4: a deep stem, then blocks of four parallel branches, some with 1x7 and 7x1 convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.zoo.blocks import classifier, conv_bn_relu
from brickrt.zoo.registry import network

if TYPE_CHECKING:
    from brickrt.zoo.layers import Activation, Net

# Channels, kernel, stride, pad; stride 1 and the pad that keeps the extents where left out.
Step = tuple[int, int | tuple[int, int]] | tuple[int, int, int, int]
Branches = dict[str, tuple[Step, ...]]

REPEATS = 4, 7, 3  # of the blocks A, B and C
DOWN = 2, 0  # stride and pad of a layer that halves the extents
VALID = 1, 0

STEM: tuple[Step, ...] = (32, 3, *DOWN), (32, 3, *VALID), (64, 3)
MIXED_4A: Branches = {
    "branch0": ((64, 1), (96, 3, *VALID)),
    "branch1": ((64, 1), (64, (1, 7)), (64, (7, 1)), (96, 3, *VALID)),
}
INCEPTION_A: Branches = {
    "branch0": ((96, 1),),
    "branch1": ((64, 1), (96, 3)),
    "branch2": ((64, 1), (96, 3), (96, 3)),
    "pool": ((96, 1),),
}
REDUCTION_A: Branches = {
    "branch0": ((384, 3, *DOWN),),
    "branch1": ((192, 1), (224, 3), (256, 3, *DOWN)),
}
INCEPTION_B: Branches = {
    "branch0": ((384, 1),),
    "branch1": ((192, 1), (224, (1, 7)), (256, (7, 1))),
    "branch2": ((192, 1), (192, (7, 1)), (224, (1, 7)), (224, (7, 1)), (256, (1, 7))),
    "pool": ((128, 1),),
}
REDUCTION_B: Branches = {
    "branch0": ((192, 1), (192, 3, *DOWN)),
    "branch1": ((256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3, *DOWN)),
}


@network(
    name="inception-v4",
    title="Inception-v4",
    source="Szegedy et al., Inception-v4, Inception-ResNet and the Impact of Residual Connections, AAAI 2017",
    default_size=(299, 299),
)
def inception_v4(net: Net, x: Activation) -> Activation:
    """Any size from 75x75."""
    net.require(minimum=75)
    x = _stem(net, x)
    for i in range(REPEATS[0]):
        x = _inception(net, x, f"inception_a.{i}", INCEPTION_A)
    x = _reduction(net, x, "reduction_a", REDUCTION_A)
    for i in range(REPEATS[1]):
        x = _inception(net, x, f"inception_b.{i}", INCEPTION_B)
    x = _reduction(net, x, "reduction_b", REDUCTION_B)
    for i in range(REPEATS[2]):
        x = _inception_c(net, x, f"inception_c.{i}")
    return classifier(net, x, "fc", 1000)


def _stem(net: Net, x: Activation) -> Activation:
    x = _chain(net, x, "stem", STEM)
    x = _reduction(net, x, "mixed_3a", {"conv": ((96, 3, *DOWN),)})
    x = net.concat(_branches(net, x, "mixed_4a", MIXED_4A), "mixed_4a.concat")
    return _reduction(net, x, "mixed_5a", {"conv": ((192, 3, *DOWN),)})


def _reduction(net: Net, x: Activation, name: str, branches: Branches) -> Activation:
    """Branches that halve the extents, and a maximum pooling."""
    pooled = net.max_pool(x, f"{name}.pool", 3, stride=2)
    return net.concat([*_branches(net, x, name, branches), pooled], f"{name}.concat")


def _inception(net: Net, x: Activation, name: str, branches: Branches) -> Activation:
    return net.concat(_branches(net, x, name, branches), f"{name}.concat")


def _inception_c(net: Net, x: Activation, name: str) -> Activation:
    """The last two of the branches fork into a 1x3 and a 3x1 convolution."""
    tips = [_chain(net, x, f"{name}.branch0", ((256, 1),))]
    stems: Branches = {"branch1": ((384, 1),), "branch2": ((384, 1), (448, (3, 1)), (512, (1, 3)))}
    for key, steps in stems.items():
        y = _chain(net, x, f"{name}.{key}", steps)
        tips.append(_unit(net, y, f"{name}.{key}.tip0", 256, (1, 3)))
        tips.append(_unit(net, y, f"{name}.{key}.tip1", 256, (3, 1)))
    tips += _branches(net, x, name, {"pool": ((256, 1),)})
    return net.concat(tips, f"{name}.concat")


def _branches(net: Net, x: Activation, name: str, branches: Branches) -> list[Activation]:
    """Each branch on `x`; the one called "pool" on its 3x3 means."""
    outputs = []
    for key, steps in branches.items():
        source = net.mean_pool(x, f"{name}.pool.mean", 3) if key == "pool" else x
        outputs.append(_chain(net, source, f"{name}.{key}", steps))
    return outputs


def _chain(net: Net, x: Activation, name: str, steps: tuple[Step, ...]) -> Activation:
    for i, step in enumerate(steps):
        x = _unit(net, x, f"{name}.{i}", *step)
    return x


def _unit(net: Net, x: Activation, name: str, channels: int, kernel: int | tuple[int, int], *window: int) -> Activation:
    """`window` is empty, or stride and pad."""
    stride_pad = dict(zip(("stride", "pad"), window))
    return conv_bn_relu(net, x, name, channels, kernel, epsilon=1e-3, **stride_pad)
