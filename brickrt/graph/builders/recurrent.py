"""LSTM, GRU and RNN: the products of what a layer reads are one matrix product, its steps a `Recurrence`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.arithmetic.activation import (
    elu,
    hard_sigmoid,
    leaky_relu,
    relu,
    softplus,
    softsign,
    thresholded_relu,
)
from brickrt.graph.builders.common import convert, elementwise, optional, take, transpose, uses, view, wide
from brickrt.graph.builders.integers.layer_weights import LayerWeights, dequantized_weights
from brickrt.graph.builders.integers.quantized_tensors import note_moved
from brickrt.graph.builders.scalar import (
    F32,
    Unary,
    add,
    greater,
    less,
    like,
    maximum,
    minimum,
    mul,
    sigmoid,
    sub,
    tanh,
    where,
)
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr, arg, cast
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat
from brickrt.ops.operators.recurrence import Recurrence


def _affine(x: Expr, alpha: float = 1.0, beta: float = 0.0) -> Expr:
    return add(mul(x, like(x, alpha)), like(x, beta))


def _scaled_tanh(x: Expr, alpha: float = 1.0, beta: float = 1.0) -> Expr:
    return mul(like(x, alpha), tanh(mul(x, like(x, beta))))


ACTIVATIONS: dict[str, tuple[int, Callable[..., Expr]]] = {
    "sigmoid": (0, sigmoid),
    "tanh": (0, tanh),
    "relu": (0, relu),
    "softsign": (0, softsign),
    "softplus": (0, softplus),
    "leakyrelu": (1, leaky_relu),
    "thresholdedrelu": (1, thresholded_relu),
    "elu": (1, elu),
    "affine": (2, _affine),
    "scaledtanh": (2, _scaled_tanh),
    "hardsigmoid": (2, hard_sigmoid),
}
"""How many of alpha and beta an activation takes, and its formula."""

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class Cell:
    """What kind of layer it is. `steps(functions, node, after)` are the states after a step, as `Recurrence` has them:
    the first of them is operand `after`; `reset(functions)` is what it multiplies with the weights of the last gate.
    The two biases of the gates that are not `apart`, so many last ones, are added."""

    gates: int
    defaults: tuple[str, ...]
    states: int
    steps: Callable[[Sequence[Unary], OnnxNode, int], tuple[Expr, ...]]
    apart: int = 0
    reset: Callable[[Sequence[Unary]], Expr] | None = None


def _value(k: int) -> Expr:
    return arg(k, F32)


def _lstm(functions: Sequence[Unary], node: OnnxNode, after: int) -> tuple[Expr, ...]:
    """Gates input, output, forget, cell; the cell is the first state. It is not clipped."""
    of_gate, of_cell, of_output = functions
    i, o, f, g = (add(_value(k), _value(4 + k)) for k in range(4))
    read = of_gate(i)
    kept = sub(like(read, 1), read) if node.attrs.get("input_forget") else of_gate(f)
    return add(mul(kept, _value(8)), mul(read, of_cell(g))), mul(of_gate(o), of_output(_value(after)))


def _gru(functions: Sequence[Unary], node: OnnxNode, after: int) -> tuple[Expr, ...]:
    """Gates update, reset, hidden; what the last one multiplies is reset already."""
    return (_updated(functions, _value(5)),)


def _reset_product(functions: Sequence[Unary], node: OnnxNode, after: int) -> tuple[Expr, ...]:
    """The same where the product with the state is reset."""
    return (_updated(functions, mul(_of_gate(functions, 1), _value(5))),)


def _updated(functions: Sequence[Unary], fed_back: Expr) -> Expr:
    """The state of a GRU after a step, by what the hidden gate adds to what it reads."""
    z, new = _of_gate(functions, 0), functions[1](add(_value(2), fed_back))
    return add(mul(sub(like(z, 1), z), new), mul(z, _value(6)))


def _of_gate(functions: Sequence[Unary], gate: int) -> Expr:
    """The value of a GRU's gate."""
    return functions[0](add(_value(gate), _value(3 + gate)))


def _reset_state(functions: Sequence[Unary]) -> Expr:
    """The state of a GRU before a step, reset."""
    return mul(_of_gate(functions, 1), _value(6))


def _rnn(functions: Sequence[Unary], node: OnnxNode, after: int) -> tuple[Expr, ...]:
    """One gate."""
    return (functions[0](add(_value(0), _value(1))),)


LSTM = Cell(4, ("sigmoid", "tanh", "tanh"), 2, _lstm)
GRU = Cell(3, ("sigmoid", "tanh"), 1, _gru, reset=_reset_state)
RESET_PRODUCT_GRU = Cell(3, ("sigmoid", "tanh"), 1, _reset_product, apart=1)
RNN = Cell(1, ("tanh",), 1, _rnn)


@builds("LSTM")
def lstm(b: Builder, node: OnnxNode) -> tuple[str, ...]:
    """Y, Y_h, Y_c."""
    return recurrent_layer(b, node, LSTM, _weights(b, node))


