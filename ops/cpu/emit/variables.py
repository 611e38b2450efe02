"""Values that change as code goes on, in registers from the start: loops and conditions join what they are.

A loop or condition is a `Scope` while its body is emitted. What a body touches gets a phi in the heads of all loops
around it, up to the one that the variable was made in; code after a body that may be skipped gets one more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from llvmlite import ir

from brickrt.ops.cpu.emit.line_builder import Phi, insert_phi


@dataclass(eq=False)
class Variable:
    """Its value where code is being emitted, and the number of scopes around the place where it was made."""

    value: ir.Value
    depth: int


@dataclass
class Scope:
    """A body that `before` branches to; one that repeats has a `head`."""

    before: ir.Block
    head: ir.Block | None = None
    entered: dict[Variable, ir.Value] = field(default_factory=dict)  # with which value
    phis: dict[Variable, Phi] = field(default_factory=dict)

    def touch(self, variable: Variable) -> None:
        """Before the body reads or changes a variable from outside for the first time."""
        if variable in self.entered:
            return
        self.entered[variable] = variable.value
        if self.head is not None:
            variable.value = self.phis[variable] = _phi(self.head, [(variable.value, self.before)])

    def repeat(self, end: ir.Block) -> None:
        """The body ends in block `end`, from where it repeats."""
        for variable, phi in self.phis.items():
            phi.add_incoming(variable.value, end)

    def join(self, end: ir.Block, after: ir.Block) -> None:
        """Block `after` is reached from the body's end and, where it is skipped, from before."""
        for variable, value in self.entered.items():
            if variable.value is not value:
                variable.value = _phi(after, [(value, self.before), (variable.value, end)])

    def leave(self) -> dict[Variable, ir.Value]:
        """What the body made of variables, which are again what they were before it."""
        made = {variable: variable.value for variable in self.entered}
        for variable, value in self.entered.items():
            variable.value = value
        return made


def join(after: ir.Block, bodies: list[tuple[dict[Variable, ir.Value], ir.Block]]) -> None:
    """Block `after` is reached from the ends of bodies of which one has run; with each what it made of variables."""
    for variable in dict.fromkeys(chain.from_iterable(made for made, _ in bodies)):
        variable.value = _phi(after, [(made.get(variable, variable.value), end) for made, end in bodies])


def _phi(block: ir.Block, incoming: list[tuple[ir.Value, ir.Block]]) -> Phi:
    phi = insert_phi(block, incoming[0][0].type)
    phi.incomings += incoming
    return phi
