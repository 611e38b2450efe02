"""Random stacks of windows over signals, images and volumes: what bricks with halos must get right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from brickrt.graph.ir import Graph
from brickrt.ops.expr import Expr, apply, arg, const
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.pool import Pool
from tests.support.graphs.plan_graphs import Sketch

F32 = np.dtype(np.float32)
X, EXTRA, ZERO = arg(0, F32), arg(1, F32), const(0, F32)
ALONE: list[Expr | None] = [None, apply("max", X, ZERO), apply("mul", X, apply("sigmoid", X))]
WITH_EXTRA: list[Expr] = [apply("max", apply("add", X, EXTRA), ZERO), apply("mul", X, EXTRA)]
GATES: list[Expr] = [apply("mul", X, EXTRA), apply("mul", X, apply("sigmoid", EXTRA))]
CHANNELS, BIAS = 4, st.booleans()


@dataclass
class _Stack:
    draw: st.DrawFn
    sketch: Sketch
    rank: int

    def several(self, values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(self.draw(values) for _ in range(self.rank))

    def fits(self, x: str, kernel: tuple[int, ...], dilations: tuple[int, ...], pads: tuple[int, ...]) -> bool:
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        return all(e + p >= span for e, p, span in zip(self.sketch.types[x].shape[2:], pads, spans, strict=True))

    def conv(self, x: str, tensors: list[str]) -> str | None:
        kernel, strides = self.several(st.integers(1, 4)), self.several(st.integers(1, 2))
        dilations, pads = self.several(st.integers(1, 2)), self.several(st.integers(0, 2))
        ends = self.several(st.integers(0, 3))
        if not self.fits(x, kernel, dilations, pads):
            return None
        groups, bias = self.draw(st.sampled_from([1, 2, CHANNELS])), self.draw(BIAS)
        weights = [self.sketch.constant(CHANNELS, CHANNELS // groups, *kernel)]
        weights += [self.sketch.constant(CHANNELS)] * bias
        plain = Conv(kernel, strides, dilations, pads, ends, groups, bias)
        shape = plain.infer([self.sketch.types[name] for name in (x, *weights)]).shape
        ones = (1,) * self.rank
        extras = [name for name in tensors if self.sketch.types[name].shape in (shape, (*shape[:2], *ones))]
        extra = self.draw(st.sampled_from([None, *extras]))
        epilogue = self.draw(st.sampled_from(ALONE if extra is None else WITH_EXTRA))
        op = Conv(kernel, strides, dilations, pads, ends, groups, bias, epilogue)
        return self.sketch.add(op, x, *weights, *([] if extra is None else [extra]))

    def gate(self, x: str, tensors: list[str]) -> str | None:
        """Two or three parts, of channels of their own or of all, the last one added, and another tensor."""
        kernel, pads = self.several(st.integers(1, 3)), self.several(st.integers(0, 1))
        if not self.fits(x, kernel, (1,) * self.rank, pads):
            return None
        parts, groups, bias = self.draw(st.integers(2, 3)), self.draw(st.sampled_from([1, CHANNELS])), self.draw(BIAS)
        plain = Conv(kernel, (1,) * self.rank, (1,) * self.rank, pads, pads, groups, bias)
        weights = [self.sketch.constant(parts * CHANNELS, CHANNELS // groups, *kernel)]
        weights += [self.sketch.constant(parts * CHANNELS)] * bias
        n, _, *space = plain.infer([self.sketch.types[name] for name in (x, *weights)]).shape
        extras = [name for name in tensors if self.sketch.types[name].shape == (n, CHANNELS, *space)]
        extra = self.draw(st.sampled_from([[], *([name] for name in extras)]))
        epilogue = self.draw(st.sampled_from(GATES))
        for k in range(2, parts + len(extra)):
            epilogue = apply("add", epilogue, arg(k, F32))
        return self.sketch.add(replace(plain, gate_parts=parts, epilogue=epilogue), x, *weights, *extra)

    def pool(self, x: str, tensors: list[str]) -> str | None:
        ones = (1,) * self.rank
        kernel, strides = self.several(st.integers(2, 3)), self.several(st.integers(1, 2))
        if not self.fits(x, kernel, ones, ones):
            return None
        kind = self.draw(st.sampled_from(["max", "average"]))
        return self.sketch.add(Pool(kind, kernel, strides, ones, ones, ones), x)

    def transposed(self, x: str, tensors: list[str]) -> str | None:
        if max(self.sketch.types[x].shape[2:]) > 12:
            return None
        kernel, strides = self.several(st.integers(1, 4)), self.several(st.integers(1, 3))
        pads = tuple(self.draw(st.integers(0, k - 1)) for k in kernel)
        extra = tuple(self.draw(st.integers(0, s - 1)) for s in strides)
        op = ConvTranspose(kernel, strides, (1,) * self.rank, pads, (0,) * self.rank, extra)
        return self.sketch.add(op, x, self.sketch.constant(CHANNELS, CHANNELS, *kernel))

    def map(self, x: str, tensors: list[str]) -> str | None:
        shape = self.sketch.types[x].shape
        others = [name for name in tensors if self.sketch.types[name].shape == shape]
        return self.sketch.map("add", x, self.draw(st.sampled_from(others)))


@st.composite
def stacks(draw: st.DrawFn, rank: int | None = None) -> Graph:
    """x → convolutions with and without residuals and gates, pools, sums, transposed convolutions, mostly in a row."""
    rank = rank or draw(st.sampled_from([1, 2, 2, 3]))
    stack = _Stack(draw, Sketch(), rank)
    most = {1: 17, 2: 13, 3: 7}[rank]
    batch = draw(st.integers(1, 2))
    x = stack.sketch.input(batch, CHANNELS, *stack.several(st.integers(1, most)))
    tensors = [x, stack.sketch.input(batch, CHANNELS, *(1,) * rank)]
    for _ in range(draw(st.integers(1, 5))):
        windows = [stack.conv, stack.conv, stack.gate, stack.pool, stack.map, stack.transposed]
        made = draw(st.sampled_from(windows))(x, tensors)
        if made is not None:
            tensors.append(made)
            x = made if draw(st.integers(0, 3)) else draw(st.sampled_from([t for t in tensors if t != tensors[1]]))
    if not stack.sketch.nodes:
        x = stack.sketch.map("abs", x)
    nodes = stack.sketch.nodes
    unread = [t.output for t in nodes if not any(t.output in n.inputs for n in nodes)]
    return stack.sketch.graph(*unread)
