"""Good tables pass, and whatever is changed in them such that a kernel would hang or go astray is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.cuda.operand import dense
from brickrt.ops.types import Boxes, TensorType
from tests.support.cuda.tables_of import tables_of
from tests.support.graphs.plan_graphs import Sketch
from tests.support.verify.buffers import runs
from tests.support.verify.grid import Grid, owners
from tests.support.verify.validate import validate

F32 = np.dtype(np.float32)


@pytest.fixture(scope="module")
def good():
    """x → to channels last → 1×1 → 3×3 → abs → to plain, 6 × 6 pixels in bricks of 3 × 3, all in one launch by tickets.

    Tasks 0, 2, 4, 6 and 1, 3, 5, 7 are bricks of the first two; 8 of the 3×3 convolution waits for the latter, 9 of the
    sum for 8, and 10 for 9.
    """
    return tables_of(chain(), "memoized", "persistent", brick=3)


def chain():
    s = Sketch()
    return s.graph(s.map("abs", s.conv(s.conv(s.input(1, 8, 6, 6), 8, 1), 8)))


def refused(tables, expected, message):
    with pytest.raises(ValueError, match=message) as error:
        validate(tables, expected)
    assert "\n" not in str(error.value)


def changed(array, at, value):
    array = array.copy()
    array[at] = value
    return array


def test_good_tables_pass(good):
    validate(*good)


# ---- order


@pytest.mark.parametrize(
    ("task", "dep", "message"),
    [
        (8, 20, "task 8 waits for task 20, which no one runs"),
        (8, -1, "task 8 waits for task -1, which no one runs"),
        (8, 8, "tasks wait for each other: 8 → 8"),
        (8, 9, "tasks wait for each other: 8 → 9 → 8"),
        (8, 11, "tasks wait for each other: 8 → 11 → 8|task 8 waits for task 11, which runs after it"),
        (8, 0, "task 8 does not wait for task 1, whose result it needs"),
        (10, 8, "task 10 does not wait for task 9, whose result it needs"),
    ],
)
def test_dependencies(good, task, dep, message):
    tables, expected = good
    refused(replace(tables, deps=changed(tables.deps, tables.dep_offsets[task], dep)), expected, message)


def test_what_steps_read_is_waited_for_even_if_the_graph_does_not_say_so(good):
    tables, expected = good
    deps = changed(tables.deps, tables.dep_offsets[8], 3)
    what = "task 8: node 'n1', box .* reads 't0', for whose writer, task 1, it does not wait"
    refused(replace(tables, deps=deps), replace(expected, deps=deps), what)


def test_a_way_through_others_is_enough(good):
    """Task 9 waits for 8, which waits for 7: 9 need not wait for that itself, nor 10 for 8."""
    tables, expected = good
    deps = changed(tables.deps, tables.dep_offsets[11] + 3, 8)  # 11 is beside 8, and needs 7 too
    validate(replace(tables, deps=deps), replace(expected, deps=deps))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 19}, "task 19 is in no launch"),
        ({"count": 21}, "launch 0: tasks 0 … 20 of 20"),
        ({"first": -1}, "launch 0: tasks -1 … 18 of 20"),
        ({"kernels": range(6)}, "launch 0: kernels 0 … 5 of 5"),
        ({"kernels": range(4)}, "node 't2:last→plain' calls kernel 4, which is not its own"),
        ({"after": (0,)}, "launch 0 comes after launch 0, which is no earlier one"),
        ({"after": (-1,)}, "launch 0 comes after launch -1, which is no earlier one"),
        ({"tickets": False}, "which runs its tasks in any order"),
    ],
)
def test_launches(good, change, message):
    tables, expected = good
    refused(replace(tables, launches=[replace(tables.launches[0], **change)]), expected, message)


def test_a_task_in_two_launches(good):
    tables, expected = good
    refused(replace(tables, launches=tables.launches * 2), expected, "task 0 is in launches 0 and 1")


def test_launches_of_layers():
    """Each reads what the one before it writes."""
    tables, expected = tables_of(chain(), "layerwise", "streams")
    validate(tables, expected)
    first, second, *rest = tables.launches
    alone = [first, replace(second, after=()), *rest]
    refused(replace(tables, launches=alone), expected, "launch 1 does not come after launch 0: task .* waits for")
    free = replace(expected, dep_offsets=np.zeros_like(expected.dep_offsets), deps=expected.deps[:0])
    refused(replace(tables, launches=alone), free, "reads 'x0→last', for whose writer, task 0, it does not wait")


def test_memory_used_again():
    """A long chain: what is written where others were comes after all who read those."""
    s = Sketch()
    x = s.input(1, 8, 6, 6)
    for _ in range(9):
        x = s.conv(x, 8, 1)
    tables, expected = tables_of(s.graph(x), "layerwise", "streams")
    validate(tables, expected)
    free = replace(expected, dep_offsets=np.zeros_like(expected.dep_offsets), deps=expected.deps[:0])
    validate(tables, free)
    one_by_one = [replace(launch, after=(k - 1,) if k else ()) for k, launch in enumerate(tables.launches)]
    validate(replace(tables, launches=one_by_one), free)


# ---- steps


def test_numbers(good):
    tables, expected = good
    for name in ("task_at", "records", "dep_offsets", "deps"):
        floats = getattr(tables, name).astype(float)
        refused(replace(tables, **{name: floats}), expected, f"the {name} are float64 of 1 dimensions")
    refused(replace(tables, records=tables.records.astype(np.int32)), expected, "the records are int32")


def test_offsets(good):
    tables, expected = good
    backwards = replace(tables, task_at=changed(tables.task_at, 2, 3))
    refused(backwards, expected, "task 1: its records end before they begin")
    refused(
        replace(tables, task_at=changed(tables.task_at, 2, 18)), expected, "its records end at word 18, its steps at 17"
    )
    refused(replace(tables, dep_offsets=changed(tables.dep_offsets, 4, 99)), expected, "task 4: its deps end before")
    fewer = replace(tables, deps=tables.deps[:-1])
    refused(fewer, expected, "the offsets into deps do not go from 0 to 27 in 20 tasks")
    refused(replace(tables, task_at=tables.task_at[:-1]), expected, "the offsets into records do not go from 0 to")


WORDS = [  # of task 8: kernel, operands and rank, output, x, weights, box
    (0, 1, "task 8: node 'n1' calls kernel 1, which is not its own"),
    (0, -1, "task 8: node 'n1' calls kernel -1, which is not its own"),
    (1, 2 | 4 << 32, "task 8: 2 operands, 4 dimensions are not those of node 'n1'"),
    (2, 200 << 56, "has its output at base 200 of 5"),
    (2, 2 << 56, "has its output at base 2 of 5"),
    (2, 3 << 56, "has its output at base 3 of 5"),
    (2, 0, "has its output in scratch, which launch 0 does not have"),
    (2, 1 << 56 | 1 << 50, r"has its output at bytes \d+:\d+ of base 1, not in 0:4608"),
    (2, 1 << 56 | 2, "has its output at byte 2, no multiple of 16"),
    (3, 1 << 56 | (1 << 56) - 64, r"has its input 0 at bytes -64:\d+ of base 1, not in 0:4608"),
    (3, 2 << 56, "has its input 0 at base 2 of 5"),
    (4, 2 << 56 | 64, "has its constant 1 at byte 64 of the constants, where none begins"),
    (4, 1 << 56, "has its constant 1 at base 1 of 5"),
    (5, 0 | 2 << 32, r"box \[0:2, 0:8, 0:3, 0:3\] is not inside of \[1, 8, 6, 6\]"),
    (7, 3, "has no elements"),
    (7, 0 | 2 << 32, r"node 'n1': element \[0, 0, 2, 0\] of 't1' is written 0 times"),
    (7, 0 | 4 << 32, r"node 'n1': element \[0, 0, 3, 0\] of 't1' is written 2 times"),
]


@pytest.mark.parametrize(("word", "value", "message"), WORDS)
def test_words(good, word, value, message):
    tables, expected = good
    at = int(tables.task_at[8]) + word
    records = changed(tables.records.view(np.uint64), at, np.uint64(value % (1 << 64))).view(np.int64)
    refused(replace(tables, records=records), expected, message)


def test_a_tensor_is_at_one_place(good):
    tables, expected = good
    at = tables.task_at[8] + 3
    records = changed(tables.records, at, tables.records[at] ^ 64)
    refused(replace(tables, records=records), expected, "task 8: .* finds 't0' at byte|not in 0:4608")


def test_what_does_not_fit_in_a_record(good):
    tables, expected = good
    many = [replace(expected.signatures[0], tables=65), *expected.signatures[1:]]
    refused(tables, replace(expected, signatures=many), "node 'x0→last': more than 64 operands")
    refused(tables, replace(expected, base_bytes=(1 << 20,) * 257), "too many inputs and outputs")


# ---- scratch and buffers


@pytest.mark.parametrize("band", [None, 1])
def test_scratch(band):
    """Two convolutions in padded bricks: the second reads more than the first has written, or elsewhere."""
    s = Sketch()
    tables, expected = tables_of(
        s.graph(s.conv(s.conv(s.input(1, 8, 6, 6), 8), 8)), "padded", "streams", brick=3, band=band
    )
    validate(tables, expected)
    inner = next(k for k, like in enumerate(expected.signatures) if like.node == "n0")
    i = int(np.flatnonzero(expected.like == inner)[-1])
    sizes = np.array([2 + like.words + like.rank for like in expected.signatures])
    start = int(sizes[expected.like[:i]].sum())
    box = start + 2 + expected.signatures[inner].words + 3
    lo, hi = int(tables.records[box]) & 0xFFFFFFFF, int(tables.records[box]) >> 32
    narrow = changed(tables.records, box, lo | hi - 1 << 32)
    refused(replace(tables, records=narrow), expected, "node 'n1'.* reads more of 't0' than its task has written")
    moved = changed(tables.records, start + 2, tables.records[start + 2] + 16)
    refused(replace(tables, records=moved), expected, "reads 't0' where its task has not written it|bytes|same place")


def test_runs():
    """Rows of pixels with all channels are one run; whole rows are one with the next."""
    own = dense(TensorType((2, 4, 5, 6), F32), "last")
    boxes = Boxes(np.array([[0, 0, 1, 2], [1, 0, 3, 2]]), np.array([[1, 4, 3, 5], [2, 4, 5, 5]]))
    of, start, end = runs(own, np.array([100, 200]), boxes)
    assert of.tolist() == [0, 0, 1, 1]
    row = 6 * 4 * 4
    assert start[:2].tolist() == [100 + row + 2 * 4 * 4, 100 + 2 * row + 2 * 4 * 4]
    assert (end - start == 3 * 4 * 4).all()
    whole = runs(own, np.array([0]), Boxes.whole(own.shape))
    assert [part.tolist() for part in whole] == [[0], [0], [2 * 4 * 5 * 6 * 4]]


def test_cells():
    boxes = Boxes(np.array([[0, 0], [2, 0], [0, 3]]), np.array([[2, 3], [4, 3], [4, 5]]))
    grid = Grid.of(boxes, (4, 5))
    times, owner = owners(grid, boxes)
    assert grid.spans((4, 5)) and grid.shape == (2, 2)
    assert times.tolist() == [1, 1, 1, 1] and owner.tolist() == [0, 2, 1, 2]
    of, cells = grid.covering(Boxes.one((1, 2), (3, 3)))
    assert of.tolist() == [0, 0] and cells.tolist() == [0, 2]


def test_buffers(monkeypatch, tmp_path):
    """Groups of two padded bricks take turns in the same buffers, where a library computes; a launch of the second
    group in the place of the first one's finds nothing there that was written for its bricks."""
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    s = Sketch()
    x = s.conv(s.conv(s.map("abs", s.input(1, 8, 6, 6)), 8), 8)
    tables, expected = tables_of(s.graph(s.map("abs", x)), "padded", "streams", group=2, brick=3, most=99)
    validate(tables, expected)
    calls = [use.launch for use in expected.uses if use.tensor is None]
    first, last = min(calls), max(calls)
    assert first < last
    launches = list(tables.launches)
    launches[last] = replace(launches[last], after=())
    refused(replace(tables, launches=launches), expected, f"launch {last} does not come after launch")
    a, b, *_ = (k for k in range(len(launches)) if reads_buffers(tables, expected, k))
    moved = replace(tables.launches[b], after=tables.launches[a].after)
    back = replace(tables.launches[a], after=tables.launches[b].after)
    launches = [moved if k == a else back if k == b else launch for k, launch in enumerate(tables.launches)]
    refused(replace(tables, launches=launches), expected, "reads what was not written for its brick")


def reads_buffers(tables, expected, k):
    """Whether a launch has steps that read and write such."""
    launch = tables.launches[k]
    mine = (expected.tasks >= launch.first) & (expected.tasks < launch.first + launch.count)
    return any(expected.signatures[i].parts == (None, None) for i in set(expected.like[mine].tolist()))
