"""The machine code of CUDA kernels: wide accesses, tensor cores, no local memory in loops. Needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.kernels.compile import compiler_version
from tests.support.sass.accesses import widest
from tests.support.sass.cases import CodeCase, machine_code
from tests.support.sass.loops import DIVISION, LOCAL, PRODUCTS, TENSOR, MachineLoop, loops
from tests.support.sass.read import MachineFunction, MachineInstruction, disassembler

# Of the instructions in the loop over the depth, the least part that multiplies, in percent.
PRODUCT_CASES = {
    CodeCase("conv3", "fp32", "sm_80"): 80,
    CodeCase("conv3", "tf32", "sm_90"): 12,
    CodeCase("conv3", "fp16", "sm_90"): 17,
    CodeCase("conv3", "bf16", "sm_80"): 17,
    CodeCase("conv1", "fp16", "sm_80"): 33,
    CodeCase("transposed3", "fp32", "sm_90"): 80,
    CodeCase("transposed3", "bf16", "sm_90"): 20,
    CodeCase("matmul", "fp32", "sm_90"): 84,
    CodeCase("matmul", "tf32", "sm_80"): 20,
    CodeCase("batches", "fp16", "sm_90"): 18,
}
# Bytes of an access to global memory, for boxes that end between vectors.
OTHER_CASES = {
    CodeCase("map", "fp32", "sm_80"): 16,
    CodeCase("map", "fp16", "sm_90"): 16,
    CodeCase("max", "bf16", "sm_90"): 16,
    CodeCase("average", "fp32", "sm_80"): 16,
    CodeCase("depthwise3", "fp32", "sm_90"): 16,
    CodeCase("depthwise3", "fp16", "sm_80"): 16,
    CodeCase("space", "fp32", "sm_90"): 16,
    CodeCase("softmax", "fp32", "sm_90"): 16,
    CodeCase("norm", "fp16", "sm_80"): 16,
    CodeCase("concat", "fp16", "sm_90"): 16,
    CodeCase("pad", "fp32", "sm_90"): 16,
    # for registers: vectors of 4 channels where a row of taps is longer than 4, and of 4 rows of a reduction
    CodeCase("depthwise5", "fp16", "sm_90"): 8,
    CodeCase("space", "bf16", "sm_80"): 8,
    # tiles go through shared memory element by element
    CodeCase("to plain", "fp32", "sm_90"): 4,
    CodeCase("to last", "fp16", "sm_90"): 2,
}
# Loops over the depth that do not have what the others have.
PAIRED = {
    CodeCase(
        "batches", "fp16", "sm_90"
    ): "two rows of halves that vary become words: loaded, mixed and stored by threads"
}


@pytest.fixture(scope="module")
def code() -> Iterator[dict[CodeCase, list[MachineLoop]]]:
    """The loops of each case's kernel, the shortest first."""
    if disassembler() is None:
        pytest.skip("no disassembler: pip install nvidia-cuda-nvdisasm")
    try:
        compiler_version()
    except BrickError as e:
        pytest.skip(str(e))
    yield {case: loops(function) for case, function in machine_code([*PRODUCT_CASES, *OTHER_CASES]).items()}


def over_depth(found: list[MachineLoop]) -> MachineLoop:
    """The loop that multiplies: one buffer of the operands in each round."""
    return next(loop for loop in found if loop.count(*TENSOR) >= 8 or loop.count(*PRODUCTS) >= 256)


@pytest.mark.parametrize(("case", "least"), PRODUCT_CASES.items(), ids=str)
def test_products(case, least, code):
    """Tensor cores where they may be used; copies of 16 bytes and wide loads from shared memory; nothing is divided."""
    loop = over_depth(code[case])
    tensor, products = loop.count(*TENSOR), loop.count(*PRODUCTS)
    assert (products == 0) if case.kind != "fp32" else (tensor == 0)
    assert 100 * (tensor + products) >= least * len(loop.code)
    assert len(loop.widths("LDGSTS")) >= 2 and set(loop.widths("LDGSTS", "LDSM")) == {16}
    assert loop.count(*LOCAL, *DIVISION) == 0
    if case in PAIRED:
        assert loop.widths("LDG", "LD") == [8, 8] and loop.widths("STS") == [16] and set(loop.widths("LDS")) == {4}
    else:
        assert loop.count("LDG", "LD", "STG", "ST", "STS") == 0 and set(loop.widths("LDS")) <= {16}


@pytest.mark.parametrize(("case", "wanted"), [*OTHER_CASES.items(), *((c, 16) for c in PRODUCT_CASES)], ids=str)
def test_accesses_to_global_memory_are_wide(case, wanted, code):
    """What is wider than wanted belongs into the table above."""
    assert widest(code[case]) == wanted


@pytest.mark.parametrize("case", [*OTHER_CASES, *PRODUCT_CASES], ids=str)
def test_no_innermost_loop_has_local_memory(case, code):
    """Neither what is spilled nor arrays that are indexed at run time."""
    inner = [loop for loop in code[case] if loop.innermost]
    assert inner and not any(loop.count(*LOCAL) for loop in inner)


def function(*lines: str) -> MachineFunction:
    """A function of lines such as "@P0 BRA 0x20"."""
    words = [line.split() if line.startswith("@") else ["", *line.split()] for line in lines]
    return MachineFunction(
        "f", tuple(MachineInstruction(16 * k, w[1], "".join(w[2:]), w[0]) for k, w in enumerate(words))
    )


def test_loops_of_a_function():
    """The inner one has a branch around a narrow load. Far jumps out of loops are written as calls."""
    found = loops(function(
        "MOV R0,RZ", "LDG.E.128 R4,[R2.64]", "@P0 BRA 0x40", "LDG.E.U16 R4,[R2.64]", "STG.E.64 [R6.64],R4",
        "@P1 BRA 0x10", "@P2 CALL.REL.NOINC 0x90", "STL [R1],R4", "BRA 0x0", "EXIT", "BRA 0xa0",
    ))  # fmt: skip
    assert [(loop.head, len(loop.code), loop.innermost) for loop in found] == [(16, 5, True), (0, 9, False)]
    assert [loop.count(*LOCAL) for loop in found] == [0, 1]
    assert found[0].widths("LDG", "STG") == [16, 2, 8] and widest(found) == 8


def test_a_load_that_each_round_needs_is_not_overlooked():
    """The predicate of a branch may be an operand; an instruction with a predicate does not branch."""
    narrow = "LDG.E.128 R4,[R2.64]", "@P0 LDG.E.U16 R4,[R2.64]", "STG.E.128 [R6.64],R4", "BRA P1,0x0", "EXIT"
    assert widest(loops(function(*narrow))) == 2
    assert widest(loops(function(narrow[0], *narrow[2:]))) == 16
    assert widest(loops(function(*narrow[:2], *narrow[3:]))) == 0
