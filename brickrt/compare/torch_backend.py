"""PyTorch as a `Backend`, and networks as modules that it can trace and compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from brickrt.compare.backend import Ints, Pads, SlidingWindow, extents
from brickrt.compare.translate import TranslatedNetwork, evaluate

_CONV = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
_TRANSPOSE = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}
_MAX_POOL: dict[int, Any] = {3: F.max_pool1d, 4: F.max_pool2d, 5: F.max_pool3d}
_AVERAGE_POOL: dict[int, Any] = {3: F.avg_pool1d, 4: F.avg_pool2d, 5: F.avg_pool3d}
_PAD = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": torch.abs, "Ceil": torch.ceil, "Cos": torch.cos, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor,
    "HardSwish": F.hardswish, "LeakyRelu": F.leaky_relu, "Log": torch.log, "Max": torch.maximum, "Min": torch.minimum,
    "Neg": torch.neg, "Reciprocal": torch.reciprocal, "Relu": torch.relu, "Sigmoid": torch.sigmoid, "Sin": torch.sin,
    "Sqrt": torch.sqrt, "Tanh": torch.tanh, "Where": torch.where,
    "Clip": lambda x, low, high: x if low is high is None else torch.clamp(x, low, high),
    "Gelu": lambda x, approximate: F.gelu(x, approximate="tanh" if approximate else "none"),
    "ReduceMax": torch.amax, "ReduceMean": torch.mean, "ReduceMin": torch.amin, "ReduceSum": torch.sum,
    "Concat": torch.cat, "Expand": torch.broadcast_to, "MatMul": torch.matmul, "Reshape": torch.reshape,
    "Softmax": torch.softmax, "Transpose": torch.permute,
}  # fmt: skip


class TorchBackend:
    """PyTorch's functions by the names of `Backend`, on whatever device the tensors are."""

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Those of `torch` and its `functional`."""
        return _FUNCTIONS

    def constant(self, array: np.ndarray, like: Tensor) -> Tensor:
        """A new tensor."""
        dtype = like.dtype if array.dtype.kind == "f" else None
        return torch.tensor(array, dtype=dtype, device=like.device)

    def pad(self, x: Tensor, pads: Pads, mode: str, value: float) -> Tensor:
        """`pad`, which takes the last dimension first; all modes but "constant" leave batch and channels alone."""
        if mode == "constant":
            return F.pad(x, [end for pair in reversed(pads) for end in pair], value=value)
        inner = [end for pair in reversed(pads[2:]) for end in pair]
        return F.pad(x, inner, _PAD[mode])

    def conv(self, x: Tensor, w: Tensor, b: Tensor | None, window: SlidingWindow, groups: int) -> Tensor:
        """`conv1d` to `conv3d`."""
        x, padding = self._padding(x, window)
        return _CONV[x.ndim](x, w, b, window.strides, padding, window.dilations, groups)

    def conv_transpose(
        self, x: Tensor, w: Tensor, b: Tensor | None, window: SlidingWindow, groups: int, extra: Ints
    ) -> Tensor:
        """`conv_transpose1d` to `3d`; what has other pads after than before is cut afterwards."""
        function, strides, dilations = _TRANSPOSE[x.ndim], window.strides, window.dilations
        if all(before == after for before, after in window.pads):
            padding = tuple(before for before, _ in window.pads)
            return function(x, w, b, strides, padding, tuple(extra), groups, dilations)
        y = function(x, w, None, strides, 0, 0, groups, dilations)
        y = self._pad_space(y, [(-before, more - after) for (before, after), more in zip(window.pads, extra)])
        return y if b is None else y + b.reshape(1, -1, *(1,) * len(extra))

    def max_pool(self, x: Tensor, window: SlidingWindow) -> Tensor:
        """`max_pool1d` to `3d`."""
        x, padding = self._padding(x, window, float("-inf"), [k // 2 for k in window.kernel])
        return _MAX_POOL[x.ndim](x, window.kernel, window.strides, padding, window.dilations)

    def average_pool(self, x: Tensor, window: SlidingWindow, counted: bool) -> Tensor:
        """`avg_pool1d` to `3d`."""
        if any(d != 1 for d in window.dilations):
            raise LookupError("no translation of dilated averages")
        function, most = _AVERAGE_POOL[x.ndim], [k // 2 for k in window.kernel]
        padded, padding = self._padding(x, window, 0.0, most)
        y = function(padded, window.kernel, window.strides, padding, count_include_pad=counted)
        if counted or padded is x:
            return y
        ones, _ = self._padding(x.new_ones((1, 1, *extents(x)[2:])), window, 0.0, most)
        return y / function(ones, window.kernel, window.strides)

    def _padding(
        self, x: Tensor, window: SlidingWindow, value: float = 0.0, most: Ints | None = None
    ) -> tuple[Tensor, tuple[int, ...]]:
        """The padding that a function of PyTorch is given: equal before and after, in pools `most`.

        Other padding is put around `x` before.
        """
        limits = most or [before for before, _ in window.pads]
        if all(before == after <= limit for (before, after), limit in zip(window.pads, limits, strict=True)):
            return x, tuple(before for before, _ in window.pads)
        return self._pad_space(x, window.pads, value), (0,) * len(window.pads)

    def _pad_space(self, x: Tensor, pads: Pads, value: float = 0.0) -> Tensor:
        return self.pad(x, [(0, 0), (0, 0), *pads], "constant", value)

    def batch_norm(
        self, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float
    ) -> Tensor:
        """`batch_norm` in evaluation."""
        return F.batch_norm(x, mean, variance, scale, bias, eps=epsilon)

    def instance_norm(self, x: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        """`instance_norm`."""
        return F.instance_norm(x, weight=scale, bias=bias, eps=epsilon)

    def layer_norm(self, x: Tensor, scale: Tensor, bias: Tensor | None, axis: int, epsilon: float) -> Tensor:
        """`layer_norm`."""
        return F.layer_norm(x, extents(x)[axis:], scale, bias, epsilon)

    def take(self, x: Tensor, indices: np.ndarray, axis: int) -> Tensor:
        """`narrow` or `index_select`."""
        steps = np.diff(indices)
        if len(indices) and (steps == 1).all():
            return x.narrow(axis, int(indices[0]), len(indices))
        return x.index_select(axis, torch.tensor(indices.copy(), device=x.device))


class TorchNetwork(torch.nn.Module):
    """A network as a module; its weights are buffers, so that `to` moves and converts them."""

    def __init__(self, net: TranslatedNetwork) -> None:
        super().__init__()
        self.net, self.backend = net, TorchBackend()
        self.order = list(net.weights)
        for k, name in enumerate(self.order):
            self.register_buffer(f"w{k}", torch.from_numpy(np.array(net.weights[name])))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs, in order."""
        weights = {name: getattr(self, f"w{k}") for k, name in enumerate(self.order)}
        return tuple(evaluate(self.net, self.backend, weights, inputs))
