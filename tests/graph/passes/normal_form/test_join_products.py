"""Products of one left factor become one product, where their results are only moved."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.builder import Builder
from brickrt.graph.passes.normal_form.join_products import join_products
from brickrt.graph.passes.normal_form.order_moves import order_moves
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Take, Transpose, View
from tests.support.graphs.small_graphs import RELU, array, make, ops, same_results

TOKENS, DEPTH = 5, 4


def head(b: Builder, x: str, heads: int, bias: bool, perm: tuple[int, ...], seed: int = 1) -> str:
    """x ─ product ─ view [1, TOKENS, heads, DEPTH] ─ transpose"""
    width = heads * DEPTH
    more = [b.constant(array(width, seed=seed + 1), "b")] if bias else []
    y = b.emit(MatMul(bias=bias), x, b.constant(array(b.type(x).shape[-1], width, seed=seed), "w"), *more)
    return b.emit(Transpose(perm), b.emit(View((1, TOKENS, heads, DEPTH)), y))


def test_queries_keys_and_values_are_one_product_of_which_heads_are_taken():
    def build(b: Builder) -> tuple[str, ...]:
        orders = (0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)
        return tuple(head(b, "x", 3, bias=k != 1, perm=perm, seed=10 * k) for k, perm in enumerate(orders))

    before = make(build, x=(1, TOKENS, 6))
    after = same_results(before, order_moves(join_products(before)))
    assert sorted(ops(after)) == ["MatMul"] + ["Take"] * 3 + ["Transpose"] * 3 + ["View"] * 3
    assert after.out(after.nodes[0]).shape == (1, TOKENS, 9 * DEPTH)
    assert all(
        isinstance(after.nodes[after.producers[n.inputs[0]]].op, Take) for n in after.nodes if n.op.name == "Transpose"
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.permutations(range(4))), min_size=1, max_size=4))
def test_any_heads_are_the_same(heads):
    def build(b: Builder) -> tuple[str, ...]:
        return tuple(head(b, "x", n, bias, tuple(perm), seed=3 * k) for k, (n, bias, perm) in enumerate(heads))

    before = make(build, x=(1, TOKENS, 3))
    after = same_results(before, order_moves(join_products(before)))
    assert ops(after).count("MatMul") == 1


def test_products_with_elementwise_steps_of_their_own_are_left():
    """A gate: relu(x a) beside x b, which the tiles of a product compute better than a pass over a wide one."""

    def build(b: Builder) -> tuple[str, ...]:
        parts = [b.emit(MatMul(), "x", b.constant(array(6, 8, seed=k), "w")) for k in range(2)]
        return b.emit(RELU, parts[0]), b.emit(View((TOKENS, 2, 4)), parts[1])

    before = make(build, x=(TOKENS, 6))
    assert join_products(before) is before


@pytest.mark.parametrize("seen", [(8 * TOKENS,), (TOKENS, 2, 4)])
def test_results_that_need_all_of_memory_in_a_row_are_left(seen):
    """Rows of two products lie apart in a joined one: only a view that leaves rows alone sees them there."""

    def build(b: Builder) -> tuple[str, ...]:
        parts = [b.emit(MatMul(), "x", b.constant(array(6, 8, seed=k), "w")) for k in range(2)]
        return tuple(b.emit(View(seen), part) for part in parts)

    before = make(build, x=(TOKENS, 6))
    after = same_results(before, join_products(before))
    assert (after is before) == (seen == (8 * TOKENS,))


@pytest.mark.parametrize("what", ["output", "computed", "batched"])
def test_results_that_leave_and_factors_that_vary_are_left(what):
    def build(b: Builder) -> tuple[str, ...]:
        batch = (2,) if what == "batched" else ()
        ws = ["w", "w"] if what == "computed" else [b.constant(array(*batch, 6, 8, seed=k), "c") for k in range(2)]
        parts = [b.emit(MatMul(), "x", w) for w in ws]
        if what == "output":
            return tuple(parts)
        return tuple(b.emit(View((b.type(p).size,)), p) for p in parts)

    more = {"w": (6, 8)} if what == "computed" else {}
    before = make(build, x=(TOKENS, 6), **more)
    assert join_products(before) is before
