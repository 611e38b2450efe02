"""JAX as a `translate.Backend`: how XLA is given a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from brickrt.compare.translate import Ints, TranslatedNetwork, evaluate

_PAD = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": jnp.abs, "Add": jnp.add, "Ceil": jnp.ceil, "Cos": jnp.cos, "Div": jnp.divide, "Erf": lax.erf,
    "Exp": jnp.exp, "Floor": jnp.floor, "Log": jnp.log, "Max": jnp.maximum, "Min": jnp.minimum,
    "Mul": jnp.multiply, "Neg": jnp.negative, "Pow": jnp.power, "Reciprocal": lambda x: 1 / x, "Relu": jax.nn.relu,
    "Sigmoid": jax.nn.sigmoid, "Sin": jnp.sin, "Sqrt": jnp.sqrt, "Sub": jnp.subtract, "Tanh": jnp.tanh,
    "Where": jnp.where,
}  # fmt: skip


class JaxBackend:
    """See `translate.Backend`. `precision` is that of products: None lets XLA choose, "highest" is float32."""

    @property
    def elementwise(self) -> Mapping[str, Callable[..., Any]]:
        return _ELEMENTWISE

    def __init__(self, precision: str | None = "highest") -> None:
        self.precision = precision

    def constant(self, array: np.ndarray, like: jax.Array) -> jax.Array:
        return jnp.asarray(array, like.dtype if array.dtype.kind == "f" else None)

    def pad(self, x: jax.Array, pads: Sequence[tuple[int, int]], mode: str, value: float) -> jax.Array:
        return jnp.pad(x, pads, constant_values=value) if mode == "constant" else jnp.pad(x, pads, _PAD[mode])

    def conv(
        self, x: jax.Array, w: jax.Array, b: jax.Array | None, strides: Ints, dilations: Ints, groups: int
    ) -> jax.Array:
        y = lax.conv_general_dilated(
            x, w, tuple(strides), "VALID", rhs_dilation=tuple(dilations), feature_group_count=groups,
            precision=self.precision,
        )  # fmt: skip
        return y if b is None else y + b.reshape(1, -1, *(1,) * (x.ndim - 2))

    def conv_transpose(
        self, x: jax.Array, w: jax.Array, b: jax.Array | None, strides: Ints, dilations: Ints, groups: int
    ) -> jax.Array:
        """As the gradient of a convolution: the input spread by the strides, the kernel turned around."""
        flipped = jnp.flip(w, tuple(range(2, w.ndim))).reshape(groups, w.shape[0] // groups, *w.shape[1:])
        turned = jnp.swapaxes(flipped, 1, 2).reshape(-1, w.shape[0] // groups, *w.shape[2:])
        pads = [(d * (k - 1),) * 2 for k, d in zip(w.shape[2:], dilations, strict=True)]
        y = lax.conv_general_dilated(
            x, turned, (1,) * (x.ndim - 2), pads, lhs_dilation=tuple(strides), rhs_dilation=tuple(dilations),
            feature_group_count=groups, precision=self.precision,
        )  # fmt: skip
        return y if b is None else y + b.reshape(1, -1, *(1,) * (x.ndim - 2))

    def pool(self, kind: str, x: jax.Array, kernel: Ints, strides: Ints, dilations: Ints) -> jax.Array:
        start, combine = (-jnp.inf, lax.max) if kind == "max" else (0.0, lax.add)
        windows = [(1, 1, *values) for values in (kernel, strides, dilations)]
        y = lax.reduce_window(
            x, jnp.asarray(start, x.dtype), combine, windows[0], windows[1], "VALID", window_dilation=windows[2]
        )
        return y if kind == "max" else y / float(np.prod(kernel))

    def reduce(self, kind: str, x: jax.Array, axes: Ints, keepdims: bool) -> jax.Array:
        function: Any = {"mean": jnp.mean, "sum": jnp.sum, "max": jnp.max, "min": jnp.min}[kind]
        return function(x, axis=tuple(axes), keepdims=keepdims)

    def softmax(self, x: jax.Array, axis: int) -> jax.Array:
        return jax.nn.softmax(x, axis)

    def matmul(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.matmul(a, b, precision=self.precision)

    def reshape(self, x: jax.Array, shape: Ints) -> jax.Array:
        return x.reshape(tuple(shape))

    def transpose(self, x: jax.Array, axes: Ints) -> jax.Array:
        return jnp.transpose(x, tuple(axes))

    def concat(self, parts: Sequence[jax.Array], axis: int) -> jax.Array:
        return jnp.concatenate(list(parts), axis)

    def expand(self, x: jax.Array, shape: Ints) -> jax.Array:
        return jnp.broadcast_to(x, tuple(shape))

    def take(self, x: jax.Array, indices: np.ndarray, axis: int) -> jax.Array:
        if len(indices) and (np.diff(indices) == 1).all():
            return lax.slice_in_dim(x, int(indices[0]), int(indices[-1]) + 1, axis=axis)
        return jnp.take(x, indices, axis)


def jax_network(
    net: TranslatedNetwork, dtype: Any = jnp.float32, precision: str | None = "highest"
) -> Callable[..., list]:
    """A compiled function of the network's inputs; the weights are its arguments, so that XLA keeps them in memory."""
    backend = JaxBackend(precision)
    weights = {name: jnp.asarray(array, dtype) for name, array in net.weights.items()}
    function = jax.jit(lambda held, *inputs: evaluate(net, backend, held, inputs))
    return lambda *inputs: function(weights, *inputs)
