"""Steps of float16 models between tensors: computed in float32, and rounded where a tensor is stored.

product ─ float16 ─ sigmoid ─ float16 ─ times ─ float16      product ─ sigmoid ─ times ─ float16

Each rounding takes two instructions, more than many a step. A result is then rounded once, and so at least as near to
what its formula says as where ONNX rounds after every operator. What depends on single values is still given rounded
ones: whole numbers, remainders, equality and tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from brickrt.graph.passes.retype import without_idle_steps
from brickrt.ops.base import Op
from brickrt.ops.definitions.elementwise_functions import named
from brickrt.ops.expr import Apply, Arg, Const, Expr, cast, transform, walk
from brickrt.ops.operators.rowwise import Rowwise, Step

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
ABRUPT = named(lambda function: function.abrupt)

Change = Callable[[Expr], Expr]


def unrounded_op(op: Op, inputs: int) -> Op:
    """An operator of so many inputs, of the same types, with fewer roundings; itself where it has none of float16."""
    if isinstance(op, Rowwise):
        op = _with_wide_results(op, inputs)
    return without_idle_steps(_changed(op, unrounded), inputs)


def unrounded(expr: Expr) -> Expr:
    """An expression of the same type whose float16 steps are float32; itself where it has none."""
    return _Unrounded().same_type(expr) if any(e.dtype == F16 and isinstance(e, Apply) for e in walk(expr)) else expr


def _with_wide_results(op: Rowwise, inputs: int) -> Rowwise:
    """The operator with results of steps, such as means, in float32: each element would widen them once more."""
    wide = {inputs + k for k, step in enumerate(op.steps) if step.dtype == F16}
    every = [op.expr, *(step.pre for step in op.steps), *([] if op.kept is None else [op.kept])]
    if not wide or any(isinstance(e, Apply) and e.fn in ABRUPT for expr in every for e in walk(expr)):
        return op

    def leaf(e: Expr) -> Expr:
        return cast(Arg(F32, e.index), F16) if isinstance(e, Arg) and e.index in wide else e

    def reading(e: Expr) -> Expr:
        return transform(e, leaf)

    steps = [Step(step.combine, reading(step.pre), step.post) for step in op.steps]
    steps = [_with_wide_result(step) if step.dtype == F16 else step for step in steps]
    return replace(op, steps=tuple(steps), expr=reading(op.expr), kept=None if op.kept is None else reading(op.kept))


def _with_wide_result(step: Step) -> Step:
    if step.post is None:
        return Step(step.combine, cast(step.pre, F32))
    return Step(step.combine, step.pre, cast(step.post, F32))


def _changed(op: Op, change: Change) -> Op:
    """The operator with its expressions changed; itself where all stay."""
    known: Any = op  # all operators are dataclasses
    given = {field.name: getattr(op, field.name) for field in fields(known)}
    found: dict[str, Any] = {name: change(value) for name, value in given.items() if isinstance(value, Expr)}
    if isinstance(op, Rowwise):
        found["steps"] = tuple(_changed_step(step, change) for step in op.steps)
    return op if all(found[name] == given[name] for name in found) else replace(known, **found)


def _changed_step(step: Step, change: Change) -> Step:
    return Step(step.combine, change(step.pre), None if step.post is None else change(step.post))


class _Unrounded:
    """One expression, whose shared parts stay shared."""

    def __init__(self) -> None:
        self._wide, self._same = dict[int, Expr](), dict[int, Expr]()

    def same_type(self, e: Expr) -> Expr:
        """An expression in its own type."""
        if id(e) not in self._same:
            self._same[id(e)] = self._of_same_type(e)
        return self._same[id(e)]

    def wide(self, e: Expr) -> Expr:
        """A float16 expression in float32, not rounded."""
        if e.dtype != F16:
            return self.same_type(e)
        if id(e) not in self._wide:
            self._wide[id(e)] = self._of_wide(e)
        return self._wide[id(e)]

    def rounded(self, e: Expr) -> Expr:
        """The same, rounded."""
        return cast(self.same_type(e), F32) if e.dtype == F16 else self.same_type(e)

    def _of_same_type(self, e: Expr) -> Expr:
        if isinstance(e, Arg | Const) or not isinstance(e, Apply):
            return e
        if e.dtype == F16:
            return cast(self.wide(e), F16)
        if e.fn == "cast":
            source = e.args[0]
            return self.wide(source) if (source.dtype, e.dtype) == (F16, F32) else cast(self.same_type(source), e.dtype)
        return self._with_wide_args(e, e.dtype)

    def _of_wide(self, e: Expr) -> Expr:
        if isinstance(e, Const):
            return Const(F32, e.value)
        if not isinstance(e, Apply):
            return cast(e, F32)
        if e.fn != "cast":
            return self._with_wide_args(e, F32)
        source = e.args[0]
        if source.dtype in (F16, F32):
            return self.wide(source)
        return cast(cast(self.same_type(source), F16), F32)

    def _with_wide_args(self, e: Apply, dtype: np.dtype) -> Apply:
        of = self.rounded if e.fn in ABRUPT else self.wide
        return Apply(dtype, e.fn, tuple(of(a) for a in e.args))
