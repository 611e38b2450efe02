"""The functions of the expression language: all are printed everywhere, and give what expressions say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.expressions import emit_expr
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import VOID, register_type, vector
from brickrt.ops.cuda import headers
from brickrt.ops.cuda.printing.expressions import HEADER, print_expr
from brickrt.ops.definitions.elementwise_functions import FUNCTIONS
from brickrt.ops.expr import Apply, apply, arg

TYPES = {"f": np.dtype(np.float32), "i": np.dtype(np.int32), "b": np.dtype(bool)}
LANES = 4
EACH = [(name, kind) for name, function in FUNCTIONS.items() for kind in function.kinds]


def applied(name: str, kind: str) -> Apply:
    """A function of operands of one kind, but for the condition of `where`."""
    types = [TYPES[kind]] * FUNCTIONS[name].operands
    return apply(name, *(arg(k, bool if name == "where" and k == 0 else t) for k, t in enumerate(types)))


def print_for_cpu(expr: Apply) -> str:
    module = ir.Module()
    kinds = [vector(register_type(e.dtype), LANES) for e in expr.args]
    f = FunctionEmitter(module, "k", kinds, VOID)
    value = emit_expr(f, expr, f.fn.args, LANES)
    f.finish()
    assert value.type == vector(register_type(expr.dtype), LANES)
    return str(module)


def print_for_gpu(expr: Apply) -> str:
    printed = print_expr(expr, [f"x{k}" for k in range(len(expr.args))])
    return f"{printed.statements}\n{printed.value}"


@pytest.mark.parametrize(("name", "kind"), EACH)
def test_every_function_is_printed(name: str, kind: str) -> None:
    """As LLVM IR, and as C++ that calls what the header has."""
    assert "ret" in print_for_cpu(applied(name, kind))
    header = (Path(headers.__path__[0]) / HEADER).read_text()
    for called in re.findall(r"brick::math::(\w+)", print_for_gpu(applied(name, kind))):
        assert re.search(rf"(BRICK_DEVICE \w+ |BRICK_UNARY\(){called}\b", header)


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if "f" not in function.kinds])
def test_no_other_function_is_printed_for_floats(name: str) -> None:
    for print_it in (print_for_cpu, print_for_gpu):
        with pytest.raises(ValueError, match=f"{name} is not defined for float"):
            print_it(applied(name, "f"))


@pytest.mark.parametrize(("name", "kind"), EACH)
def test_values_are_of_the_type_of_the_expression(name: str, kind: str) -> None:
    expr = applied(name, kind)
    with np.errstate(divide="ignore"):
        value = FUNCTIONS[name].define(*(np.ones(3, e.dtype) for e in expr.args))
    assert (value.dtype.kind, value.shape) == (expr.dtype.kind, (3,))
