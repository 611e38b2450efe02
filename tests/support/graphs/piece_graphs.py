"""Random graphs in which tensors are cut, reshaped and put together again."""

from __future__ import annotations

from hypothesis import strategies as st

from brickrt.graph.ir import Graph
from brickrt.ops.operators.move import Take, View
from tests.support.graphs.plan_graphs import Sketch


@st.composite
def pieces(draw: st.DrawFn) -> Graph:
    """x [1, 32, 6, 6] → halves, rows, views, sums and convolutions of one another → all that nobody reads."""
    s = Sketch()
    tensors = [s.input(1, 32, 6, 6)]
    for _ in range(draw(st.integers(2, 7))):
        x, kind = (
            draw(st.sampled_from(tensors)),
            draw(st.sampled_from(["conv", "map", "halves", "half", "rows", "view"])),
        )
        if kind == "conv":
            tensors.append(s.conv(x, 32, draw(st.sampled_from([1, 3]))))
        elif kind == "map":
            tensors.append(s.map("add", x, draw(st.sampled_from(tensors))))
        elif kind == "halves":
            low, high = (s.add(Take((None, tuple(range(a, a + 16)), None, None)), x) for a in (0, 16))
            tensors.append(s.conv(s.map("add", low, high), 32, 1))
        elif kind == "half":
            half = s.add(Take((None, tuple(range(8, 24)), None, None)), x)
            tensors.append(s.conv(s.map("add", half, s.conv(half, 16, 3)), 32, 1))
        elif kind == "rows":
            some = s.add(Take((None, None, tuple(range(1, 5)), None)), x)
            tensors.append(s.conv(some, 32, 1, pad=1) if draw(st.booleans()) else s.map("add", x, s.reduce(some, 2)))
            if s.types[tensors[-1]].shape != (1, 32, 6, 6):
                tensors.pop()
        else:
            flat = s.map("abs", s.add(View((1, 32, 36)), x))
            tensors.append(s.add(View((1, 32, 6, 6)), flat))
    unread = [t.output for t in s.nodes if not any(t.output in n.inputs for n in s.nodes)]
    return s.graph(*unread)
