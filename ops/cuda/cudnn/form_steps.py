"""Bias and epilogue of a product as the pointwise steps of a form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from brickrt.ops.cuda.cudnn.form import DTYPES, Pointwise, Unfit, Value
from brickrt.ops.expr import Apply, Arg, Const, Expr

OPERATIONS = frozenset(
    "neg abs sqrt exp log sin cos tan tanh erf sigmoid floor ceil reciprocal add sub mul div pow max min".split()
)
COMMUTATIVE = frozenset("add mul max min".split())
OPERAND_ORDER = ("step", "tensor", "scalar")  # cuDNN takes no first operand that broadcasts to the second


def steps_of(bias: bool, epilogue: Expr | None) -> tuple[Pointwise, ...]:
    """The steps after a product. Raises Unfit where cuDNN has no such operation."""
    chain = _OperationChain()
    value: Value = ("step", -1)
    if bias:
        value = chain.put(Pointwise("add", (value, ("tensor", 3))))
    if epilogue is not None:
        chain.extra = 3 + bias
        chain.product = value
        value = chain.value(epilogue)
        if value != ("step", len(chain.steps) - 1):
            raise Unfit("the result is not that of its last operation")
    return tuple(chain.steps)


def residual_first(steps: tuple[Pointwise, ...], whole: Sequence[int]) -> tuple[Pointwise, ...]:
    """The steps with the residual added before the bias, if the step after the bias adds one of the tensors `whole`.

    Some engines of cuDNN take only that order, those for float32 among them.
    """
    bias: Value = ("step", 0)
    again = [value for step in steps[1:] for value in step.args].count(bias)
    for k in whole:
        residual: Value = ("tensor", k)
        if steps[1:2] == (Pointwise("add", (bias, residual)),) and again == 1:
            first = Pointwise("add", (("step", -1), residual))
            return first, Pointwise("add", (bias, ("tensor", 3))), *steps[2:]
    return steps


@dataclass
class _OperationChain:
    """Collects the steps of an expression in the order in which they are computed; equal ones once.

    `product` is what `Arg(0)` of the expression stands for, `extra` the tensor that `Arg(1)` does.
    """

    steps: list[Pointwise] = field(default_factory=list)
    product: Value = ("step", -1)
    extra: int = 3

    def put(self, step: Pointwise) -> Value:
        """The result of a step, which is added unless there is an equal one."""
        if step not in self.steps:
            self.steps.append(step)
        return "step", self.steps.index(step)

    def value(self, expr: Expr) -> Value:
        """The value of an expression, after its steps. Raises Unfit."""
        if isinstance(expr, Const):
            return "scalar", float(expr.value)
        if isinstance(expr, Arg):
            return self.product if expr.index == 0 else ("tensor", self.extra + expr.index - 1)
        assert isinstance(expr, Apply)
        if expr.dtype.name not in DTYPES:
            raise Unfit(f"its epilogue has values of type {expr.dtype.name}")
        return self.known(expr) or self.plain(expr)

    def known(self, expr: Apply) -> Value | None:
        """The value of an expression that cuDNN has a single operation for (swish, relu and its variants), or None."""
        if expr.fn == "mul":
            for x, gate in (expr.args, expr.args[::-1]):
                if gate == Apply(x.dtype, "sigmoid", (x,)):
                    return self.put(Pointwise("swish", (self.value(x),)))
        if leaky := _leaky(expr):
            return self.put(Pointwise("relu", (self.value(leaky[0]),), slope=leaky[1]))
        clipped = _relu(expr)
        return clipped and self.put(Pointwise("relu", (self.value(clipped[0]),), clipped[1]))

    def plain(self, expr: Apply) -> Value:
        """The value of one function of operands."""
        if expr.fn == "cast":
            return self.value(expr.args[0])
        if expr.fn not in OPERATIONS:
            raise Unfit(f"its epilogue has '{expr.fn}'")
        args = tuple(self.value(a) for a in expr.args)
        if expr.fn in COMMUTATIVE:
            args = tuple(sorted(args, key=lambda value: OPERAND_ORDER.index(value[0])))
        if all(kind == "scalar" for kind, _ in args):
            raise Unfit("its epilogue computes with constants alone")
        return self.put(Pointwise(expr.fn, args))


def _leaky(expr: Apply) -> tuple[Expr, float] | None:
    """x and a if the expression is x, but a · x below zero; else None."""
    if expr.fn != "where":
        return None
    below, steep, x = expr.args
    if below != Apply(below.dtype, "lt", (x, Const(x.dtype, 0))):
        return None
    if isinstance(steep, Apply) and steep.fn == "mul" and steep.args[0] == x and isinstance(steep.args[1], Const):
        return x, float(steep.args[1].value)
    return None


def _relu(expr: Apply) -> tuple[Expr, float] | None:
    """x and the upper bound if the expression clips x to [0, bound]; else None. The bound may be infinite."""
    bounds: dict[str, float] = {"max": -math.inf, "min": math.inf}
    x: Expr = expr
    while isinstance(x, Apply) and x.fn in bounds and math.isinf(bounds[x.fn]):
        constants = [a for a in x.args if isinstance(a, Const)]
        if len(constants) != 1:
            break
        bounds[x.fn] = float(constants[0].value)
        x = x.args[0] if x.args[1] is constants[0] else x.args[1]
    return (x, bounds["min"]) if bounds["max"] == 0 < bounds["min"] else None
