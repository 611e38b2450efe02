"""The order of moves: slices of one projection are taken before anything is transposed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.builder import Builder
from brickrt.graph.passes.fold import fold
from brickrt.graph.passes.normal_form.order_moves import _copied, order_moves
from brickrt.ops.base import Op
from brickrt.ops.operators.move import Take, Transpose, View
from tests.support.graphs.small_graphs import MUL, RELU, array, make, ops, same_results

TOKENS, HEADS, DEPTH = 5, 2, 4


def part(rank: int, axis: int, start: int, count: int = 1) -> Take:
    tables: list[tuple[int, ...] | None] = [None] * rank
    tables[axis] = tuple(range(start, start + count))
    return Take(tuple(tables))


def split_after_transpose(b: Builder) -> tuple[str, ...]:
    """x ─ view ─ transpose ─┬─ take ─ view
    └─ take ─ view ─ transpose
    """
    y = b.emit(View((1, TOKENS, 3, HEADS, DEPTH)), "x")
    y = b.emit(Transpose((2, 0, 3, 1, 4)), y)
    taken = [b.emit(View((1, HEADS, TOKENS, DEPTH)), b.emit(part(5, 0, k), y)) for k in range(3)]
    taken[1] = b.emit(Transpose((0, 1, 3, 2)), taken[1])
    return tuple(taken)


def test_takes_come_before_a_transpose_that_only_they_read():
    before = make(split_after_transpose, x=(1, TOKENS, 3 * HEADS * DEPTH))
    after = same_results(before, order_moves(before))
    assert sorted(ops(after)) == ["Take"] * 3 + ["Transpose"] * 3 + ["View"] * 3
    for node in after.nodes:
        if isinstance(node.op, Take):
            assert isinstance(after.nodes[after.producers[node.inputs[0]]].op, View)


def test_whole_heads_are_taken_after_the_view_that_splits_them():
    """x ─ take ─ view ─ transpose, three times"""

    def build(b: Builder) -> tuple[str, ...]:
        width, outs = HEADS * DEPTH, []
        for k in range(3):
            y = b.emit(part(3, 2, k * width, width), "x")
            y = b.emit(View((1, TOKENS, HEADS, DEPTH)), y)
            outs.append(b.emit(Transpose((0, 2, 1, 3)), y))
        return tuple(outs)

    before = make(build, x=(1, TOKENS, 3 * HEADS * DEPTH))
    after = same_results(before, order_moves(before))
    assert ops(after) == ["View", "Take", "Transpose"] * 3


@pytest.mark.parametrize(("start", "count"), [(1, 8), (0, 6), (4, 8)])
def test_pieces_that_are_not_whole_are_taken_first(start, count):
    """Pieces of 4 from 0 on: only the last of these is made of whole ones, and its view splits it otherwise."""
    shape = (1, TOKENS, 2, count // 2) if start != 4 else (1, 8, TOKENS)
    before = make(lambda b: b.emit(View(shape), b.emit(part(3, 2, start, count), "x")), x=(1, TOKENS, 13))
    assert ops(same_results(before, order_moves(before))) == ["Take", "View"]


def test_a_transpose_that_others_read_stays():
    def build(b: Builder) -> tuple[str, str]:
        y = b.emit(Transpose((1, 0)), "x")
        return b.emit(part(2, 0, 1, 2), y), b.emit(MUL, y, b.constant(array(3), "c"))

    before = make(build, x=(3, 4))
    assert ops(same_results(before, order_moves(before))) == ["Transpose", "Take", "Map"]


def test_takes_that_overlap_are_not_transposed_one_by_one():
    def build(b: Builder) -> tuple[str, str]:
        y = b.emit(Transpose((1, 0)), "x")
        return b.emit(part(2, 0, 0, 3), y), b.emit(part(2, 0, 1, 3), y)

    before = make(build, x=(3, 4))
    assert ops(same_results(before, order_moves(before))) == ["Transpose", "Take", "Take"]


def test_a_view_that_joins_axes_stays_behind_the_transposes():
    """[3, 2, 4] ─ transpose [2, 3, 4] ─ view [2, 12] ─ transpose  →  [3, 2, 4] ─ transpose [3, 4, 2] ─ view"""

    def build(b: Builder) -> str:
        y = b.emit(View((2, 12)), b.emit(Transpose((1, 0, 2)), "x"))
        return b.emit(Transpose((1, 0)), y)

    before = make(build, x=(3, 2, 4))
    assert ops(same_results(before, order_moves(before))) == ["Transpose", "View"]


def test_a_view_across_transposed_axes_stays_between_transposes():
    def build(b: Builder) -> str:
        y = b.emit(View((4, 3)), b.emit(Transpose((1, 0)), "x"))
        return b.emit(Transpose((1, 0)), y)

    before = make(build, x=(4, 3))
    assert ops(same_results(before, order_moves(before))) == ["Transpose", "View", "Transpose"]


def test_queries_keys_and_values_of_attention_with_sequences_first_are_copied_once():
    """As torch exports its nn.MultiheadAttention: [S, 1, 3·E] in three, each split into heads."""

    def build(b: Builder) -> tuple[str, ...]:
        width = HEADS * DEPTH
        y = b.emit(View((1, TOKENS, 1, 3, width)), "x")
        y = b.emit(View((3, TOKENS, 1, width)), b.emit(Transpose((3, 1, 2, 0, 4)), y))
        parts = []
        for k in range(3):
            z = b.emit(View((TOKENS, HEADS, DEPTH)), b.emit(part(4, 0, k), y))
            parts.append(b.emit(View((1, HEADS, TOKENS, DEPTH)), b.emit(Transpose((1, 0, 2)), z)))
        parts[1] = b.emit(Transpose((0, 1, 3, 2)), parts[1])
        return tuple(parts)

    before = make(build, x=(TOKENS, 1, 3 * HEADS * DEPTH))
    after = same_results(before, order_moves(before))
    assert ops(after) == ["View", "Take", "Transpose"] * 3


@st.composite
def draw_moves(draw: st.DrawFn):
    """A graph of moves of x: each of any tensor before it; the last of each and some others are read."""
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=4)))
    choices = draw(st.lists(st.integers(0, 10**6), max_size=9))
    return shape, choices


def _move(shape: tuple[int, ...], choice: int) -> Op:
    """A move of a tensor of this shape."""
    rng = np.random.default_rng(choice)
    match choice % 3:
        case 0:
            return Transpose(tuple(rng.permutation(len(shape)).tolist()))
        case 1:
            factors = [f for e in shape for f in {4: (2, 2), 6: (2, 3)}.get(e, (e,))]
            cuts = sorted(rng.integers(0, len(factors) + 1, rng.integers(0, 4)).tolist())
            ends = zip([0, *cuts], [*cuts, len(factors)])
            return View(tuple(math.prod(factors[a:b]) for a, b in ends))
    tables: list[tuple[int, ...] | None] = [None] * len(shape)
    axis = int(rng.integers(len(shape)))
    lo = int(rng.integers(shape[axis]))
    tables[axis] = tuple(range(lo, int(rng.integers(lo, shape[axis])) + 1))
    return Take(tuple(tables))


@settings(max_examples=150, deadline=None)
@given(draw_moves())
def test_any_moves_give_the_same_and_copy_no_more(drawn):
    shape, choices = drawn

    def build(b: Builder) -> tuple[str, ...]:
        names, read = ["x"], set()
        for choice in choices:
            name = names[-1 - choice // 7 % min(3, len(names))]
            read.add(name)
            names.append(b.emit(_move(b.type(name).shape, choice), name))
        ends = [n for k, n in enumerate(names) if n not in read or k % 4 == 3]
        return tuple(b.emit(RELU, n) for n in ends)

    before = fold(make(build, x=shape))
    after = same_results(before, order_moves(before), 0)
    assert _copied(after) <= _copied(before)
    assert order_moves(after) is after or _copied(order_moves(after)) < _copied(after)
