"""LSTM, GRU and RNN in full, where ONNX's reference ignores lengths, activations, clipping and coupled gates."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from brickrt.graph.host.host_operator import Attributes, HostOperator, evaluates
from brickrt.graph.host.node_arrays import Arrays, shape_of

Activation = Callable[[np.ndarray], np.ndarray]
State = tuple[np.ndarray, ...]

_ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., np.ndarray]]] = {
    "sigmoid": ((), lambda x: 0.5 * np.tanh(0.5 * x) + 0.5),
    "tanh": ((), np.tanh),
    "relu": ((), lambda x: np.maximum(x, 0)),
    "softsign": ((), lambda x: x / (1 + np.abs(x))),
    "softplus": ((), lambda x: np.logaddexp(x, 0).astype(x.dtype)),
    "leakyrelu": ((0.01,), lambda x, a: np.where(x < 0, a * x, x)),
    "thresholdedrelu": ((1.0,), lambda x, a: np.where(x > a, x, 0)),
    "elu": ((1.0,), lambda x, a: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x)),
    "affine": ((1.0, 0.0), lambda x, a, b: a * x + b),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: a * np.tanh(b * x)),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: np.clip(a * x + b, 0, 1)),
}
"""Default alpha and beta, and the function."""


def _products(arrays: Arrays, at: Attributes) -> int:
    x, w, r = (shape_of(arrays, k) for k in range(3))
    return x[0] * x[1] * (math.prod(w) + math.prod(r))


RECURRENT = HostOperator(elements=None, products=_products, temporaries=6)


@dataclass(frozen=True)
class _Direction:
    """Weights and options of one direction; the recurrent weights are transposed."""

    weights: np.ndarray
    input_bias: np.ndarray
    state_bias: np.ndarray
    peepholes: Sequence[np.ndarray]
    functions: Sequence[Activation]
    options: dict[str, Any]

    def activate(self, k: int, x: np.ndarray) -> np.ndarray:
        clip = self.options.get("clip")
        return self.functions[k](np.clip(x, -clip, clip) if clip else x)


class _Recurrent(OpRun):
    """Runs all directions over all time steps; a subclass has the step."""

    defaults: tuple[str, ...] = ("tanh",)
    states = 1

    def _run(self, x, w, r, bias=None, lengths=None, h=None, c=None, peepholes=None, **options: Any):
        hidden = options.get("hidden_size")
        if hidden is not None and hidden != r.shape[2]:
            raise ValueError(f"hidden_size is {hidden}, the recurrent weights have {r.shape[2]} columns")
        swapped = [None if a is None else a.swapaxes(0, 1) if options.get("layout") else a for a in (x, h, c)]
        x, initial = swapped[0], swapped[1 : 1 + self.states]
        lengths = np.full(x.shape[1], x.shape[0]) if lengths is None else _checked(lengths, x.shape[0])
        parts = []
        for d, direction in enumerate(self._directions(w, r, bias, peepholes, options)):
            state = tuple(np.zeros((x.shape[1], r.shape[2]), x.dtype) if s is None else s[d] for s in initial)
            backward = d == 1 or options.get("direction") == "reverse"
            parts.append(self._sweep(direction, x, w[d], lengths, state, backward))
        y = np.stack([part[0] for part in parts], 1)
        last = [np.stack(s) for s in zip(*(part[1] for part in parts), strict=True)]
        if options.get("layout"):
            y, last = y.transpose(2, 0, 1, 3), [s.swapaxes(0, 1) for s in last]
        return tuple(a.astype(x.dtype, copy=False) for a in (y, *last))[: len(self.onnx_node.output)]

    def _directions(self, w, r, bias, peepholes, options: dict[str, Any]) -> list[_Direction]:
        functions, each = _functions(options, self.defaults * len(w)), len(self.defaults)
        found = []
        for d in range(len(w)):
            of_input, of_state = np.split(np.zeros(2 * w.shape[1], w.dtype) if bias is None else bias[d], 2)
            holes = [np.zeros((), w.dtype)] * 3 if peepholes is None else np.split(peepholes[d], 3)
            chosen = functions[each * d : each * (d + 1)]
            found.append(_Direction(np.ascontiguousarray(r[d].T), of_input, of_state, holes, chosen, options))
        return found

    def _sweep(
        self, d: _Direction, x: np.ndarray, w: np.ndarray, lengths: np.ndarray, state: State, backward: bool
    ) -> tuple[np.ndarray, State]:
        steps = np.arange(x.shape[0])[:, None]
        order = np.where(backward & (steps < lengths), lengths - 1 - steps, steps)[:, :, None]
        products = np.take_along_axis(x, order, 0) @ w.T + d.input_bias
        y = np.zeros((*x.shape[:2], state[0].shape[1]), state[0].dtype)
        for t, product in enumerate(products):
            live = (t < lengths)[:, None]
            stepped = self.step(d, product, state)
            state = tuple(np.where(live, new, old) for new, old in zip(stepped, state, strict=True))
            y[t] = np.where(live, state[0], 0)
        # a sequence without a step has no last value: ONNX leaves it open, ONNX Runtime gives zeros
        some = (lengths > 0)[:, None]
        return np.take_along_axis(y, order, 0), tuple(np.where(some, s, 0) for s in state)

    @abstractmethod
    def step(self, d: _Direction, product: np.ndarray, state: State) -> State:
        """The state after a step; `product` is the input times its weights, with its bias, for all gates."""


@evaluates(RECURRENT, "LSTM")
class LSTM(_Recurrent):
    """Gates in the order input, output, forget, cell; peepholes input, output, forget. The cell is not clipped."""

    defaults = ("sigmoid", "tanh", "tanh")
    states = 2

    def step(self, d: _Direction, product: np.ndarray, state: State) -> State:
        """Uses activations in the order gates, cell input, output."""
        h, c = state
        i, o, f, g = np.split(product + h @ d.weights + d.state_bias, 4, axis=1)
        of_input, of_output, of_forget = d.peepholes
        i = d.activate(0, i + of_input * c)
        f = 1 - i if d.options.get("input_forget") else d.activate(0, f + of_forget * c)
        c = f * c + i * d.activate(1, g)
        return d.activate(0, o + of_output * c) * d.functions[2](c), c


@evaluates(RECURRENT, "GRU")
class GRU(_Recurrent):
    """Gates in the order update, reset, hidden."""

    defaults = ("sigmoid", "tanh")

    def step(self, d: _Direction, product: np.ndarray, state: State) -> State:
        """Uses activations in the order gates, hidden."""
        (h,) = state
        split = 2 * h.shape[1]
        gates = product[:, :split] + h @ d.weights[:, :split] + d.state_bias[:split]
        z, r = np.split(d.activate(0, gates), 2, axis=1)
        weights, bias = d.weights[:, split:], d.state_bias[split:]
        reset = r * (h @ weights + bias) if d.options.get("linear_before_reset") else (r * h) @ weights + bias
        return ((1 - z) * d.activate(1, product[:, split:] + reset) + z * h,)


@evaluates(RECURRENT, "RNN")
class RNN(_Recurrent):
    """One gate."""

    def step(self, d: _Direction, product: np.ndarray, state: State) -> State:
        """The only activation, of the input and state together."""
        (h,) = state
        return (d.activate(0, product + h @ d.weights + d.state_bias),)


def _checked(lengths: np.ndarray, steps: int) -> np.ndarray:
    wrong = lengths[(lengths < 0) | (lengths > steps)]
    if len(wrong):
        raise ValueError(f"sequence_lens has {wrong[0]}, the input has {steps} steps")
    return lengths


def _functions(options: dict[str, Any], defaults: Sequence[str]) -> list[Activation]:
    """The activations; each that has parameters takes its own from the lists of the node, as far as they reach."""
    lists = [iter(options.get(name) or ()) for name in ("activation_alpha", "activation_beta")]
    functions = []
    for name in options.get("activations") or defaults:
        parameters, function = _ACTIVATIONS[name.lower()]
        values = [np.float32(next(given, default)) for given, default in zip(lists, parameters)]
        functions.append(_bound(function, values))
    return functions


def _bound(function: Callable[..., np.ndarray], values: Sequence[np.floating]) -> Activation:
    return lambda x: function(x, *values)
