"""Texts of launches: equal where what runs is equal, whatever program it is in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brickrt.ops.cuda.kernel import Kernel
from brickrt.ops.cuda.operand import dense
from brickrt.ops.expr import arg
from brickrt.ops.operators.map import Map
from brickrt.ops.types import TensorType
from brickrt.runtime.cuda.kernels.kernel_context import SHARED_BYTES
from brickrt.runtime.cuda.kernels.kernel_sources import function_of, source_of
from tests.support.cuda.host_kernels import compiled, needs_compiler

F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Stub(Kernel):
    """Does nothing, in as many bytes of shared memory as its box has rows."""

    @property
    def shared(self) -> int:
        return self.largest[0]

    def emit(self, name: str) -> str:
        text = f"BRICK_DEVICE void {name}(const brick::Step&, char* const* at, char*) "
        return text + f"{{ /* {len(self.out.shape)} */ *at[0] = {self.largest[0]}; }}"


def stub(rows: int, *shape: int) -> Stub:
    operand = dense(TensorType(shape, F32))
    return Stub(Map(arg(0, F32)), (operand,), operand, (False,), "fp32", (rows,))


def test_kernels_of_equal_texts_are_one_function():
    assert function_of(stub(1, 2, 3)) == function_of(stub(1, 5, 7))
    assert function_of(stub(1, 2, 3)).name == function_of(stub(1, 5, 7)).name
    assert function_of(stub(1, 2, 3)).name != function_of(stub(2, 2, 3)).name
    assert function_of(stub(1, 2, 3)) != function_of(stub(1, 2, 3, 4))


def test_sources_tell_apart_what_differs():
    one, two = function_of(stub(1, 2, 3)), function_of(stub(2, 2, 3))
    assert source_of([one], False, 64) == source_of([one], False, 64)
    different = [
        source_of([one], False, 64),
        source_of([one], False, 128),
        source_of([one], True, 64),
        source_of([one, two], True, 64),
        source_of([two, one], True, 64),
    ]
    assert len({source.name for source in different}) == len(different)


def test_shared_memory_is_that_of_the_greediest():
    functions = [function_of(stub(rows, 2, 3)) for rows in (8, 128, 64)]
    assert source_of(functions, False, 64).shared == SHARED_BYTES + 128


@needs_compiler
def test_sources_may_be_put_together():
    one, two = function_of(stub(1, 2, 3)), function_of(stub(2, 2, 3))
    sources = [source_of(functions, True, 64) for functions in ([one], [two], [one, two], [two, one, two])]
    library = compiled("\n".join(source.text for source in sources))
    assert all(hasattr(library, source.name) for source in sources)
