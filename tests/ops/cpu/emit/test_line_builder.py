"""Lines say what llvmlite's own builder prints, and LLVM finds what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import pytest
from llvmlite import binding as llvm
from llvmlite import ir

from brickrt.ops.cpu.emit.line_builder import BINARY, CASTS, LineBuilder
from brickrt.ops.cpu.emit.llvm_types import DOUBLE, FLOAT, I1, I8, I16, I32, I64, PTR, VOID, vector_constant

Emit: TypeAlias = Callable[[ir.IRBuilder, tuple[ir.Value, ...]], object]
LANES = ir.VectorType(FLOAT, 4)
WORDS = ir.VectorType(I32, 4)
FLOATING = {"fadd", "fsub", "fmul", "fdiv"}
CAST_TYPES = {
    "trunc": (I64, I8),
    "zext": (I8, I64),
    "sext": (I8, I64),
    "fptrunc": (DOUBLE, FLOAT),
    "fpext": (FLOAT, DOUBLE),
    "bitcast": (LANES, WORDS),
    "fptoui": (FLOAT, I32),
    "uitofp": (I16, FLOAT),
    "fptosi": (LANES, WORDS),
    "sitofp": (WORDS, LANES),
    "ptrtoint": (PTR, I64),
    "inttoptr": (I64, PTR),
}


def printed(builder: type[ir.IRBuilder], kinds: tuple[ir.Type, ...], emit: Emit) -> str:
    """A function of arguments of these types as LLVM prints it, whose values and blocks are named in order."""
    module = ir.Module("m")
    fn = ir.Function(module, ir.FunctionType(VOID, kinds), "f")
    b = builder(fn.append_basic_block("entry"))
    emit(b, fn.args)
    b.ret_void()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    names: dict[str, str] = {}
    text = re.sub(r"^(\S+):.*", r"%\1:", str(parsed), flags=re.MULTILINE)
    text = re.sub(r";.*", "", text)
    return re.sub(r'%("[^"]+"|[\w.]+)', lambda found: names.setdefault(found[0], f"%{len(names)}"), text)


def same(kinds: tuple[ir.Type, ...], emit: Emit) -> None:
    ours = printed(LineBuilder, kinds, emit)
    assert ours == printed(ir.IRBuilder, kinds, emit)
    assert ours.count("\n") > 4


@pytest.mark.parametrize("name", [name for names in BINARY.values() for name in names])
def test_instructions_on_two_values(name):
    for kind in (FLOAT, LANES) if name in FLOATING else (I64, WORDS):
        same((kind, kind), lambda b, args: getattr(b, name)(*args))


def test_flags():
    same((I64, I64), lambda b, args: b.add(*args, flags=["nsw", "nuw"]))
    same((LANES, LANES), lambda b, args: b.fmul(*args, flags=["fast"]))
    same((LANES,), lambda b, args: b.fneg(args[0], flags=["nnan"]))
    same((I1, LANES, LANES), lambda b, args: b.select(*args, flags=["nnan"]))
    same((LANES, LANES), lambda b, args: b.fcmp_ordered("<", *args, flags=["nnan"]))


@pytest.mark.parametrize("name", [name for names in CASTS.values() for name in names])
def test_casts(name):
    source, target = CAST_TYPES[name]
    same((source,), lambda b, args: b.store(getattr(b, name)(args[0], target), b.alloca(target)))
    same((target,), lambda b, args: b.store(getattr(b, name)(args[0], target), b.alloca(target)))


@pytest.mark.parametrize("order", ["<", ">", "<=", ">=", "==", "!="])
def test_comparisons(order):
    for kind in (I64, WORDS):
        for name in ("icmp_signed", "icmp_unsigned"):
            same((kind, kind), lambda b, args, name=name: getattr(b, name)(order, *args))
    for kind in (FLOAT, LANES):
        for name, also in (("fcmp_ordered", "ord"), ("fcmp_unordered", "uno")):
            same((kind, kind), lambda b, args, name=name: getattr(b, name)(order, *args))
            same((kind, kind), lambda b, args, name=name, also=also: getattr(b, name)(also, *args))


def test_memory():
    same((PTR,), lambda b, args: b.store(b.load(args[0], typ=LANES, align=4), args[0], align=8))
    same((PTR,), lambda b, args: b.store(b.load(args[0], typ=I64), args[0]))
    same((PTR, I64), lambda b, args: b.gep(args[0], [args[1]], source_etype=FLOAT))
    same((PTR, I64), lambda b, args: b.gep(args[0], [args[1]], inbounds=True, source_etype=FLOAT))
    same((I64,), lambda b, args: b.store(b.load(b.alloca(I64)), b.gep(b.alloca(I64, 3), [args[0]])))


def test_vectors():
    picks, some = vector_constant(I32, (3, 4, 0, 1)), vector_constant(I32, (7, 0))
    same((LANES, FLOAT), lambda b, args: b.insert_element(*args, I32(2)))
    same((LANES, I32), lambda b, args: b.extract_element(*args))
    same((LANES, LANES), lambda b, args: b.shuffle_vector(*args, picks))
    same((WORDS, WORDS), lambda b, args: b.shuffle_vector(*args, some))
    same((LANES,), lambda b, args: b.select(I1(1), args[0], ir.Constant(LANES, [1.5, -0.0, 2.0, 3.0])))


def test_calls():
    def emit(b: ir.IRBuilder, args: tuple[ir.Value, ...]) -> None:
        address, x = args
        made = {kind: ir.Function(b.module, ir.FunctionType(kind, [kind]), f"g{kind}") for kind in (I64, FLOAT)}
        nothing = ir.Function(b.module, ir.FunctionType(VOID, [PTR, I64]), "nothing")
        b.call(nothing, [address, b.call(made[I64], [x])])
        b.call(b.inttoptr(x, ir.FunctionType(VOID, [PTR, I64]).as_pointer()), args)
        b.call(made[FLOAT], [ir.Constant(FLOAT, 0.1)], fastmath=["fast"])
        b.assume(b.icmp_signed("<", x, I64(3)))

    same((PTR, I64), emit)


def test_control_flow():
    def emit(b: ir.IRBuilder, args: tuple[ir.Value, ...]) -> None:
        before, head, after = b.block, b.append_basic_block("loop"), b.append_basic_block("done")
        b.branch(head)
        b.position_at_end(head)
        i, total = b.phi(I64), b.phi(FLOAT)
        following, more = b.add(i, I64(1)), b.fadd(total, args[1])
        for phi, first, then in ((i, args[0], following), (total, args[1], more)):
            phi.add_incoming(first, before)
            phi.add_incoming(then, head)
        b.cbranch(b.icmp_signed("<", following, args[0]), head, after)
        b.position_at_end(after)
        with b.if_else(b.fcmp_ordered("<", more, total)) as (less, other):
            with less:
                b.store(more, b.alloca(FLOAT))
            with other:
                b.store(total, b.alloca(FLOAT))

    same((I64, FLOAT), emit)


def test_phis_stand_before_the_other_lines_of_their_block():
    def emit(b: ir.IRBuilder, args: tuple[ir.Value, ...]) -> None:
        before, block = b.block, b.append_basic_block("next")
        b.branch(block)
        b.position_at_end(block)
        phis = [b.phi(I64)]
        x = b.add(phis[0], args[1])
        phis.append(b.phi(I64))
        y = b.mul(x, phis[1])
        for phi in phis:
            phi.add_incoming(args[0], before)
        assert block.instructions == [*phis, x, y]

    printed(LineBuilder, (I64, I64), emit)


def test_llvm_names_an_operand_of_the_wrong_type():
    with pytest.raises(RuntimeError, match=r"defined with type 'i64' but expected 'i32'"):
        printed(LineBuilder, (I32, I64), lambda b, args: b.add(*args))
    with pytest.raises(RuntimeError, match="invalid insertelement operands"):
        printed(LineBuilder, (FLOAT, I32), lambda b, args: b.insert_element(args[0], args[0], args[1]))
