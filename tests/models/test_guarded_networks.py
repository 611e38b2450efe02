"""Whole random networks in memory of which every part ends, or begins, at a page that nobody may touch.

Arena, scratch, constants, inputs and outputs each end there, or in other networks begin; all that is not written yet is
NaN, tail lanes and bands included. The results are those of an ordinary run, bit by bit. What touches a guard page ends
the child it runs in.
"""

from __future__ import annotations

import ctypes
import random

import numpy as np
import onnx
import pytest

from brickrt.ops.types import TensorType
from brickrt.plan.geometry.arena_packing import aligned
from brickrt.runtime.cpu.memory import GrowingMemory, HugePagePool
from brickrt.runtime.execution.execution import Execution
from brickrt.runtime.session.runtime import Runtime
from tests.support.cpu.harness import PAGE, GuardedMemory, poison
from tests.support.cpu.in_child import in_child
from tests.support.random_networks import random_network

WAYS = [("layerwise", None), ("auto", None), ("padded", 5), ("memoized", 8)]
# Other networks in each way, not the same in all; two of three in front of their pages.
RUNS = [(seed, *WAYS[seed % len(WAYS)], seed % 3 > 0) for seed in range(10)]
UNWRITTEN = 0xFF
"""In every byte: NaN in all floating-point types."""

Outputs = dict[str, np.ndarray]


class GuardedPool:
    """Takes the place of `HugePagePool.empty` and `GrowingMemory.grown`; holds what it gave out."""

    def __init__(self, front: bool = False) -> None:
        self.front = front
        self.given: list[tuple[np.ndarray, int]] = []

    def empty(self, nbytes: int) -> np.ndarray:
        """Bytes that begin at a multiple of the widest vector, and at whose end, but for less than a vector, is the
        page; or the page is before them."""
        whole = GuardedMemory(np.full(aligned(nbytes), UNWRITTEN, np.uint8), self.front).array
        self.given.append((whole, nbytes))
        return whole[:nbytes]

    def check(self) -> None:
        """Nobody wrote between the end and the page."""
        for whole, nbytes in self.given:
            assert (whole[nbytes:] == UNWRITTEN).all()


def guarded(
    model: onnx.ModelProto, x: np.ndarray, strategy: str, brick: int | None, front: bool
) -> tuple[Outputs, Outputs, Outputs]:
    """What an ordinary run gives, and two guarded ones; before the second, arena and scratch are as if never written.

    For a process of its own, since it changes the engine.
    """
    plain = Runtime(model, device="cpu", strategy=strategy, brick=brick, threads=2).execute({"x": x})
    pool = GuardedPool(front)

    def output(_: Execution, name: str, kind: TensorType) -> np.ndarray:
        return GuardedMemory(np.full(kind.shape, poison(kind.dtype), kind.dtype), front).array

    HugePagePool.empty = lambda _, nbytes, threads=1: pool.empty(nbytes)
    GrowingMemory.grown = lambda _, nbytes, threads=1: pool.empty(nbytes)
    Execution.output = output
    runtime = Runtime(model, device="cpu", strategy=strategy, brick=brick, threads=2)
    given = {"x": GuardedMemory(x, front).array}
    first = {name: array.copy() for name, array in runtime.execute(given).items()}
    for program in runtime.plan.programs:
        for lent in program._memory.working.free:
            for buffer in (lent.arena, *lent.scratch):
                buffer[:] = UNWRITTEN
    second = {name: array.copy() for name, array in runtime.execute(given).items()}
    pool.check()
    assert pool.given
    return plain, first, second


@pytest.mark.parametrize(("seed", "strategy", "brick", "front"), RUNS)
def test_nothing_outside_is_touched_or_leaks_in(seed: int, strategy: str, brick: int | None, front: bool):
    model = random_network(random.Random(seed))
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    how, answer, *_ = in_child(lambda: guarded(model, x, strategy, brick, front), 60)
    assert how == "answered", answer
    plain, first, second = answer
    for name, result in plain.items():
        np.testing.assert_array_equal(first[name], result, name)
        np.testing.assert_array_equal(second[name], result, f"{name} the second time")


@pytest.mark.parametrize("offset", [0, 1])
def test_a_guard_page_ends_the_child(offset: int):
    pool = GuardedPool()

    def touch() -> int:
        end = pool.empty(3 * PAGE).ctypes.data + 3 * PAGE
        return ctypes.c_char.from_address(end + offset - 1).value[0]

    how, answer, *_ = in_child(touch, 5)
    assert (how, answer) == (("answered", UNWRITTEN) if offset == 0 else ("died", "exit code -11"))
