"""JAX as a `Backend`: how XLA is given a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from brickrt.compare.backend import Ints, Pads, SlidingWindow
from brickrt.compare.translate import TranslatedNetwork, evaluate

_PAD = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": jnp.abs, "Ceil": jnp.ceil, "Cos": jnp.cos, "Erf": lax.erf, "Exp": jnp.exp, "Floor": jnp.floor,
    "HardSwish": jax.nn.hard_swish, "LeakyRelu": jax.nn.leaky_relu, "Log": jnp.log, "Max": jnp.maximum,
    "Min": jnp.minimum, "Neg": jnp.negative, "Reciprocal": jnp.reciprocal, "Relu": jax.nn.relu,
    "Sigmoid": jax.nn.sigmoid, "Sin": jnp.sin, "Sqrt": jnp.sqrt, "Tanh": jnp.tanh, "Where": jnp.where,
    "Clip": jnp.clip, "Gelu": jax.nn.gelu,
    "ReduceMax": jnp.max, "ReduceMean": jnp.mean, "ReduceMin": jnp.min, "ReduceSum": jnp.sum,
    "Concat": jnp.concatenate, "Expand": jnp.broadcast_to, "Reshape": jnp.reshape, "Softmax": jax.nn.softmax,
    "Transpose": jnp.transpose,
}  # fmt: skip


class JaxBackend:
    """JAX's functions by the names of `Backend`; norms are written out, since XLA fuses them.

    `precision` is that of products: None lets XLA choose, "highest" is float32.
    """

    def __init__(self, precision: str | None = "highest") -> None:
        self.precision = precision

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Those of `jax.numpy`, `jax.nn` and `jax.lax`."""
        return {**_FUNCTIONS, "MatMul": partial(jnp.matmul, precision=self.precision)}

    def constant(self, array: np.ndarray, like: jax.Array) -> jax.Array:
        """A constant of the trace."""
        return jnp.asarray(array, like.dtype if array.dtype.kind == "f" else None)

    def pad(self, x: jax.Array, pads: Pads, mode: str, value: float) -> jax.Array:
        """`pad`."""
        return jnp.pad(x, pads, constant_values=value) if mode == "constant" else jnp.pad(x, pads, _PAD[mode])

    def conv(self, x: jax.Array, w: jax.Array, b: jax.Array | None, window: SlidingWindow, groups: int) -> jax.Array:
        """`conv_general_dilated`."""
        y = lax.conv_general_dilated(
            x, w, window.strides, window.pads, rhs_dilation=window.dilations, feature_group_count=groups,
            precision=self.precision,
        )  # fmt: skip
        return y if b is None else y + _column(b, x)

    def conv_transpose(
        self, x: jax.Array, w: jax.Array, b: jax.Array | None, window: SlidingWindow, groups: int, extra: Ints
    ) -> jax.Array:
        """As the gradient of a convolution: the input spread by the strides, the kernel turned around."""
        flipped = jnp.flip(w, tuple(range(2, w.ndim))).reshape(groups, w.shape[0] // groups, *w.shape[1:])
        turned = jnp.swapaxes(flipped, 1, 2).reshape(-1, w.shape[0] // groups, *w.shape[2:])
        reach = [d * (k - 1) for k, d in zip(window.kernel, window.dilations, strict=True)]
        pads = [(r - before, r - after + e) for r, (before, after), e in zip(reach, window.pads, extra, strict=True)]
        y = lax.conv_general_dilated(
            x, turned, (1,) * (x.ndim - 2), pads, lhs_dilation=window.strides, rhs_dilation=window.dilations,
            feature_group_count=groups, precision=self.precision,
        )  # fmt: skip
        return y if b is None else y + _column(b, x)

    def max_pool(self, x: jax.Array, window: SlidingWindow) -> jax.Array:
        """`reduce_window`."""
        return _over_windows(x, window, -jnp.inf, lax.max)

    def average_pool(self, x: jax.Array, window: SlidingWindow, counted: bool) -> jax.Array:
        """`reduce_window`, over how many there are."""
        sums = _over_windows(x, window, 0.0, lax.add)
        if counted:
            return sums / float(np.prod(window.kernel))
        return sums / _over_windows(jnp.ones((1, 1, *x.shape[2:]), x.dtype), window, 0.0, lax.add)

    def batch_norm(
        self, x: jax.Array, scale: jax.Array, bias: jax.Array, mean: jax.Array, variance: jax.Array, epsilon: float
    ) -> jax.Array:
        """One multiplication and one addition."""
        factor = scale / jnp.sqrt(variance + epsilon)
        return x * _column(factor, x) + _column(bias - mean * factor, x)

    def instance_norm(self, x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float) -> jax.Array:
        """By mean and variance."""
        return _normalized(x, range(2, x.ndim), epsilon) * _column(scale, x) + _column(bias, x)

    def layer_norm(
        self, x: jax.Array, scale: jax.Array, bias: jax.Array | None, axis: int, epsilon: float
    ) -> jax.Array:
        """By mean and variance."""
        y = _normalized(x, range(axis, x.ndim), epsilon) * scale
        return y if bias is None else y + bias

    def take(self, x: jax.Array, indices: np.ndarray, axis: int) -> jax.Array:
        """`slice_in_dim` or `take`."""
        if len(indices) and (np.diff(indices) == 1).all():
            return lax.slice_in_dim(x, int(indices[0]), int(indices[-1]) + 1, axis=axis)
        return jnp.take(x, indices, axis)


def _column(values: jax.Array, x: jax.Array) -> jax.Array:
    """A value per channel of x, as an operand."""
    return values.reshape(1, -1, *(1,) * (x.ndim - 2))


def _over_windows(x: jax.Array, window: SlidingWindow, start: float, combine: Callable[..., Any]) -> jax.Array:
    kernel, strides, dilations = ((1, 1, *values) for values in (window.kernel, window.strides, window.dilations))
    pads = ((0, 0), (0, 0), *window.pads)
    first = jnp.asarray(start, x.dtype)
    return lax.reduce_window(x, first, combine, kernel, strides, pads, window_dilation=dilations)


def _normalized(x: jax.Array, axes: Ints, epsilon: float) -> jax.Array:
    centred = x - jnp.mean(x, tuple(axes), keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred * centred, tuple(axes), keepdims=True) + epsilon)


def jax_network(
    net: TranslatedNetwork, dtype: Any = jnp.float32, precision: str | None = "highest"
) -> Callable[..., list]:
    """A compiled function of the network's inputs; the weights are its arguments, so that XLA keeps them in memory."""
    backend = JaxBackend(precision)
    weights = {name: jnp.asarray(array, dtype) for name, array in net.weights.items()}
    function = jax.jit(lambda held, *inputs: evaluate(net, backend, held, inputs))
    return lambda *inputs: function(weights, *inputs)
