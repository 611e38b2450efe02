"""The compiled workers on tasks without work: each once, after what it waits for, by any number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cpu.bare_tasks import check_run, program_of

pytestmark = pytest.mark.timeout(120, method="thread")  # workers that hang do not hear signals


@st.composite
def graphs(draw) -> list[list[int]]:
    n = draw(st.integers(1, 60))
    reach = draw(st.sampled_from([1, 3, 12, 60]))  # how far back dependencies lie: chains, bands, anything
    rows = []
    for t in range(n):
        near = st.integers(max(0, t - reach), t - 1)
        rows.append(sorted(draw(st.sets(near, max_size=4))) if t else [])
    return rows


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(1, 4))
def test_any_graph_in_several_epochs(rows, threads):
    program = program_of(rows, threads)
    for _ in range(3):
        check_run(program, rows)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(
    "rows",
    [
        [[]],
        [[] if t == 0 else [t - 1] for t in range(3000)],
        [[], *[[0]] * 999],
        [[]] * 1000 + [list(range(1000))],
        [[], [], *[[t - 1, t - 2] for t in range(2, 2000)]],
    ],
    ids=["one", "chain", "fan out", "fan in", "ladder"],
)
def test_shapes(rows, threads):
    """0 ← 1 ← 2 ← …      0 ← 1, 0 ← 2, …      0 1 2 … ← 1000      0 ← 1 ← 2, 0 ← 2, 1 ← 3, …"""
    program = program_of(rows, threads)
    for _ in range(2):
        check_run(program, rows)


def test_no_tasks():
    program = program_of([], 3)
    assert [program.run([], []).tasks for _ in range(3)] == [0, 0, 0]


def test_one_worker_never_waits():
    """Tasks are numbered in an order in which they can run."""
    rows = [[] if t < 3 else [t - 3, t - 1] for t in range(200)]
    counts = program_of(rows, 1).run([], [])
    assert (counts.tasks, counts.complete_first, counts.waits, counts.revisits) == (200, 200, 0, 0)


def test_unwatched_runs_leave_no_trace():
    program = program_of([[], [0]], 2)
    assert program.run([], []).tasks == 2


def test_several_programs_at_once_and_one_program_by_several_threads():
    rows = [[] if t < 8 else [t - 8, t - 5] for t in range(500)]
    programs = [program_of(rows, 3) for _ in range(3)]
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda k: programs[k % 3].run([], []).tasks, range(60)))
    assert done == [500] * 60


def test_many_epochs():
    rows = [[] if t == 0 else [t // 2] for t in range(20)]
    program = program_of(rows, 2)
    assert {program.run([], []).tasks for _ in range(500)} == {20}