@builds("GRU")
def gru(b: Builder, node: OnnxNode) -> tuple[str, ...]:
    """Y, Y_h."""
    cell = RESET_PRODUCT_GRU if node.attrs.get("linear_before_reset") else GRU
    return recurrent_layer(b, node, cell, _weights(b, node))


@builds("RNN")
def rnn(b: Builder, node: OnnxNode) -> tuple[str, ...]:
    """Y, Y_h."""
    return recurrent_layer(b, node, RNN, _weights(b, node))


def _weights(b: Builder, node: OnnxNode) -> LayerWeights:
    """The weights of a standard node. Raises NeedValue for what is no constant, Unsupported where the host runs it."""
    if not b.cpu_operators:
        raise Unsupported("recurrent layers on this device")
    stored = dequantized_weights(b, node)
    if stored is not None:
        return stored
    read, fed_back = (b.value(name).astype(F32, copy=False) for name in node.inputs[1:3])
    return LayerWeights(read, fed_back)


def recurrent_layer(b: Builder, node: OnnxNode, cell: Cell, given: LayerWeights) -> tuple[str, ...]:
    """The outputs of a layer. Raises Unsupported for what the host does better or alone."""
    backward = _backward(node)
    x, swapped = wide(b, node.inputs[0]), bool(node.attrs.get("layout"))
    if b.type(x).dtype != F32 or b.type(x).rank != 3:
        raise Unsupported(f"a recurrent layer over {b.type(x)}")
    time, batch, _ = b.type(transpose(b, x, (1, 0, 2)) if swapped else x).shape
    weights, fed_back, bias = given.read, given.fed_back, _biases(b, node, cell, given)
    if 0 in (time, batch, *weights.shape, *fed_back.shape) or len(weights) != len(backward):
        raise Unsupported(f"a recurrent layer over {b.type(x)} with weights {list(weights.shape)}")
    live = _live(b, node, time, batch)
    functions = _functions(node, cell, len(backward))
    steps, reset = _steps(node, cell, functions, bool(live)), cell.reset and cell.reset(functions)
    inner = bias[1].any()
    products = _products(b, _time_first(b, x) if swapped else x, given, bias[0])
    operands = [products, b.constant(np.ascontiguousarray(fed_back.transpose(0, 2, 1)))]
    operands += [b.constant(bias[1])] if inner else []
    operands += [b.constant(given.scale)] if given.scale is not None else []
    operands += [live] if live else []
    shape = (len(backward), batch, fed_back.shape[-1])
    operands += [_initial(b, node, s, shape, swapped) for s in reversed(range(cell.states))]
    kinds = bool(inner), bool(live), given.scale is not None
    op = Recurrence(cell.gates, backward, steps, *kinds, given.state_bytes, reset)
    out = b.emit(op, *operands)
    return _outputs(b, node, out, live, swapped)


def _live(b: Builder, node: OnnxNode, time: int, batch: int) -> str:
    """1 for the steps [T, B] that a sequence has, 0 for others; '' where all have all."""
    lengths = optional(node, 4)
    known = b.known(lengths)
    if not lengths or (known is not None and np.all(known == time)):
        return ""
    if b.type(lengths).shape != (batch,):
        raise ValueError(f"sequence_lens {b.type(lengths)}, expected [{batch}]")
    steps = b.constant(np.arange(time, dtype=np.int32)[:, None])
    return elementwise(
        b, lambda t, n: cast(less(t, n), F32), steps, convert(b, lengths, np.dtype(np.int32)), hint="live"
    )


def _steps(node: OnnxNode, cell: Cell, functions: Sequence[Unary], masked: bool) -> tuple[Expr, ...]:
    """The states after a step; those of a sequence that does not have it stay. Raises Unsupported for peepholes."""
    if len(node.inputs) > 7 and node.inputs[7]:
        raise Unsupported("peepholes")
    before = 2 * cell.gates
    live = before + cell.states
    steps = cell.steps(functions, node, live + masked)
    if not masked:
        return steps
    has = greater(_value(live), like(_value(live), 0))
    return tuple(where(has, step, _value(before + s)) for s, step in enumerate(steps))


def _biases(b: Builder, node: OnnxNode, cell: Cell, given: LayerWeights) -> tuple[np.ndarray, np.ndarray]:
    """Two biases [D, G·H]: of the products of what the layer reads, and of those of the state, which is not 0 where it
    cannot be added to the other. Raises NeedValue for what is no constant, ValueError for weights that do not fit."""
    weights, fed_back = given.read, given.fed_back
    hidden = node.attrs["hidden_size"] if "hidden_size" in node.attrs else fed_back.shape[-1]
    if weights.ndim != 3 or fed_back.shape != (*weights.shape[:1], cell.gates * hidden, hidden):
        raise ValueError(f"hidden_size is {hidden}, the weights are {list(weights.shape)} and {list(fed_back.shape)}")
    wide = cell.gates * hidden
    both = (
        b.value(node.inputs[3]).astype(F32, copy=False)
        if optional(node, 3)
        else np.zeros((len(weights), 2 * wide), F32)
    )
    if both.shape != (len(weights), 2 * wide):
        raise ValueError(f"hidden_size is {hidden}, the bias is {list(both.shape)}")
    outer, inner = both[:, :wide].copy(), both[:, wide:].copy()
    joined = slice(0, wide - cell.apart * hidden)
    outer[:, joined] += inner[:, joined]
    inner[:, joined] = 0
    return outer, inner


