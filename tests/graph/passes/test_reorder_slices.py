"""The order of moves: slices of one projection are taken before anything is transposed."""

from __future__ import annotations

import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.passes.reorder_slices import reorder_slices
from brickrt.ops.operators.move import Take, Transpose, View
from tests.support.graphs.small_graphs import MUL, array, make, ops, same_results

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
    after = same_results(before, reorder_slices(before))
    assert sorted(ops(after)) == sorted(["View"] * 4 + ["Take"] * 3 + ["Transpose"] * 3)
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
    after = same_results(before, reorder_slices(before))
    assert ops(after) == ["View", "Take", "Transpose"] * 3


@pytest.mark.parametrize(("start", "count"), [(1, 8), (0, 6), (4, 8)])
def test_pieces_that_are_not_whole_are_taken_first(start, count):
    """Pieces of 4 from 0 on: only the last of these is made of whole ones, and its view splits it otherwise."""
    shape = (1, TOKENS, 2, count // 2) if start != 4 else (1, 8, TOKENS)
    before = make(lambda b: b.emit(View(shape), b.emit(part(3, 2, start, count), "x")), x=(1, TOKENS, 13))
    assert ops(same_results(before, reorder_slices(before))) == ["Take", "View"]


def test_a_transpose_that_others_read_stays():
    def build(b: Builder) -> tuple[str, str]:
        y = b.emit(Transpose((1, 0)), "x")
        return b.emit(part(2, 0, 1, 2), y), b.emit(MUL, y, b.constant(array(3), "c"))

    before = make(build, x=(3, 4))
    assert ops(same_results(before, reorder_slices(before))) == ["Transpose", "Take", "Map"]


def test_takes_that_overlap_are_not_transposed_one_by_one():
    def build(b: Builder) -> tuple[str, str]:
        y = b.emit(Transpose((1, 0)), "x")
        return b.emit(part(2, 0, 0, 3), y), b.emit(part(2, 0, 1, 3), y)

    before = make(build, x=(3, 4))
    assert ops(same_results(before, reorder_slices(before))) == ["Transpose", "Take", "Take"]


def test_a_view_that_drops_more_than_single_axes_stays_between_transposes():
    def build(b: Builder) -> str:
        y = b.emit(View((2, 12)), b.emit(Transpose((1, 0, 2)), "x"))
        return b.emit(Transpose((1, 0)), y)

    before = make(build, x=(3, 2, 4))
    assert ops(same_results(before, reorder_slices(before))) == ["Transpose", "View", "Transpose"]
