"""What networks are translated from, `TranslatedNode`, and to: the functions of an array library, a `Backend`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx

Array = Any  # of the library
Value = Any  # an Array, or a NumPy array on the host
Ints = Sequence[int]
Pads = Sequence[tuple[int, int]]  # before and after, for each dimension


@dataclass(frozen=True)
class TranslatedNode:
    """An ONNX node, its attributes as Python values."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto = field(repr=False)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default where the node does not have it."""
        return self.attributes.get(name, default)


@dataclass(frozen=True)
class SlidingWindow:
    """How a convolution or a pooling moves, per spatial dimension."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    @property
    def padded(self) -> bool:
        """Whether there is any padding."""
        return any(map(any, self.pads))


class Backend(Protocol):
    """What an array library must have; shapes are ONNX's: batch, channels, space.

    Padding and norms are the library's own, not made of smaller steps: a peer must not be slower than it is.
    """

    @property
    def functions(self) -> Mapping[str, Callable[..., Array]]:
        """Functions by ONNX operator, without its attributes but for these, in this order.

        Clip: low and high, None without; Gelu: whether it is approximate; LeakyRelu: alpha; Reshape, Expand: the shape;
        Transpose, Softmax, Concat: axes; ReduceMean and its like: `axis` and `keepdims` by name.
        """
        ...

    def constant(self, array: np.ndarray, like: Array) -> Array:
        """An array on the device of `like`, and of its type if it is floating-point."""
        ...

    def pad(self, x: Array, pads: Pads, mode: str, value: float) -> Array:
        """ONNX's Pad, in all dimensions."""
        ...

    def conv(self, x: Array, w: Array, b: Array | None, window: SlidingWindow, groups: int) -> Array:
        """Convolution with weights [outputs, inputs / groups, *kernel]."""
        ...

    def conv_transpose(
        self, x: Array, w: Array, b: Array | None, window: SlidingWindow, groups: int, extra: Ints
    ) -> Array:
        """Transposed convolution with weights [inputs, outputs / groups, *kernel]; `extra` is ONNX's output_padding."""
        ...

    def max_pool(self, x: Array, window: SlidingWindow) -> Array:
        """Maxima over windows."""
        ...

    def average_pool(self, x: Array, window: SlidingWindow, counted: bool) -> Array:
        """Means over windows; `counted` says whether padding counts as zeros."""
        ...

    def batch_norm(self, x: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float) -> Array:
        """Normalization of each channel by given statistics."""
        ...

    def instance_norm(self, x: Array, scale: Array, bias: Array, epsilon: float) -> Array:
        """Normalization over the space of each channel."""
        ...

    def layer_norm(self, x: Array, scale: Array, bias: Array | None, axis: int, epsilon: float) -> Array:
        """Normalization over the dimensions from `axis` on."""
        ...

    def take(self, x: Array, indices: np.ndarray, axis: int) -> Array:
        """NumPy's take, of indices [k] that are not negative; a slice where they count up."""
        ...


def extents(x: Array) -> tuple[int, ...]:
    """The shape in integers of Python's: a library that traces has tensors for them."""
    return tuple(map(int, x.shape))
