"""Words of records: what blocks read of a task's steps."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Take
from brickrt.ops.types import Boxes
from brickrt.runtime.cuda.driver.alignment import ALIGNMENT
from brickrt.runtime.cuda.kernels.kernel_context import ARENA, CONSTANTS, FIRST_IO, HEAD_WORDS, SCRATCH
from brickrt.runtime.cuda.memory.constants import PackedConstants
from brickrt.runtime.cuda.schedule.argument_table import ArgumentTable, words_of
from brickrt.runtime.cuda.schedule.task_table import make_table
from brickrt.runtime.lowering.owned_constants import OwnedConstants
from tests.support.cuda.callback_kernels import use_callbacks
from tests.support.cuda.host_driver import SMALL
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import lowered, with_values


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch):
    use_callbacks(monkeypatch)


def unpacked(word: int) -> tuple[int, int]:
    """Base and signed offset of an operand's word."""
    bits = word & (1 << 64) - 1
    offset = bits & (1 << 56) - 1
    return bits >> 56, offset - (1 << 56 if offset >> 55 else 0)


def test_offsets_may_be_negative_and_bases_large():
    boxes = Boxes(np.array([[0, 3], [5, 7]]), np.array([[2, 4], [6, 9]]))
    words = words_of([(SCRATCH, np.array([-8, 16])), (255, np.array([0, -(1 << 40)]))], boxes)
    assert words.shape == (2, HEAD_WORDS + 2 + 2)
    assert (words[:, 1] == (2 | 2 << 32)).all()
    assert [unpacked(int(w)) for w in words[0, 2:4]] == [(SCRATCH, -8), (255, 0)]
    assert [unpacked(int(w)) for w in words[1, 2:4]] == [(SCRATCH, 16), (255, -(1 << 40))]
    assert words[:, 4:].tolist() == [[0 | 2 << 32, 3 | 4 << 32], [5 | 6 << 32, 7 | 9 << 32]]


def test_equal_constants_are_kept_once():
    constants = PackedConstants()
    some = np.arange(100, dtype=np.float32)
    first, other, again = (constants.add(a) for a in (some, some + 1, some.copy()))
    assert first == again != other
    assert constants.nbytes == 2 * 2 * ALIGNMENT
    assert all(offset % ALIGNMENT == 0 for offset, _ in constants.pieces)


def two_layers() -> Graph:
    """x → 3×3 → abs → y"""
    s = Sketch()
    graph = s.graph(s.map("abs", s.conv(s.input(1, 8, 12, 12), 8, 3)))
    return with_values(graph)[0]


def operands(records, step: int, count: int) -> list[tuple[int, int]]:
    return [unpacked(int(w)) for w in records.words[step, HEAD_WORDS : HEAD_WORDS + count]]


def test_bases_of_tensors():
    table = ArgumentTable(lowered(two_layers(), "layerwise", SMALL))
    some = [records for records in table.records if records]
    found = {base for records in some for k in range(len(records.tasks)) for base, _ in operands(records, k, 2)}
    assert {ARENA, FIRST_IO, FIRST_IO + 1} <= found
    assert CONSTANTS in {base for records in some for base, _ in operands(records, 0, len(records.kernel.ins) + 1)}


def test_virtual_origins_of_scratch_are_those_of_its_tensor():
    """The first element that a brick has of a tensor in scratch lies in the tensor's place."""
    tasks = lowered(two_layers(), "padded", SMALL, brick=4)
    table = ArgumentTable(tasks)
    seen = 0
    for steps, records in zip(tasks.steps, table.records, strict=True):
        output = tasks.plan.graph.nodes[steps.node].output
        if records and output in steps.origins:
            place, strides = tasks.allocations[output], np.asarray(records.kernel.out.strides)
            for k, origin in enumerate(steps.origins[output]):
                base, offset = operands(records, k, 1)[0]
                assert base == SCRATCH
                assert offset + int(origin @ strides) * records.kernel.out.dtype.itemsize == place.offset
                assert offset % records.kernel.out.align == 0
                seen += 1
    assert seen


def test_parts_promise_no_more_than_they_keep():
    """x → columns 1 … 6 of it, read in place: rows of 8 floats that begin 4 bytes late."""
    s = Sketch()
    x = s.map("abs", s.input(4, 8))
    part = s.add(Take((None, tuple(range(1, 7)))), x)
    tasks = lowered(with_values(s.graph(s.map("abs", part)))[0], "layerwise", SMALL)
    assert part in tasks.inplace_slices
    last = ArgumentTable(tasks).records[-1]
    assert last is not None and isinstance(last.kernel.op, Map)
    assert (last.kernel.ins[0].strides, last.kernel.ins[0].align) == ((8, 1), 4)


def test_tables_are_in_the_order_of_tasks_and_positions():
    tasks = lowered(two_layers(), "padded", SMALL, brick=4)
    numbered = [(records, k) for k, records in enumerate(ArgumentTable(tasks).records) if records]
    backwards = np.arange(len(tasks))[::-1].copy()
    table = make_table(numbered, backwards, len(tasks))
    for t in range(len(tasks)):
        words = table.records[table.task_at[backwards[t]] : table.task_at[backwards[t] + 1]].tolist()
        expected: list[int] = []
        mine = [(int(r.positions[k]), n, r, k) for r, n in numbered for k in np.flatnonzero(r.tasks == t)]
        for _, number, records, k in sorted(mine, key=lambda one: one[0]):
            expected += [number, *records.words[k, 1:].tolist()]
        assert words == expected


def test_constants_are_dropped_once_they_are_packed():
    """From the dictionary that the program was given; the graph stays as it is."""
    tasks = lowered(two_layers(), "layerwise", SMALL)
    constants = tasks.plan.graph.constants
    before, values = dict(constants), dict(constants)
    assert values
    ArgumentTable(tasks, values=OwnedConstants(tasks, values))
    assert not values
    assert constants.keys() == before.keys() and all(constants[name] is before[name] for name in before)


def test_constants_are_dropped_one_by_one():
    """When kernels of the second convolution are chosen, the weights of the first are gone."""
    s = Sketch()
    graph = with_values(s.graph(s.conv(s.conv(s.input(1, 8, 6, 6), 8), 8)))[0]
    tasks, held = lowered(graph, "layerwise", SMALL), list[int]()
    values = dict(tasks.plan.graph.constants)

    class Watched(PackedConstants):
        def add_packed(self, kernel, i, array):
            held.append(len(values))
            return super().add_packed(kernel, i, array)

    ArgumentTable(tasks, values=OwnedConstants(tasks, values), packed=Watched())
    assert held == sorted(held, reverse=True) and held[0] > held[-1] and not values
