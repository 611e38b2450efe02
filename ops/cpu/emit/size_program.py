"""Formulas of sizes as a program: every part of them once, in an order in which it can be computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from brickrt.ops.cpu.emit.sizes import LOOK_UPS, NUMBER, OPERATIONS, Formula

CONSTANT = "c"
Step = tuple[str, int, int, int | None]
"""(word, a, b, answer): number `a`, the constant `a`, the number of entries, or an operation on the results of steps
`a` and `b`; where there is an `answer`, the result must be it."""


@dataclass(frozen=True)
class SizeProgram:
    """Computes what code reads, the results of steps `entries`, from numbers that the code is good for."""

    steps: Sequence[Step]
    entries: Sequence[int]

    @staticmethod
    def of(answers: Mapping[Formula, int], entries: Iterable[Formula]) -> SizeProgram:
        """The program of formulas: those with answers first, since most numbers that do not fit give others there."""
        steps, places = list[Step](), dict[Formula, int]()

        def place(formula: Formula) -> int:
            if formula not in places:
                word, a, b = step(formula)
                steps.append((word, a, b, answers.get(formula)))
                places[formula] = len(steps) - 1
            return places[formula]

        def step(formula: Formula) -> tuple[str, int, int]:
            if isinstance(formula, int):
                return CONSTANT, formula, 0
            word, first, *second = formula
            return (word, first, 0) if word in (NUMBER, LOOK_UPS) else (word, place(first), place(second[0]))

        for formula in answers:
            place(formula)
        return SizeProgram(steps, [place(formula) for formula in entries])

    def table(self, numbers: Sequence[int]) -> list[int] | None:
        """What code reads; None where it is not good for these numbers."""
        found: list[int] = []
        for word, a, b, answer in self.steps:
            if word == NUMBER:
                value = numbers[a]
            elif word == CONSTANT:
                value = a
            elif word == LOOK_UPS:
                value = len(self.entries)
            else:
                x, y = found[a], found[b]
                if y == 0 and word in "//%":  # the emitter divided by what is nothing here
                    return None
                value = int(OPERATIONS[word](x, y))
            if answer is not None and value != answer:
                return None
            found.append(value)
        return [found[k] for k in self.entries]
