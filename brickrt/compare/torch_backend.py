"""PyTorch as a `translate.Backend`, and networks as modules that it can trace and compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from brickrt.compare.translate import Ints, TranslatedNetwork, evaluate

_CONV = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
_TRANSPOSE = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}
_MAX_POOL: dict[int, Any] = {3: F.max_pool1d, 4: F.max_pool2d, 5: F.max_pool3d}
_AVERAGE_POOL: dict[int, Any] = {3: F.avg_pool1d, 4: F.avg_pool2d, 5: F.avg_pool3d}
_PAD = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": torch.abs, "Add": torch.add, "Ceil": torch.ceil, "Cos": torch.cos, "Div": torch.div, "Erf": torch.erf,
    "Exp": torch.exp, "Floor": torch.floor, "Log": torch.log, "Max": torch.maximum, "Min": torch.minimum,
    "Mul": torch.mul, "Neg": torch.neg, "Pow": torch.pow, "Reciprocal": torch.reciprocal, "Relu": torch.relu,
    "Sigmoid": torch.sigmoid, "Sin": torch.sin, "Sqrt": torch.sqrt, "Sub": torch.sub, "Tanh": torch.tanh,
    "Where": torch.where,
}  # fmt: skip


class TorchBackend:
    """See `translate.Backend`."""

    @property
    def elementwise(self) -> Mapping[str, Callable[..., Any]]:
        return _ELEMENTWISE

    def constant(self, array: np.ndarray, like: Tensor) -> Tensor:
        dtype = like.dtype if array.dtype.kind == "f" else None
        return torch.tensor(array, dtype=dtype, device=like.device)

    def pad(self, x: Tensor, pads: Sequence[tuple[int, int]], mode: str, value: float) -> Tensor:
        if mode == "constant":
            return F.pad(x, [end for pair in reversed(pads) for end in pair], value=value)
        inner = [end for pair in reversed(pads[2:]) for end in pair]
        return F.pad(x, inner, _PAD[mode])

    def conv(self, x: Tensor, w: Tensor, b: Tensor | None, strides: Ints, dilations: Ints, groups: int) -> Tensor:
        return _CONV[x.ndim](x, w, b, tuple(strides), 0, tuple(dilations), groups)

    def conv_transpose(
        self, x: Tensor, w: Tensor, b: Tensor | None, strides: Ints, dilations: Ints, groups: int
    ) -> Tensor:
        return _TRANSPOSE[x.ndim](x, w, b, tuple(strides), 0, 0, groups, tuple(dilations))

    def pool(self, kind: str, x: Tensor, kernel: Ints, strides: Ints, dilations: Ints) -> Tensor:
        if kind == "max":
            return _MAX_POOL[x.ndim](x, tuple(kernel), tuple(strides), 0, tuple(dilations))
        if any(d != 1 for d in dilations):
            raise LookupError("no translation of dilated averages")
        return _AVERAGE_POOL[x.ndim](x, tuple(kernel), tuple(strides))

    def reduce(self, kind: str, x: Tensor, axes: Ints, keepdims: bool) -> Tensor:
        function: Any = {"mean": torch.mean, "sum": torch.sum, "max": torch.amax, "min": torch.amin}[kind]
        return function(x, dim=tuple(axes), keepdim=keepdims)

    def softmax(self, x: Tensor, axis: int) -> Tensor:
        return torch.softmax(x, axis)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul(a, b)

    def reshape(self, x: Tensor, shape: Ints) -> Tensor:
        return x.reshape(tuple(shape))

    def transpose(self, x: Tensor, axes: Ints) -> Tensor:
        return x.permute(tuple(axes))

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        return torch.cat(list(parts), axis)

    def expand(self, x: Tensor, shape: Ints) -> Tensor:
        return x.expand(tuple(shape))

    def take(self, x: Tensor, indices: np.ndarray, axis: int) -> Tensor:
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
        weights = {name: getattr(self, f"w{k}") for k, name in enumerate(self.order)}
        return tuple(evaluate(self.net, self.backend, weights, inputs))
