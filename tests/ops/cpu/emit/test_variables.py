"""Variables of the emitter: what loops, conditions and cases make of them."""

import ctypes

import pytest
from llvmlite import ir

from brickrt.ops.cpu.compile import LoadedObjects, to_object
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64
from brickrt.ops.cpu.isa import Isa

ISA = Isa(1, 16)


def run(emit, n: int) -> int:
    """What `emit(f, n)` returns, compiled, for this n."""
    module = ir.Module("variables")
    f = FunctionEmitter(module, "f", (I64,), I64)
    f.b.ret(emit(f, f.fn.args[0]))
    library = LoadedObjects()
    library.add(to_object(module, ISA))
    return library.function("f", ctypes.c_int64, ret=ctypes.c_int64)(n)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_sum_in_nested_loops_that_may_be_empty(n):
    def emit(f, n):
        total = f.variable(I64(7))
        with f.loop(0, n) as i, f.loop(0, i) as j:
            f.change(total, f.b.add(f.read(total), f.value(j)))
        return f.read(total)

    assert run(emit, n) == 7 + sum(j for i in range(n) for j in range(i))


@pytest.mark.parametrize("n", [0, 1, 4])
def test_values_that_trade_places(n):
    """Fibonacci's numbers: each iteration reads what the one before it left."""

    def emit(f, n):
        a, b = f.variable(I64(0)), f.variable(I64(1))
        with f.loop(0, n):
            before = f.read(a)
            f.change(a, f.read(b))
            f.change(b, f.b.add(before, f.read(b)))
        return f.read(a)

    assert run(emit, n) == [0, 1, 1, 2, 3][n]


@pytest.mark.parametrize("n", [0, 3, 8])
def test_condition_inside_a_loop(n):
    def emit(f, n):
        odd = f.variable(I64(0))
        with f.loop(0, n) as i, f.when(f.b.icmp_signed("==", f.b.and_(i, I64(1)), I64(1))):
            f.change(odd, f.b.add(f.read(odd), I64(1)))
        return f.read(odd)

    assert run(emit, n) == n // 2


@pytest.mark.parametrize("count", [1, 2, 7])
def test_cases_change_what_they_will(count):
    """Case k adds k to one sum, and every other case one to the other."""

    def emit(f, n):
        sums, others = f.variable(I64(0)), f.variable(I64(0))
        with f.loop(0, n) as i:
            for k in f.cases(i, count):
                f.change(sums, f.b.add(f.read(sums), I64(k)))
                if k % 2:
                    f.change(others, f.b.add(f.read(others), I64(1)))
        return f.b.add(f.read(sums), f.b.mul(f.read(others), I64(100)))

    assert run(emit, count) == sum(range(count)) + 100 * (count // 2)
