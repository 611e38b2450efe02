"""Sizes: what code reads of them, and what it takes for granted."""

from __future__ import annotations

import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickrt.ops.cpu.emit.sizes import Size, SizeTable, greatest, least
from tests.support.cpu.formulas import value_of

BINARY = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, least, greatest]


@st.composite
def expressions(draw):
    """A function of two numbers: operations on them and small integers, one after the other."""
    steps = draw(st.lists(st.tuples(st.sampled_from(BINARY), st.integers(-1, 9), st.booleans()), max_size=6))

    def compute(first, second):
        total = first
        for operation, other, turned in steps:
            operand = second if other < 0 else other
            if operation in (operator.floordiv, operator.mod):
                operand = 7 if other < 1 else other
                turned = False
            total = operation(operand, total) if turned else operation(total, operand)
        return total

    return compute


@given(expressions(), st.integers(2, 500), st.integers(2, 500), st.integers(2, 500), st.integers(2, 500))
def test_a_formula_gives_what_the_expression_does(compute, a, b, c, d):
    table = SizeTable()
    found = compute(table.number(a), table.number(b))
    assert not table.answers
    formula = found.formula if isinstance(found, Size) else found
    assert (found.amount if isinstance(found, Size) else found) == compute(a, b)
    assert value_of(formula, [c, d]) == compute(c, d)


def test_answers_are_noted_once():
    table = SizeTable()
    width = table.number(20)
    assert width > 16 and width + 1 != 8 and width % 8
    assert len(table.answers) == 3
    assert width > 16
    assert len(table.answers) == 3
    assert all(value_of(formula, [21]) == answer for formula, answer in table.answers.items())
    assert not all(value_of(formula, [24]) == answer for formula, answer in table.answers.items())


def test_a_size_that_is_needed_as_an_integer_is_one_from_then_on():
    table = SizeTable()
    width = table.number(5)
    assert list(range(width)) == [0, 1, 2, 3, 4]
    assert table.answers == {("n", 0): 5}
    assert width * 3 == 15 and isinstance(width * 3, int)
    assert len(table.answers) == 1


def test_a_number_is_one_part_of_its_own_size():
    """Nobody has to ask, so code is for no number alone."""
    table = SizeTable()
    number = table.number(20)
    blocks = -(-number // 8)
    assert -(-number // number) == -(-blocks // blocks) == 1 and not table.answers


@pytest.mark.parametrize("certain", [lambda n: n - n, lambda n: n * 0, lambda n: (n + 3) - n - 3, lambda n: 0 * n])
def test_what_is_certain_is_an_integer(certain):
    table = SizeTable()
    assert value_of(getattr(certain(table.number(9)), "formula", 0), [12]) == 0
    assert not table.answers


def test_equal_entries_have_one_place():
    table = SizeTable()
    n, m = table.number(4), table.number(6)
    assert [table.place(size) for size in (n * m, n + 1 + 1, n * m, n + 2)] == [0, 1, 0, 1]
    assert [value_of(formula, [5, 7]) for formula in table.entries] == [35, 7]
    assert math.prod([n, m, 2]).amount == 48


def test_sizes_are_no_keys():
    with pytest.raises(TypeError):
        hash(SizeTable().number(3))
