"""The layers that networks are made of. Each takes and gives an `Activation`, and names its nodes after its `name`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx

from brickrt.zoo import weights
from brickrt.zoo.registry import Input
from brickrt.zoo.sizes import check_size
from brickrt.zoo.writer import Writer

Extents = int | tuple[int, ...]
# Names of open extents, by how many there are.
SIDES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}


@dataclass(frozen=True)
class Activation:
    """An activation [batch, channels, *spatial], or [batch, *spatial, channels] with `last`; spatial is () after
    `flatten`."""

    name: str
    channels: int
    spatial: tuple[int, ...]
    last: bool = False

    def per_dim(self, extents: Extents) -> tuple[int, ...]:
        """One number per spatial dimension."""
        return (extents,) * len(self.spatial) if isinstance(extents, int) else extents

    def like(self, name: str) -> Activation:
        """An activation of this shape called `name`."""
        return replace(self, name=name)


class Net(Writer):
    """A network being written, layer by layer.

    `x` is its first input; `batch` an extent, or the name of a symbolic one. With `open_size` the model leaves the
    extents of space open, and those of `x` are an example. Layers with weights take `rectified`: whether their input
    comes from a rectifier, whose effect on variance and mean `weights.filters` evens out.
    """

    def __init__(
        self,
        name: str,
        seed: int,
        batch: int | str,
        inputs: tuple[Input, ...],
        spatial: tuple[int, ...],
        open_size: bool = False,
    ) -> None:
        super().__init__(name, seed)
        self.batch, self.inputs, self.open_size = batch, inputs, open_size
        self.x = Activation(inputs[0].name, inputs[0].channels, spatial, inputs[0].shape[-1] != "size")

    def require(self, minimum: Extents = 1, multiple: int = 1, maximum: int | None = None) -> None:
        """ValueError unless each spatial extent of the input is within these bounds and such a multiple."""
        check_size(self.name, self.x.spatial, self.x.per_dim(minimum), multiple, maximum)

    def model(self, y: Activation) -> onnx.ModelProto:
        """The finished model, with `y` as its only output."""
        inside: Sequence[int | str] = SIDES[len(self.x.spatial)] if self.open_size else self.x.spatial
        outside: Sequence[int | str | None] = y.spatial
        if self.open_size:
            outside = inside if y.spatial == self.x.spatial else [None] * len(y.spatial)
        taken = [(each.name, each.dtype, each.extents(self.batch, inside)) for each in self.inputs]
        given = [self.batch, *outside, y.channels] if y.last else [self.batch, y.channels, *outside]
        return self.finish(y.name, taken, given)

    def extent(self, x: str, axis: int, known: int | str, over: int = 1) -> int | str:
        """An extent of tensor `x` divided by `over`: a number where it is fixed, as `known` says, else the name of a
        tensor [1]. Axis 0 is the batch."""
        fixed = isinstance(self.batch, int) if axis == 0 else not self.open_size
        if isinstance(known, int) and fixed:
            return known // over
        read = self.once("Shape", f"{x}.extent{axis}", x, start=axis, end=axis + 1)
        return read if over == 1 else self.once("Div", f"{read}.over{over}", read, self.shape(over))

    def extents(self, name: str, *parts: int | str) -> str:
        """A shape of numbers and of what `extent` gives: a constant, or a node called `name`."""
        if all(isinstance(part, int) for part in parts):
            return self.shape(*(int(part) for part in parts))
        if len(parts) == 1:
            return str(parts[0])
        known = [self.shape(part) if isinstance(part, int) else part for part in parts]
        return self.node("Concat", name, *known, axis=0)

    def conv(
        self,
        x: Activation,
        name: str,
        channels: int,
        kernel: Extents,
        stride: Extents = 1,
        pad: Extents | None = None,
        dilation: int = 1,
        groups: int = 1,
        rectified: bool = True,
        bias: bool = True,
        bias_mean: float = 0.0,
        gain: float = 1.0,
    ) -> Activation:
        """Convolution. `pad` is symmetric; None keeps the extents at stride 1. `gain` is what the variance grows by."""
        kernel, stride = x.per_dim(kernel), x.per_dim(stride)
        pad = tuple(dilation * (k - 1) // 2 for k in kernel) if pad is None else x.per_dim(pad)
        taps = (channels, x.channels // groups, *kernel)
        # A filter on a single channel would lose its response to constants by being centred.
        axes = tuple(range(1, len(taps))) if taps[1] > 1 else ()
        inputs = [x.name, self.filters(name, taps, math.prod(taps[1:]) / gain, rectified, axes)]
        if bias:
            inputs.append(self.parameter(f"{name}.bias", (channels,), 0.05, bias_mean))
        window = _window(x, kernel, stride, pad)
        self.node("Conv", name, *inputs, dilations=x.per_dim(dilation), group=groups, **window)
        extents = zip(x.spatial, kernel, stride, pad)
        return Activation(
            name, channels, tuple((n + 2 * p - dilation * (k - 1) - 1) // s + 1 for n, k, s, p in extents)
        )

    def conv_transpose(
        self,
        x: Activation,
        name: str,
        channels: int,
        kernel: int,
        pad: int = 0,
        rectified: bool = True,
        bias: bool = True,
    ) -> Activation:
        """Transposed convolution of stride 2 that doubles each extent."""
        taps = (x.channels, channels, *x.per_dim(kernel))
        # An output element meets, in each dimension, kernel / 2 taps on average.
        fan_in = x.channels * (kernel / 2) ** len(x.spatial)
        inputs = [x.name, self.filters(name, taps, fan_in, rectified, (0,))]
        if bias:
            inputs.append(self.parameter(f"{name}.bias", (channels,), 0.05))
        extra = x.per_dim(2 + 2 * pad - kernel)
        self.node("ConvTranspose", name, *inputs, output_padding=extra, **_window(x, kernel, 2, pad))
        return Activation(name, channels, tuple(2 * n for n in x.spatial))

    def parameter(self, name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> str:
        """A random float32 parameter, such as a bias."""
        return self.weight(name, weights.normal(self.rng, shape, std, mean))

    def filters(self, name: str, shape: tuple[int, ...], fan_in: float, rectified: bool, axes: tuple[int, ...]) -> str:
        """The weights of layer `name`, as `weights.filters` draws them."""
        return self.weight(f"{name}.weight", weights.filters(self.rng, shape, fan_in, rectified, axes))

    def batch_norm(self, x: Activation, name: str, scale: float = 1.0, epsilon: float = 1e-5) -> Activation:
        """Inference-mode batch normalization; a small `scale` keeps a residual branch from growing its sum."""
        parameters = weights.batch_norm(self.rng, x.channels, scale)
        inputs = [self.weight(f"{name}.{key}", values) for key, values in parameters._asdict().items()]
        return x.like(self.node("BatchNormalization", name, x.name, *inputs, epsilon=epsilon))

    def relu(self, x: Activation, name: str) -> Activation:
        """max(x, 0)."""
        return x.like(self.node("Relu", name, x.name))

    def relu6(self, x: Activation, name: str) -> Activation:
        """min(max(x, 0), 6), as PyTorch exports it."""
        return x.like(self.node("Clip", name, x.name, self.scalar(0.0), self.scalar(6.0)))

    def leaky_relu(self, x: Activation, name: str) -> Activation:
        """x, or 0.1 x where negative."""
        return x.like(self.node("LeakyRelu", name, x.name, alpha=0.1))

    def add(self, a: Activation, b: Activation, name: str) -> Activation:
        """Elementwise sum of tensors of one shape."""
        return a.like(self.node("Add", name, a.name, b.name))

    def concat(self, parts: Sequence[Activation], name: str) -> Activation:
        """Concatenation along channels."""
        self.node("Concat", name, *(part.name for part in parts), axis=1)
        return Activation(name, sum(part.channels for part in parts), parts[0].spatial)

    def max_pool(self, x: Activation, name: str, kernel: int, stride: int, pad: int = 0) -> Activation:
        """Maximum over windows, with symmetric padding."""
        self.node("MaxPool", name, x.name, **_window(x, kernel, stride, pad))
        return Activation(name, x.channels, tuple((n + 2 * pad - kernel) // stride + 1 for n in x.spatial))

    def mean_pool(self, x: Activation, name: str, kernel: int) -> Activation:
        """Mean over windows of stride 1 that keeps the extents; padding is not counted."""
        window = _window(x, kernel, 1, kernel // 2)
        return x.like(self.node("AveragePool", name, x.name, count_include_pad=0, **window))

    def global_mean(self, x: Activation, name: str) -> Activation:
        """Mean over all of space; extents become 1."""
        return Activation(self.node("GlobalAveragePool", name, x.name), x.channels, x.per_dim(1))

    def flatten(self, x: Activation, name: str) -> Activation:
        """[batch, channels, *spatial] to [batch, features]."""
        return Activation(self.node("Flatten", name, x.name, axis=1), x.channels * math.prod(x.spatial), ())

    def linear(self, x: Activation, name: str, features: int, rectified: bool = True) -> Activation:
        """Fully connected layer with bias on a flattened tensor."""
        taps = self.filters(name, (features, x.channels), x.channels, rectified, (1,))
        bias = self.parameter(f"{name}.bias", (features,), 0.05)
        return Activation(self.node("Gemm", name, x.name, taps, bias, transB=1), features, ())


def _window(x: Activation, kernel: Extents, stride: Extents, pad: Extents) -> dict[str, tuple[int, ...]]:
    """The attributes that convolutions and poolings share."""
    return {"kernel_shape": x.per_dim(kernel), "strides": x.per_dim(stride), "pads": x.per_dim(pad) * 2}
