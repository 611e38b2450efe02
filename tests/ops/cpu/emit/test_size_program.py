"""Formulas of sizes as a program: what it computes, and which numbers it is for."""

from __future__ import annotations

from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.emit.sizes import Size, SizeTable


def program() -> SizeProgram:
    """Code for n of which n // 16 is above 3, that reads 64 · (n // 16), n // m and 7."""
    table = SizeTable()
    n, m = table.number(100), table.number(5)
    whole = n // 16
    assert whole > 3
    for size in (whole * 64, n // m):
        assert isinstance(size, Size)
        table.place(size)
    return SizeProgram.of(table.answers, [*table.entries, 7])


def test_entries_are_computed_for_numbers_that_give_the_same_answers():
    assert program().table([100, 5]) == [384, 20, 7]
    assert program().table([70, 7]) == [256, 10, 7]
    assert program().table([60, 5]) is None


def test_numbers_that_divide_by_nothing_do_not_fit():
    assert program().table([100, 0]) is None


def test_parts_that_formulas_share_are_computed_once():
    words = [(word, a, b) for word, a, b, _ in program().steps]
    assert len(words) == len(set(words))


def test_a_kernel_without_sizes_fits_always():
    assert SizeProgram.of({}, []).table([]) == []
