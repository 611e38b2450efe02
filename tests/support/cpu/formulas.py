"""What formulas of sizes give."""

from __future__ import annotations

from collections.abc import Sequence

from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.emit.sizes import Formula


def value_of(formula: Formula, numbers: Sequence[int]) -> int:
    """What a formula gives for these numbers."""
    found = SizeProgram.of({}, [formula]).table(numbers)
    assert found is not None
    return found[0]
