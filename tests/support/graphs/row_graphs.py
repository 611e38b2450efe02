"""Random products of matrices after what is computed row by row: what bricks of rows must get right."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from brickrt.graph.ir import Graph
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.matmul import MatMul
from tests.support.graphs.plan_graphs import Sketch

F32 = np.dtype(np.float32)
X, EXTRA, ZERO = arg(0, F32), arg(1, F32), const(0, F32)
ALONE = [None, apply("max", X, ZERO)]
WITH_EXTRA = [apply("max", apply("add", X, EXTRA), ZERO), apply("mul", X, EXTRA)]


@st.composite
def products(draw: st.DrawFn) -> Graph:
    """a → sums of rows, added → · b + bias + extra → abs, where dimensions broadcast; b and extra may be constants."""
    s = Sketch()
    several = st.integers(1, 3)
    batch = tuple(draw(several) for _ in range(draw(st.integers(0, 2))))
    m, k, n = draw(st.integers(1, 21)), draw(st.integers(1, 5)), draw(st.integers(1, 5))

    def part(shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        ones = tuple(draw(st.sampled_from([e, e, 1])) for e in shape)
        return ones[draw(st.sampled_from([0, 0, len(ones)])) :]

    def tensor(shape: tuple[int, ...]) -> str:
        """A constant, an input of the graph, or one that is computed."""
        kind = draw(st.sampled_from(["constant", "input", "computed", "computed"]))
        return (
            s.constant(*shape)
            if kind == "constant"
            else s.map("abs", s.input(*shape))
            if kind[0] == "c"
            else s.input(*shape)
        )

    a = s.input(*part(batch), m, k)
    for _ in range(draw(st.integers(0, 2))):
        a = s.map("add", a, s.reduce(a, s.types[a].rank - 1)) if draw(st.booleans()) else s.map("abs", a)
    b, bias = tensor((*part(batch), k, n)), draw(st.booleans())
    shape = MatMul().infer([s.types[a], s.types[b]]).shape
    extra = [tensor((*part(shape[:-1]), draw(st.sampled_from([1, n]))))] if draw(st.booleans()) else []
    epilogue = draw(st.sampled_from(WITH_EXTRA if extra else ALONE))
    y = s.add(MatMul(bias, epilogue), a, b, *[s.constant(n)] * bias, *extra)
    return s.graph(s.map("abs", y) if draw(st.booleans()) else y)
