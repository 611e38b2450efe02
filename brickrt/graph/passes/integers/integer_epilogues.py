"""Epilogues of integer products: what follows the sums up to the bytes that are stored, in few operations.

sums ─ · scale ─ ÷ scale ─ round ─ + zero ─ clip ─ byte      one multiplication, one rounding
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from brickrt.graph.ir import Node
from brickrt.graph.rewriter import Rewriter
from brickrt.ops.expr import Apply, Arg, Const, Expr, used_operands, walk
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.product_types import is_integer_product

U8, F32 = np.dtype(np.uint8), np.dtype(np.float32)
BYTE = 1
Merge = Callable[[Rewriter, Node, Node], bool]


def into_integer_product(rewriter: Rewriter, node: Node, merge: Merge) -> None:
    """Makes a Map part of the epilogue of the integer product before it, until this stores bytes: sums that two
    products quantize, to be added, stay two epilogues."""
    producers = [rewriter.nodes[name] for name in node.inputs if name in rewriter.nodes]
    for producer in producers if isinstance(node.op, Map) else ():
        if is_integer(rewriter, producer) and rewriter.types[producer.output].dtype.itemsize > BYTE:
            merge(rewriter, producer, node)
            return


def is_integer(rewriter: Rewriter, node: Node) -> bool:
    """Whether a node is a product of integers."""
    kinds = [rewriter.types[name] for name in node.inputs[:2]]
    return isinstance(node.op, Product) and is_integer_product(*kinds)


def simplify_integer_epilogue(rewriter: Rewriter, output: str) -> None:
    """Divisions by constants become multiplications, which are joined with the product's scales; bytes that are
    converted back at once stay floats. What is rounded may differ by an ulp before."""
    node = rewriter.nodes[output]
    if not is_integer(rewriter, node) or not isinstance(node.op, Product) or node.op.epilogue is None:
        return
    expr = _simplified(node.op.epilogue)
    for k in used_operands(expr):
        node, expr = _joined_scale(rewriter, node, expr, k)
    assert isinstance(node.op, Product)
    rewriter.put(replace(node, op=replace(node.op, epilogue=expr)))


def _simplified(expr: Expr) -> Expr:
    if not isinstance(expr, Apply):
        return expr
    args = tuple(_simplified(a) for a in expr.args)
    match expr.fn, args:
        case "div", (x, Const(value=by)) if expr.dtype == F32 and 2.0**-100 < abs(by) < 2.0**100 and not _scaled(x):
            return _simplified(Apply(F32, "mul", (x, Const(F32, float(np.float32(1 / np.float64(by)))))))
        case "mul", (Apply(fn="mul", args=(x, Const(value=a))), Const(value=b)):
            return Apply(expr.dtype, "mul", (x, Const(expr.dtype, float(np.float32(a * b)))))
        case "mul", (Apply(fn="add", args=(Apply(fn="mul") as a, Apply(fn="mul") as b)), Const() as by):
            return Apply(expr.dtype, "add", tuple(_simplified(Apply(expr.dtype, "mul", (x, by))) for x in (a, b)))
        case "sub", (x, Const(value=zero)) if _whole(x):
            return _less_zero(x, zero) or Apply(expr.dtype, "sub", args)
        case "cast", (Apply(fn="cast", args=(x,)) as inner,) if expr.dtype == F32 and inner.dtype == U8 and _whole(x):
            return x
    return Apply(expr.dtype, expr.fn, args)


def _scaled(x: Expr) -> bool:
    """Whether a number is a quantized one times its scale. Many such lie halfway between those of another scale, where
    the last bit decides."""
    match x:
        case Apply(fn="mul", args=(Apply(fn="min" | "sub" | "cast") as whole, Const())):
            return any(isinstance(e, Apply) and e.fn == "round" for e in walk(whole))
    return False


def _less_zero(x: Expr, zero: float) -> Expr | None:
    """clip(round(y) + zero) - zero as clip(round(y)) between other bounds, which are exact."""
    match x:
        case Apply(
            args=(Apply(args=(Apply(fn="add", args=(value, Const(value=offset))), Const())), Const(value=top))
        ) if offset == zero:
            least = Apply(F32, "max", (value, Const(F32, -zero)))
            return Apply(F32, "min", (least, Const(F32, top - zero)))
    return None


def _whole(x: Expr) -> bool:
    """Whether a float is an integer within an unsigned byte."""
    match x:
        case Apply(fn="min", args=(Apply(fn="max", args=(value, Const(value=0))), Const(value=255))):
            match value:
                case Apply(fn="round") | Apply(fn="add", args=(Apply(fn="round"), Const())):
                    return x.dtype == F32
    return False


def _joined_scale(rewriter: Rewriter, node: Node, expr: Expr, k: int) -> tuple[Node, Expr]:
    """sums · operand k · constant, where that is all the operand is used for, as sums · another operand."""
    assert isinstance(node.op, Product)
    name = node.inputs[node.op.main + k - 1] if k else ""
    uses = [e for e in walk(expr) if isinstance(e, Arg) and e.index == k]
    found = [e for e in walk(expr) if _is_scaled(e, k)]
    if name not in rewriter.constants or len(uses) != 1 or len(found) != 1:
        return node, expr
    outer = found[0]
    assert isinstance(outer, Apply) and isinstance(outer.args[1], Const)
    scaled = rewriter.constants[name] * np.float32(outer.args[1].value)
    inputs = list(node.inputs)
    inputs[node.op.main + k - 1] = rewriter.constant(scaled.astype(F32), f"{name}/scaled")
    return replace(node, inputs=tuple(inputs)), _replaced(expr, outer, outer.args[0])


def _is_scaled(e: Expr, k: int) -> bool:
    match e:
        case Apply(fn="mul", args=(Apply(fn="mul", args=(_, Arg(index=index))), Const())):
            return index == k
    return False


def _replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    if expr is old:
        return new
    if not isinstance(expr, Apply):
        return expr
    return Apply(expr.dtype, expr.fn, tuple(_replaced(a, old, new) for a in expr.args))
