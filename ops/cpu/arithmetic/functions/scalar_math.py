"""Functions computed one lane at a time: the C library's, and powers of integers."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.vector_math import lanes_of
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, I64

# Those of the expression language whose names the C library shares.
LIBM = frozenset(
    {"exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"}
    | {"erf", "pow", "fmod"}
)
INT_POWER = "brickrt_int_power"


def libm(f: FunctionEmitter, name: str, *args: ir.Value) -> ir.Value:
    """The C library's function of every lane, in the variant for the operands' type."""
    element = args[0].type.element if isinstance(args[0].type, ir.VectorType) else args[0].type
    return per_lane(f, name + ("f" if element == FLOAT else ""), *args)


def per_lane(f: FunctionEmitter, name: str, *args: ir.Value) -> ir.Value:
    """The scalar function `name`, whose result has its argument's type, applied lane by lane."""
    lanes = lanes_of(args[0])
    if lanes == 1:
        return f.intrinsic(name, args[0].type, *args)
    acc: ir.Value = ir.Constant(args[0].type, ir.Undefined)
    for k in range(lanes):
        one = [f.b.extract_element(a, I32(k)) for a in args]
        acc = f.b.insert_element(acc, f.intrinsic(name, args[0].type.element, *one), I32(k))
    return acc


def int_power(f: FunctionEmitter, base: ir.Value, exponent: ir.Value) -> ir.Value:
    """base^exponent of i64 lanes, modulo 2^64; the exponent is taken as unsigned."""
    if INT_POWER not in f.module.globals:
        _define_int_power(f.module)
    return per_lane(f, INT_POWER, base, exponent)


def _define_int_power(module: ir.Module) -> None:
    """Squares the base once per bit of the exponent."""
    fn = ir.Function(module, ir.FunctionType(I64, [I64, I64]), INT_POWER)
    fn.linkage = "internal"
    entry, head, done = (fn.append_basic_block(name) for name in ("entry", "head", "done"))
    ir.IRBuilder(entry).branch(head)
    b = ir.IRBuilder(head)
    result, base, rest = b.phi(I64), b.phi(I64), b.phi(I64)
    odd = b.trunc(rest, ir.IntType(1))
    product = b.select(odd, b.mul(result, base), result)
    square, half = b.mul(base, base), b.lshr(rest, I64(1))
    for phi, first, next_value in ((result, I64(1), product), (base, fn.args[0], square), (rest, fn.args[1], half)):
        phi.add_incoming(first, entry)
        phi.add_incoming(next_value, head)
    b.cbranch(b.icmp_unsigned("==", half, I64(0)), done, head)
    ir.IRBuilder(done).ret(product)
