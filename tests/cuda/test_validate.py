"""Good tables pass, and whatever is changed in them such that a kernel would hang or go astray is found."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.cuda.operand import dense
from brickrt.ops.types import TensorType
from brickrt.runtime.cuda.context import BASE_SHIFT
from brickrt.runtime.cuda.validate import Launch, Signature, Tables, validate

IMAGE = dense(TensorType((2, 3, 8, 8), np.dtype(np.float32)), "last")
ROW = dense(TensorType((40,), np.dtype(np.float16)))
WIDE = dense(TensorType((2, 3, 8, 9), np.dtype(np.float32)), "last")
POOL, SCALE = Signature("pool", 2, IMAGE), Signature("scale", 3, ROW)
KERNELS = ((POOL,), (SCALE,))
BOTH = range(2)
BASE_BYTES = (256, 4096, 512, 100)


def operand(base, offset):
    return np.int64(np.uint64(base << BASE_SHIFT) | np.uint64(offset % (1 << BASE_SHIFT)))


def step(kernel, box, base=1, offset=0):
    """A record; the inputs are in base 2."""
    places = [operand(base, offset)] + [operand(2, 8)] * (KERNELS[kernel][0].operands - 1)
    return [kernel, len(places) | len(box) << 32, *places, *(lo | hi << 32 for lo, hi in box)]


def tables(steps, deps, launches):
    """`steps[t]` are records, `deps[t]` tasks."""
    records = [np.array([w for s in mine for w in s], np.int64) for mine in steps]
    return Tables(
        np.cumsum([0, *map(len, records)]).astype(np.int32),
        np.concatenate([np.zeros(0, np.int64), *records]),
        np.cumsum([0, *map(len, deps)]).astype(np.int32),
        np.array([d for mine in deps for d in mine], np.int32),
        launches,
    )


IMAGE_STEP = step(0, [(0, 2), (0, 3), (0, 8), (2, 5)])
ROW_STEP = step(1, [(8, 16)], 0, 0)


def good():
    """Tasks 0 and 1 in turn; 2 … 5 by tickets, where 2 ← 3 ← 5 and 4, a join, waits for 2 and 3."""
    steps = [[IMAGE_STEP], [ROW_STEP, IMAGE_STEP], [ROW_STEP], [IMAGE_STEP], [], [ROW_STEP]]
    deps = [[], [], [], [2], [2, 3], [3]]
    return tables(steps, deps, [Launch(0, 2, BOTH), Launch(2, 4, BOTH, True)])


def refused(broken, message, kernels=KERNELS):
    with pytest.raises(ValueError, match=message) as error:
        validate(broken, kernels, BASE_BYTES)
    assert "\n" not in str(error.value)


def changed(array, at, value):
    array = array.copy()
    array[at] = value
    return array


def test_good_tables_pass():
    validate(good(), KERNELS, BASE_BYTES)
    validate(tables([], [], []), KERNELS, BASE_BYTES)


@pytest.mark.parametrize(
    ("deps", "message"),
    [
        ([[], [], [], [2], [2, 3], [6]], "task 5 waits for task 6, which no one runs"),
        ([[], [], [], [-1], [2, 3], [3]], "task 3 waits for task -1, which no one runs"),
        ([[], [], [4], [], [3], [3]], "task 2 waits for task 4, which runs after it"),
        ([[], [], [4], [2], [3], [3]], "tasks wait for each other: 2 → 4 → 3 → 2"),
        ([[], [], [2], [2], [3], [3]], "tasks wait for each other: 2 → 2"),
        ([[], [3], [], [], [3], [3]], "task 1 waits for task 3, which runs after it"),
        ([[], [], [1], [2], [3], [3]], "task 2 waits for task 1, of which launch 0 does not say when it is complete"),
        ([[1], [], [], [2], [3], [3]], "task 0 waits for task 1 in launch 0, which runs its tasks in any order"),
    ],
)
def test_dependencies(deps, message):
    like = good()
    steps = [[]] * 6
    refused(tables(steps, deps, like.launches), message)


@pytest.mark.parametrize(
    ("launches", "message"),
    [
        ([Launch(0, 2, BOTH)], "task 2 is in no launch"),
        ([Launch(0, 3, BOTH), Launch(2, 4, BOTH, True)], "task 2 is in launches 0 and 1"),
        ([Launch(0, 2, BOTH), Launch(2, 5, BOTH, True)], "launch 1: tasks 2 … 6 of 6"),
        ([Launch(0, 2, BOTH), Launch(-1, 4, BOTH, True)], "launch 1: tasks -1 … 2 of 6"),
    ],
)
def test_launches(launches, message):
    refused(replace(good(), launches=launches), message)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([2, *IMAGE_STEP[1:]], "task 3: there is no kernel 2"),
        ([-1, *IMAGE_STEP[1:]], "task 3: there is no kernel -1"),
        ([1, *IMAGE_STEP[1:]], "task 3: 2 operands, 4 dimensions are not those of scale"),
        (IMAGE_STEP[:-1], "task 3: its records end within a step"),
        ([*IMAGE_STEP, 0], "task 3: its records end within a step"),
        (step(0, [(0, 2), (0, 3), (0, 8), (2, 9)]), r"writes box \[0:2, 0:3, 0:8, 2:9\] of \[2, 3, 8, 8\]"),
        (step(0, [(0, 2), (0, 3), (5, 4), (2, 8)]), "task 3: kernel pool writes box"),
        (step(0, [(0, 2), (-1, 3), (0, 4), (2, 8)]), "task 3: kernel pool writes box"),
        (step(0, [(0, 2), (0, 3), (0, 8), (2, 5)], 4), "an operand at base 4 of 4"),
        (step(0, [(0, 2), (0, 3), (0, 8), (2, 5)], 255), "an operand at base 255 of 4"),
        (step(0, [(0, 2), (0, 3), (0, 8), (2, 5)], 1, 4096 - 4), "base 1, which has 4096"),
        (step(0, [(0, 1), (0, 3), (0, 8), (2, 5)], 1, -100), r"writes bytes -76:\d+ of base 1"),
        (step(1, [(0, 40)], 3, 22), "writes bytes 22:102 of base 3, which has 100"),
    ],
)
def test_records(record, message):
    like = good()
    steps = [[IMAGE_STEP], [ROW_STEP, IMAGE_STEP], [ROW_STEP], [record], [], [ROW_STEP]]
    deps = [[], [], [], [2], [2, 3], [3]]
    refused(tables(steps, deps, like.launches), message)


def test_offsets():
    like = good()
    refused(replace(like, task_at=changed(like.task_at, 2, 3)), "task|offsets")
    refused(replace(like, dep_offsets=changed(like.dep_offsets, 4, 9)), "task 4: its deps end before they begin")
    refused(replace(like, deps=like.deps[:-1]), "the offsets into deps do not go from 0 to 3 in 6 tasks")


def test_kernels_of_other_launches_are_not_called():
    like = good()
    launches = [like.launches[0], replace(like.launches[1], kernels=range(1))]
    refused(replace(like, launches=launches), "task 2: there is no kernel 1")
    refused(replace(like, launches=[replace(like.launches[0], kernels=range(3))]), "launch 0: kernels 0 … 2 of 2")


def test_a_step_is_as_one_of_the_signatures_of_its_kernel():
    """Kernels of equal text write tensors of several shapes."""
    wide = tables([[step(0, [(0, 2), (0, 3), (0, 8), (2, 9)])]], [[]], [Launch(0, 1, BOTH)])
    refused(wide, "of \\[2, 3, 8, 8\\]")
    validate(wide, ((replace(POOL, out=WIDE), POOL), (SCALE,)), BASE_BYTES)
    validate(wide, ((POOL, replace(POOL, out=WIDE)), (SCALE,)), BASE_BYTES)


def test_what_does_not_fit_in_a_record():
    refused(good(), "kernel pool: more than 64 operands", ((replace(POOL, operands=65),), (SCALE,)))
    with pytest.raises(ValueError, match="too many inputs and outputs"):
        validate(good(), KERNELS, (1 << 20,) * 257)


def test_origins_before_the_base_are_good_where_the_box_lies_in_it():
    tail = step(0, [(1, 2), (0, 3), (0, 8), (0, 8)], 1, -2 * 3 * 64)
    validate(tables([[tail]], [[]], [Launch(0, 1, BOTH, True)]), KERNELS, BASE_BYTES)


def test_an_empty_box_may_lie_anywhere():
    nothing = step(0, [(0, 0), (0, 3), (0, 8), (0, 8)], 1, 1 << 40)
    validate(tables([[nothing]], [[]], [Launch(0, 1, BOTH, True)]), KERNELS, BASE_BYTES)


@st.composite
def good_tables(draw):
    """Any tasks by tickets, after some in turn."""
    turn, n = draw(st.integers(0, 3)), draw(st.integers(1, 12))
    records = st.lists(st.sampled_from([IMAGE_STEP, ROW_STEP]), max_size=3)
    deps = [sorted(draw(st.sets(st.integers(turn, t - 1), max_size=4))) if t > turn else [] for t in range(turn + n)]
    steps = [draw(records) for _ in range(turn + n)]
    return tables(steps, deps, [Launch(0, turn, BOTH), Launch(turn, n, BOTH, True)])


@settings(max_examples=60, deadline=None)
@given(good_tables())
def test_any_good_tables_pass(found):
    validate(found, KERNELS, BASE_BYTES)


@settings(max_examples=150, deadline=None)
@given(good_tables(), st.data())
def test_any_changed_word_is_refused_or_harmless(found, data):
    """Words of records replaced by anything: refused in one line, or every step still lies within its bounds."""
    if len(found.records):
        at = data.draw(st.integers(0, len(found.records) - 1))
        value = data.draw(st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-4, 70)))
        found = replace(found, records=changed(found.records, at, value))
    if len(found.deps):
        at = data.draw(st.integers(0, len(found.deps) - 1))
        found = replace(found, deps=changed(found.deps, at, data.draw(st.integers(-2, len(found) + 2))))
    try:
        validate(found, KERNELS, BASE_BYTES)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    for t in range(len(found)):
        mine = found.deps[found.dep_offsets[t] : found.dep_offsets[t + 1]]
        assert all(0 <= d < t for d in mine)
        at, end = int(found.task_at[t]), int(found.task_at[t + 1])
        while at < end:
            kernel = KERNELS[found.records[at]][0]
            after = at + 2 + kernel.operands + kernel.out.rank
            for axis, word in enumerate(found.records[at + 2 + kernel.operands : after].tolist()):
                assert 0 <= word & 0xFFFFFFFF <= word >> 32 <= kernel.out.shape[axis]
            at = after
        assert at == end


def test_many_tasks():
    """300,000 tasks, each of which waits for the three before it. (It takes 0.2 s.)"""
    n, record = 300_000, np.array(IMAGE_STEP, np.int64)
    offsets = np.concatenate([[0], np.arange(n) * 3])
    deps = np.maximum(np.repeat(np.arange(1, n), 3) - np.tile([1, 2, 3], n - 1), 0)
    many = Tables(np.arange(n + 1) * len(record), np.tile(record, n), offsets, deps, [Launch(0, n, BOTH, True)])
    validate(many, KERNELS, BASE_BYTES)
    refused(replace(many, deps=changed(deps, 3 * n - 4, n)), f"task {n - 1} waits for task {n}")
