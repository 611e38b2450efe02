"""What has been computed is found again where it is seen, and nowhere else."""

from __future__ import annotations

import gc

import pytest
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64


@pytest.fixture
def f() -> FunctionEmitter:
    return FunctionEmitter(ir.Module("m"), "f", (I64, I64))


def test_the_same_operation_is_emitted_once(f):
    x, y = f.fn.args
    assert f.mul(x, 3) is f.mul(x, 3)
    assert f.b.add(x, y) is f.b.add(x, y)
    assert f.b.add(x, y) is not f.b.sub(x, y)
    assert f.b.icmp_signed("<", x, y) is not f.b.icmp_signed(">", x, y)
    assert f.b.gep(x, [y], source_etype=I64) is not f.b.gep(x, [y], source_etype=ir.IntType(8))


def test_flags_are_never_mixed_up(f):
    x, y = f.fn.args
    for flags, words in ((["nsw"], "add nsw"), (["nuw"], "add nuw"), ([], "add"), (["nsw"], "add nsw")):
        assert f.b.add(x, y, flags=flags).text.partition(" = ")[2].startswith(f"{words} i64 ")


def test_a_body_sees_what_is_around_it_and_nothing_sees_into_it(f):
    x, y = f.fn.args
    outside = f.mul(x, y)
    with f.loop(0, y) as i:
        assert f.mul(x, y) is outside
        inside = f.mul(i, x)
        alone = f.mul(y, 7)
        with f.when(f.b.icmp_signed("<", i, x)):
            assert f.mul(i, x) is inside
            deep = f.add(i, x)
        assert f.add(i, x) is not deep
    after = f.mul(y, 7)
    assert after is not alone
    assert f.mul(x, y) is outside
    with f.b.if_else(f.b.icmp_signed("<", x, y)) as (less, more):
        with less:
            one = f.mul(x, 9)
        with more:
            assert f.mul(x, 9) is not one
    for k in f.cases(x, 3):
        assert f.mul(y, 7) is after
        assert f.mul(y, 11 + k // 2) is f.mul(y, 11 + k // 2)
    assert f.mul(y, 11).parent is f.b.block


def test_operands_that_no_one_else_holds_are_not_taken_for_others(f):
    x = f.fn.args[0]
    sums = [f.b.add(x, I64(k)) for k in range(2000)]
    gc.collect()
    assert [int(one.text.rpartition(" ")[2]) for one in sums] == list(range(2000))


def test_constants_are_gathered(f):
    x, y = f.fn.args
    assert f.add(f.add(x, 3), -3) is x
    assert f.add(f.add(x, 3), f.add(y, 4)) is f.add(x, y, 7)
    assert f.mul(f.add(x, 3), 5) is f.add(f.mul(x, 5), 15)
