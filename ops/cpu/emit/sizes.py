"""Sizes: numbers that code is made for without knowing them, such as the extents of an image.

A kernel is emitted with a `Size` in place of each. Arithmetic on sizes makes further ones; those that code needs are
entries of a table that it reads at run time. Where Python asks something of a size, whether it is greater than another
or how large it is, the answer is noted: the code is good for all numbers that give the same answers.

    numbers (n0, n1)  →  emitted for 224, 56  →  table:   n0·n1, n0 // 6        what the code loads
                                                 answers: n1 > 1: yes           what it takes for granted
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, TypeAlias

from brickrt.ops.types import OpenNumber

Formula: TypeAlias = int | tuple[Any, ...]
"""An integer; (NUMBER, k), number k; (LOOK_UPS, 0), where look-ups begin behind the sizes of a table; or a word of
OPERATIONS and two formulas."""

NUMBER, LOOK_UPS = "n", "t"

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
    "<": operator.lt,
    "==": operator.eq,
}
RESULTS_OF_EQUALS = {"-": 0, "//": 1, "%": 0, "<": 0, "==": 1}
"""What operations give for a positive number and itself."""


@dataclass
class SizeTable:
    """Sizes of one kernel, whose code is emitted for `numbers`: what the code reads, and what it takes for granted.
    `broad` code has alternatives for sizes that need others; code that is not takes less time to compile."""

    numbers: list[int] = field(default_factory=list)
    entries: dict[Formula, int] = field(default_factory=dict)  # formula → place in the table
    answers: dict[Formula, int] = field(default_factory=dict)
    broad: bool = True

    def number(self, value: int) -> Size:
        """The next number."""
        self.numbers.append(value)
        return Size(self, (NUMBER, len(self.numbers) - 1), value)

    @property
    def look_ups(self) -> Size:
        """How many words of the table come before what the code looks up: so many as it has entries in the end, which
        nobody may ask before."""
        return Size(self, (LOOK_UPS, 0), 0)

    def place(self, size: Size) -> int:
        """Where code finds a size in its table."""
        return self.entries.setdefault(size.formula, len(self.entries))

    def ask(self, word: str, x: Size | int, y: Size | int) -> int:
        """What an operation on sizes gives: noted, where it is not certain."""
        found = self.make(word, x, y)
        return found if isinstance(found, int) else self.settle(found)

    def settle(self, size: Size) -> int:
        """The size as an integer: code is for this one alone."""
        self.answers[size.formula] = size.amount
        return size.amount

    def make(self, word: str, x: Size | int, y: Size | int) -> Size | int:
        """An operation on two sizes, or on one and an integer; an integer where that is certain. A size that is settled
        has an integer for a formula."""
        answers = self.answers
        p, a = (answers.get(x.formula, x.formula), x.amount) if isinstance(x, Size) else (int(x), int(x))
        q, b = (answers.get(y.formula, y.formula), y.amount) if isinstance(y, Size) else (int(y), int(y))
        amount = int(OPERATIONS[word](a, b))
        if isinstance(p, int) and isinstance(q, int):
            return amount
        if p == q and word in RESULTS_OF_EQUALS:
            return RESULTS_OF_EQUALS[word]
        if word == "//" and (p == ("-", 0, q) or q == ("-", 0, p)):  # a positive number and its negative
            return -1
        if (word in "+-" and q == 0) or (word in ("*", "//") and q == 1):
            return Size(self, p, a)
        if (word == "+" and p == 0) or (word == "*" and p == 1):
            return Size(self, q, b)
        if (word == "*" and 0 in (p, q)) or (word == "%" and q == 1):
            return 0
        if (word, p) == ("-", 0) and isinstance(q, tuple) and q[:2] == ("-", 0):
            return Size(self, q[2], amount)
        return self._sum(word, p, q, amount) if word in "+-" else Size(self, (word, p, q), amount)

    def _sum(self, word: str, p: Formula, q: Formula, amount: int) -> Size | int:
        """Sums keep their integer last, so that equal ones look alike."""
        rest = {"+": 1, "-": -1}[word]
        if isinstance(q, int):
            if isinstance(p, tuple) and p[0] == "+" and isinstance(p[2], int):
                inner, sum_ = p[1], p[2] + rest * q
                return Size(self, ("+", inner, sum_) if sum_ else inner, amount)
            return Size(self, ("+", p, rest * q), amount)
        if isinstance(p, int) and word == "+":
            return Size(self, ("+", q, p), amount)
        return Size(self, (word, p, q), amount)


class Size(OpenNumber):
    """A number that code is made for without knowing it; `amount` is what it is just now."""

    __slots__ = ("amount", "formula", "table")
    __hash__ = None  # type: ignore[assignment]  # no key of a cache

    def __init__(self, table: SizeTable, formula: Formula, amount: int) -> None:
        self.table, self.formula, self.amount = table, formula, amount

    def __repr__(self) -> str:
        return f"Size({self.formula}, {self.amount})"

    # ---- further sizes

    def __add__(self, other: Size | int) -> Size | int:
        return self.table.make("+", self, other)

    def __radd__(self, other: int) -> Size | int:
        return self.table.make("+", other, self)

    def __sub__(self, other: Size | int) -> Size | int:
        return self.table.make("-", self, other)

    def __rsub__(self, other: int) -> Size | int:
        return self.table.make("-", other, self)

    def __neg__(self) -> Size | int:
        return self.table.make("-", 0, self)

    def __mul__(self, other: Size | int) -> Size | int:
        return self.table.make("*", self, other)

    def __rmul__(self, other: int) -> Size | int:
        return self.table.make("*", other, self)

    def __floordiv__(self, other: Size | int) -> Size | int:
        return self.table.make("//", self, other)

    def __rfloordiv__(self, other: int) -> Size | int:
        return self.table.make("//", other, self)

    def __mod__(self, other: Size | int) -> Size | int:
        return self.table.make("%", self, other)

    def __rmod__(self, other: int) -> Size | int:
        return self.table.make("%", other, self)

    def __divmod__(self, other: Size | int) -> tuple[Size | int, Size | int]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[Size | int, Size | int]:
        return other // self, other % self

    # ---- answers

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Integral):  # NumPy's too
            other = int(other)
        return isinstance(other, int | Size) and bool(self.table.ask("==", self, other))

    def __lt__(self, other: Size | int) -> bool:
        return bool(self.table.ask("<", self, other))

    def __gt__(self, other: Size | int) -> bool:
        return bool(self.table.ask("<", other, self))

    def __le__(self, other: Size | int) -> bool:
        return not self > other

    def __ge__(self, other: Size | int) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        return self.table.settle(self)

    __int__ = __index__


def least(x: Size | int, y: Size | int) -> Size | int:
    """The lesser one, whichever that is."""
    return _chosen("min", x, y)


def greatest(x: Size | int, y: Size | int) -> Size | int:
    """The greater one, whichever that is."""
    return _chosen("max", x, y)


def is_less(x: Size | int, y: Size | int) -> Size | int:
    """1 where x < y, else 0: a size where it depends on sizes."""
    return _chosen("<", x, y)


def is_equal(x: Size | int, y: Size | int) -> Size | int:
    """1 where x is y, else 0: a size where it depends on sizes."""
    return _chosen("==", x, y)


def alternative(x: Size | int) -> Size | int:
    """How often one of several alternatives runs: a size in broad code, which has them all, else its amount, for which
    alone the code is then."""
    return x.table.settle(x) if isinstance(x, Size) and not x.table.broad else x


def _chosen(word: str, x: Size | int, y: Size | int) -> Size | int:
    sized = next((each for each in (x, y) if isinstance(each, Size)), None)
    return sized.table.make(word, x, y) if sized is not None else OPERATIONS[word](int(x), int(y))
