"""Recurrent layers: states that step along time, for LSTM, GRU and plain recurrent networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import evaluate_expr, round_to
from brickrt.ops.epilogue import check_args, count_applies
from brickrt.ops.expr import Arg, Expr, walk
from brickrt.ops.regions import box_shape, columns, settle
from brickrt.ops.types import Boxes, TensorType

F32, F16, S8 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int8)
DIRECTION, BATCH = 2, 3  # dimensions of the output along which nothing hangs together


@dataclass(frozen=True)
class Recurrence(Op):
    """S states of H elements that step along time T, in D directions, for B sequences: float32 [S, T, D, B, H].

    Inputs are the products [T, B, D·G·H] of what the layer reads with its weights, for G gates; the weights [D, H, G·H]
    that the last state is multiplied with in each step; a bias [D, G·H] of these products, if `bias`; their scale
    [D, G·H], if `scaled`, when the weights are int8; what tells steps of time that a sequence has from others, [T, B],
    if `masked`; then for each state where it begins, [D, B, H]. A direction that is `backward` begins with the last
    step of time. Kernels may round the last state of each sequence to `state_bytes` bytes of its largest element before
    they multiply it with weights of bytes: to 16 bits, or 23, which is as near as float32 is.

    `steps` has an expression for each state, computed in this order: `Arg(g)` is the product of what the layer reads
    for gate g, `Arg(G + g)` that of the last state before the step, `Arg(2G + s)` state s before the step, then comes
    the element of [T, B], if `masked`, then state s after the step. With `reset` the weights of the last gate multiply
    the value of that expression, not the last state: it reads what states before the step do, but not `Arg(2G - 1)`,
    the product that comes of it.
    """

    name: ClassVar[str] = "Recurrence"
    gates: int
    backward: tuple[bool, ...]
    steps: tuple[Expr, ...]
    bias: bool = False
    masked: bool = False
    scaled: bool = False
    state_bytes: int = 3
    reset: Expr | None = None

    @property
    def main(self) -> int:
        """Inputs before those that states begin with."""
        return 2 + self.bias + self.scaled + self.masked

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All that a step computes."""
        return self.steps if self.reset is None else (self.reset, *self.steps)

    @property
    def states(self) -> int:
        """S."""
        return len(self.steps)

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """All inputs are float32, but for weights that are float16 or have a scale, and agree in T, B, D, G and H."""
        if self.state_bytes not in (2, 3):
            raise ValueError(f"{self.name}: {self.state_bytes} bytes of a state, not 2 or 3")
        if len(ins) != self.main + self.states or not self.states:
            raise ValueError(f"{self.name}: {len(ins)} inputs, expected {self.main + self.states}")
        products, weights = ins[:2]
        if products.rank != 3 or weights.rank != 3:
            raise ValueError(f"{self.name}: products {products} and weights {weights}; both need three dimensions")
        (time, batch, _), (directions, hidden, _) = products.shape, weights.shape
        wide = self.gates * hidden
        want: list[tuple[int, ...]] = [(time, batch, directions * wide), (directions, hidden, wide)]
        want += (
            [(directions, wide)] * (self.bias + self.scaled)
            + [(time, batch)] * self.masked
            + [(directions, batch, hidden)] * self.states
        )
        kinds = [S8] if self.scaled else [F32, F16]
        fits = [t.shape for t in ins] == want and weights.dtype in kinds
        fits = fits and all(t.dtype == F32 for t in (products, *ins[2:]))
        if not fits or directions != len(self.backward):
            raise ValueError(
                f"{self.name}: {', '.join(map(str, ins))} do not fit {self.gates} gates and the directions"
            )
        self._check_expressions()
        return TensorType((self.states, time, directions, batch, hidden), F32)

    def _check_expressions(self) -> None:
        """Raises ValueError where one reads what it cannot."""
        before = 2 * self.gates + self.states + self.masked
        for number, step in enumerate(self.steps):
            check_args(self.name, step, [F32] * (before + number))
        if self.reset is None:
            return
        check_args(self.name, self.reset, [F32] * before)
        if any(isinstance(e, Arg) and e.index == 2 * self.gates - 1 for e in walk(self.reset)):
            raise ValueError(
                f"{self.name}: what resets the state reads operand {2 * self.gates - 1}, which comes of it"
            )

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """All of time and of the states, for the directions and sequences of the boxes."""
        shape, n = ins[i].shape, len(boxes)
        directions, batch = ((boxes.lo[:, d], boxes.hi[:, d]) for d in (DIRECTION, BATCH))
        if i == 0:
            wide = shape[2] // len(self.backward)
            lo = columns(n, [0], batch[0], directions[0] * wide)
            hi = columns(n, shape[:1], batch[1], directions[1] * wide)
        elif self.masked and i == self.main - 1:
            lo, hi = columns(n, [0], batch[0]), columns(n, shape[:1], batch[1])
        elif i < self.main:
            lo = columns(n, directions[0], [0] * (len(shape) - 1))
            hi = columns(n, directions[1], shape[1:])
        else:
            lo = columns(n, directions[0], batch[0], [0])
            hi = columns(n, directions[1], batch[1], shape[2:])
        return settle(boxes, lo, hi, shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Step by step in float64, rounded at the end."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        parts = [crop(slab, self.region(i, box, ins, out)).astype(np.float64) for i, slab in enumerate(slabs)]
        products, weights = parts[:2]
        (time, batch, _), (directions, hidden, _) = products.shape, weights.shape
        products = products.reshape(time, batch, directions, self.gates, hidden)
        bias = parts[2] if self.bias else np.zeros((directions, self.gates * hidden))
        scale = parts[2 + self.bias] if self.scaled else np.ones((directions, 1))
        values = np.empty((self.states, time, directions, batch, hidden))
        first = int(box.lo[0, DIRECTION])
        for d in range(directions):
            states = [initial[d] for initial in parts[self.main :]]
            for t in range(time)[:: -1 if self.backward[first + d] else 1]:
                live = [parts[self.main - 1][t][:, None]] if self.masked else []
                read = self._read(products[t, :, d], (weights[d], scale[d], bias[d]), [*states, *live])
                states = self._step(read, (batch, hidden))
                values[:, t, d] = states
        origin = (0, 0, first, int(box.lo[0, BATCH]), 0)
        return np.array(round_to(values[box.slices(0, origin)], out.dtype))

    def _read(
        self, products: np.ndarray, factors: tuple[np.ndarray, ...], before: list[np.ndarray]
    ) -> list[np.ndarray]:
        """What `steps` read: `products` [B, G, H] of what the layer reads, those of the last state with weights, a
        scale and a bias, and what there is `before` the step."""
        weights, scale, bias = factors

        def multiplied(state: np.ndarray) -> np.ndarray:
            return (state @ weights * scale + bias).reshape(products.shape).swapaxes(0, 1)

        state = before[self.states - 1]
        read = [*products.swapaxes(0, 1), *multiplied(state), *before]
        if self.reset is not None:
            read[2 * self.gates - 1] = multiplied(np.broadcast_to(evaluate_expr(self.reset, read), state.shape))[-1]
        return read

    def _step(self, values: list[np.ndarray], shape: tuple[int, ...]) -> list[np.ndarray]:
        """The states after a step, of this shape, from what `steps` read."""
        for step in self.steps:
            values.append(np.broadcast_to(evaluate_expr(step, values), shape))
        return values[-self.states :]

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """The products of the last state with the weights, and all steps."""
        each = 2 * self.gates * out.shape[-1] + sum(map(count_applies, self.expressions))
        return out.size // max(1, self.states) * each