def _backward(node: OnnxNode) -> tuple[bool, ...]:
    """Whether each direction begins with the last step."""
    return DIRECTIONS[str(node.attrs.get("direction", "forward"))]


def _functions(node: OnnxNode, cell: Cell, directions: int) -> list[Unary]:
    """The activations of a direction. Raises Unsupported where those of another one differ."""
    alphas, betas = (list(node.attrs.get(f"activation_{name}") or ()) for name in ("alpha", "beta"))
    clip, found = node.attrs.get("clip"), []
    for name in node.attrs.get("activations") or cell.defaults * directions:
        count, _ = ACTIVATIONS[str(name).lower()]
        given = [values.pop(0) for values in (alphas, betas)[:count] if values]
        found.append((str(name).lower(), tuple(float(v) for v in given)))
    each = len(cell.defaults)
    if len(found) != each * directions or found != found[:each] * directions:
        raise Unsupported("activations that differ between directions")
    functions: list[Unary] = [partial(_activated, ACTIVATIONS[name][1], given) for name, given in found[:each]]
    last = functions[2:]  # what a cell gives is not clipped
    return [partial(_clipped, function, float(clip)) for function in functions[:2]] + last if clip else functions


def _activated(formula: Callable[..., Expr], given: tuple[float, ...], x: Expr) -> Expr:
    return formula(x, *given)


def _clipped(function: Unary, clip: float, x: Expr) -> Expr:
    return function(maximum(minimum(x, like(x, clip)), like(x, -clip)))


def _time_first(b: Builder, x: str) -> str:
    """[B, T, I] as [T, B, I]."""
    turned = transpose(b, x, (1, 0, 2))
    note_moved(b, x, turned, lambda name: transpose(b, name, (1, 0, 2)))
    return turned


def _products(b: Builder, x: str, given: LayerWeights, bias: np.ndarray) -> str:
    """[T, B, I] times all weights, with bias: [T, B, D·G·H]."""
    time, batch, width = b.type(x).shape
    rows, shift = view(b, x, (time * batch, width)), b.constant(bias.reshape(-1))
    if given.product is not None:
        note_moved(b, x, rows, lambda name: view(b, name, (time * batch, width)))
        y = given.product(b, rows, shift)
    else:
        matrix = np.ascontiguousarray(given.read.reshape(-1, given.read.shape[-1]).T)
        y = b.emit(MatMul(bias=True), rows, b.constant(matrix), shift)
    return view(b, y, (time, batch, bias.size))


def _initial(b: Builder, node: OnnxNode, state: int, shape: tuple[int, int, int], swapped: bool) -> str:
    """Where ONNX's state 0 or 1 begins, [D, B, H]."""
    name = optional(node, 5 + state)
    if not name:
        return b.constant(np.zeros(shape, F32))
    value = convert(b, name, F32)
    value = transpose(b, value, (1, 0, 2)) if swapped else value
    if b.type(value).shape != shape:
        raise ValueError(f"an initial state {b.type(name)}, expected {list(shape)}")
    return value


def _outputs(b: Builder, node: OnnxNode, out: str, live: str, swapped: bool) -> tuple[str, ...]:
    """All steps of the last state, and the last step of each, in the type and order that the node gives. Sequences have
    zeros in steps that they lack, and those without a step have no last one."""
    states, time, directions, batch, hidden = b.type(out).shape
    found = ["" for _ in node.outputs]
    if uses(b, node, 0):
        every = view(b, take(b, out, {0: (states - 1,)}), (time, directions, batch, hidden))
        every = _where(b, view(b, live, (time, 1, batch, 1)), every) if live else every
        found[0] = transpose(b, every, (2, 0, 1, 3)) if swapped else every
    for k, state in enumerate(reversed(range(states)), 1):
        if not uses(b, node, k):
            continue
        ends = [{0: (state,), 1: (0 if back else time - 1,), 2: (d,)} for d, back in enumerate(_backward(node))]
        parts = [view(b, take(b, out, end), (1, batch, hidden)) for end in ends]
        last = parts[0] if len(parts) == 1 else b.emit(Concat(0), *parts)
        last = _where(b, view(b, take(b, live, {0: (0,)}), (1, batch, 1)), last) if live else last
        found[k] = transpose(b, last, (1, 0, 2)) if swapped else last
    dtype = b.type(node.inputs[0]).dtype
    return tuple(convert(b, name, dtype) if name else "" for name in found)


def _where(b: Builder, live: str, x: str) -> str:
    """`x` where `live` is not 0, else 0."""
    return elementwise(b, lambda m, v: where(greater(m, like(m, 0)), v, like(v, 0)), live, x)
