"""Networks to run, test and measure with: ONNX models written from their papers, with seeded random weights.

Listing networks needs neither NumPy nor onnx; building one does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brickrt.zoo import networks
from brickrt.zoo.registry import Entry, Input, check_options, lookup, names
from brickrt.zoo.samples import feeds

if TYPE_CHECKING:
    import onnx

__all__ = ["Entry", "Input", "build", "describe", "feeds", "names", "networks"]


def describe(name: str) -> Entry:
    """What is known of a network without building it; ValueError for an unknown name."""
    return lookup(name)[0]


def build(
    name: str,
    batch: int | str = 1,
    size: int | tuple[int, ...] | None = None,
    seed: int = 0,
    **options: Any,
) -> onnx.ModelProto:
    """Write network `name` as an ONNX model with output `y`; of an image or a volume its input is `x` [batch, channels,
    *size], and `describe` says what the others take.

    `batch` 0 or a string gives a symbolic batch dimension ("N", or that string). `size` is one extent for every
    spatial dimension, or one per dimension; None takes the network's own, and 0 leaves all of them open, where the
    network's weights do not depend on them. Equal arguments give equal bytes.
    `options` are those of the network's function, such as `width` and `blocks` of nafnet.
    ValueError, in one line, for an unknown name or option and for a batch or size that does not fit.
    """
    from brickrt.zoo.layers import Net  # here, so that listing networks does not load onnx

    entry, write = lookup(name)
    check_options(name, options)
    net = Net(name, seed, _batch(name, batch), entry.inputs, _spatial(entry, size), open_size=size == 0)
    return net.model(write(net, net.x, **options))


def _batch(name: str, batch: int | str) -> int | str:
    if isinstance(batch, str) and batch:
        return batch
    if isinstance(batch, int) and not isinstance(batch, bool) and batch >= 0:
        return batch or "N"
    raise ValueError(f"{name}: batch {batch!r} is neither a positive integer, nor 0 or a name for a symbolic one")


def _spatial(entry: Entry, size: int | tuple[int, ...] | None) -> tuple[int, ...]:
    rank = len(entry.default_size)
    if size == 0 and not entry.any_size:
        raise ValueError(f"{entry.name}: its weights are for one size: give one, such as {_text(entry.default_size)}")
    if size is None or size == 0:
        return entry.default_size
    spatial = (size,) * rank if isinstance(size, int) else tuple(size)
    if len(spatial) != rank or not all(isinstance(extent, int) and extent > 0 for extent in spatial):
        example = _text(entry.default_size)
        raise ValueError(f"{entry.name}: size {size!r} is not {rank} positive integers, such as {example}")
    return spatial


def _text(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))
