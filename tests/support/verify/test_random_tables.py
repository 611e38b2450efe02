"""Tables of random graphs pass, in all strategies and launches, and with one thing broken they do not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from brickrt.plan.geometry.bricks import row_offsets
from brickrt.runtime.cuda.kernels.kernel_context import BASE_SHIFT, CONSTANTS, FIRST_IO, HEAD_WORDS, SCRATCH
from tests.support.cuda.tables_of import order_of, tables_of
from tests.support.graphs.piece_graphs import pieces
from tests.support.graphs.plan_graphs import networks
from tests.support.graphs.row_graphs import products
from tests.support.graphs.window_graphs import stacks
from tests.support.verify.steps import find_steps
from tests.support.verify.validate import validate

GRAPHS = st.one_of(networks(), pieces(), stacks())
WAYS = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(["layerwise", "padded", "memoized", "auto"]),
        "launch": st.sampled_from(["streams", "persistent"]),
        "brick": st.sampled_from([1, 2, 3, 8]),
        "band": st.sampled_from([None, None, 1, 2]),
        "group": st.sampled_from([None, 1, 3]),
        "most": st.sampled_from([None, None, 99, 1, 0]),
    }
)


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))


@settings(max_examples=45, deadline=None)
@given(GRAPHS, WAYS)
def test_tables_of_random_graphs_pass(graph, ways):
    validate(*tables_of(graph, **ways))


@settings(max_examples=30, deadline=None)
@given(st.one_of(products(), stacks()), WAYS, st.sampled_from(["fp32", "fp16"]))
def test_tables_of_products_pass(graph, ways, precision):
    """Matrices too, most of them in bricks of rows."""
    validate(*tables_of(graph, precision=precision, **ways | {"band": None}))


# ---- one thing broken


@dataclass
class BrokenTables:
    """Draws what is broken, and where."""

    draw: st.DrawFn
    tables: object
    expected: object

    def pick(self, some):
        some = list(some)
        assume(some)
        return some[self.draw(st.integers(0, len(some) - 1))]

    @property
    def order(self):
        return order_of(self.tables, self.expected)

    def steps(self, fits=lambda steps: True):
        """Steps of one signature, one of them, and the word at which its record begins."""
        found = self.pick(s for s in find_steps(self.tables, self.order.launch_of, self.expected) if fits(s))
        i = self.pick(range(len(found.tasks)))
        sizes = np.array([HEAD_WORDS + s.words + s.rank for s in self.expected.signatures])
        return found, i, int(row_offsets(sizes[self.expected.like])[found.at[i]])

    def with_word(self, at, word):
        records = self.tables.records.copy()
        records[at] = word
        return replace(self.tables, records=records), self.expected

    def with_operand(self, start, k, base, offset):
        word = np.uint64(base << BASE_SHIFT) | np.uint64(offset % (1 << BASE_SHIFT))
        return self.with_word(start + HEAD_WORDS + k, word.view(np.int64))

    def with_launch(self, k, launch):
        launches = list(self.tables.launches)
        launches[k] = launch
        return replace(self.tables, launches=launches), self.expected


def _without(offsets, values, which):
    """A CSR list without some of its values."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    keep = np.setdiff1d(np.arange(len(values)), which)
    return row_offsets(np.bincount(rows[keep], minlength=len(offsets) - 1)), values[keep]


def dependency_dropped(b):
    """Once for all, if it is there several times."""
    readers = np.repeat(np.arange(len(b.tables)), np.diff(b.tables.dep_offsets))
    i = b.pick(range(len(b.tables.deps)))
    same = np.flatnonzero((readers == readers[i]) & (b.tables.deps == b.tables.deps[i]))
    offsets, deps = _without(b.tables.dep_offsets, b.tables.deps, same)
    return replace(b.tables, dep_offsets=offsets, deps=deps), b.expected


def all_dependencies_dropped(b):
    """Drops what a task with steps waits for, also in the graph: what it reads and writes must tell."""
    counts = np.diff(b.tables.dep_offsets)
    t = b.pick(np.flatnonzero((counts > 0) & ~b.order.stepless).tolist())
    offsets, deps = _without(b.tables.dep_offsets, b.tables.deps, np.arange(*b.tables.dep_offsets[t : t + 2]))
    g = b.expected.owner[t]
    own, its = _without(b.expected.dep_offsets, b.expected.deps, np.arange(*b.expected.dep_offsets[g : g + 2]))
    return replace(b.tables, dep_offsets=offsets, deps=deps), replace(b.expected, dep_offsets=own, deps=its)


def dependency_turned(b):
    """A task waits for itself, or for a later one."""
    i = b.pick(range(len(b.tables.deps)))
    reader = int(np.searchsorted(b.tables.dep_offsets, i, "right")) - 1
    deps = b.tables.deps.copy()
    deps[i] = b.pick([reader, min(reader + 1, len(b.tables) - 1)])
    return replace(b.tables, deps=deps), b.expected


def operand_moved(b):
    """Far away, or so that it is not aligned."""
    steps, i, start = b.steps()
    touched = [
        k
        for k in range(steps.like.words)
        if k >= len(steps.like.operands) or steps.like.constant[k] or steps.region(k).volumes[i]
    ]
    k = b.pick(touched)
    by = b.pick([1 << 50, -(1 << 50), 2])
    assume(by != 2 or k >= len(steps.like.operands) or steps.like.operands[k].dtype.itemsize > 2)
    return b.with_operand(start, k, int(steps.bases[i, k]), int(steps.origins[i, k]) + by)


def operand_in_another_tensor(b):
    """Aligned, and inside of its base, but not where the tensor is."""
    steps, i, start = b.steps(lambda s: any(part is not None for part in s.like.parts))
    k = b.pick(k for k, part in enumerate(steps.like.parts) if part is not None and steps.bases[i, k] != SCRATCH)
    assume(len(steps.tasks) > 1 or steps.bases[i, k] >= FIRST_IO)
    return b.with_operand(start, k, int(steps.bases[i, k]), int(steps.origins[i, k]) + b.pick([64, -64, 1024]))


def output_in_another_base(b):
    steps, i, start = b.steps()
    base = b.pick({CONSTANTS, *range(FIRST_IO, len(b.expected.base_bytes)), 200} - {int(steps.bases[i, 0])})
    return b.with_operand(start, 0, base, 0)


def box_changed(b):
    """Empty; beyond an end; smaller than it was, where all of a tensor is stored."""
    steps, i, start = b.steps(lambda s: s.box.rank)
    axis = b.pick(range(steps.box.rank))
    lo, hi, extent = int(steps.box.lo[i, axis]), int(steps.box.hi[i, axis]), steps.like.operands[0].shape[axis]
    ways = [(lo, lo), (hi, lo), (-1, hi), (lo, extent + 1)]
    if steps.like.parts[0] is not None and steps.bases[i, 0] != SCRATCH:
        ways += [(lo + 1, hi), (lo, hi - 1)]
    lo, hi = b.pick(ways)
    return b.with_word(start + HEAD_WORDS + steps.like.words + axis, (lo & 0xFFFFFFFF) | hi << 32)


def box_repeated(b):
    """Writes one box of a tensor that is stored whole twice, and another one not."""
    steps, i, start = b.steps(lambda s: len(s.tasks) > 1 and s.like.parts[0] and s.bases[0, 0] != SCRATCH)
    j = b.pick(set(range(len(steps.tasks))) - {i})
    assume((steps.box.lo[i] != steps.box.lo[j]).any())
    ends = (steps.box.lo[j] & 0xFFFFFFFF) | steps.box.hi[j] << 32
    first = start + HEAD_WORDS + steps.like.words
    return b.with_word(np.arange(first, first + steps.box.rank), ends)


def launches_swapped(b):
    """Two of which one comes after the other; or their tasks, of which one waits for another."""
    launches, order = list(b.tables.launches), b.order
    n, how = len(launches), b.pick(["all of it", "tasks"])
    if how == "all of it":
        i, j = b.pick((i, j) for j in range(n) for i in range(j) if order.launched(np.array([i]), np.array([j]))[0])
        launches[i], launches[j] = launches[j], launches[i]
    else:
        i, j = b.pick(needed(b, order))
        launches[i], launches[j] = (
            replace(launches[j], after=launches[i].after),
            replace(launches[i], after=launches[j].after),
        )
    return replace(b.tables, launches=launches), b.expected


def needed(b, order):
    """Pairs of launches of which the second has a task that waits for one of the first."""
    launch_of = np.full(len(b.expected.dep_offsets) - 1, -1)
    launch_of[b.expected.owner] = order.launch_of
    readers = np.repeat(np.arange(len(launch_of)), np.diff(b.expected.dep_offsets))
    pairs = zip(launch_of[b.expected.deps].tolist(), launch_of[readers].tolist(), strict=True)
    return sorted({(i, j) for i, j in pairs if 0 <= i < j})


def after_dropped(b):
    """A launch no longer comes after one that has tasks it waits for, nor do those that it comes after."""
    pairs = needed(b, b.order)
    gone, k = b.pick((i, j) for i, j in pairs if i in b.tables.launches[j].after)
    launch = b.tables.launches[k]
    broken = b.with_launch(k, replace(launch, after=tuple(a for a in launch.after if a != gone)))
    assume(not order_of(*broken).launched(np.array([gone]), np.array([k]))[0])
    return broken


def kernel_changed(b):
    _, _, start = b.steps()
    return b.with_word(start, b.pick([-1, 1 << 40, int(b.tables.records[start]) + 1]))


def counts_changed(b):
    _, _, start = b.steps()
    return b.with_word(start + 1, int(b.tables.records[start + 1]) + b.pick([1, -1, 1 << 32]))


def other_numbers(b):
    name, kind = b.pick((n, k) for n in ("task_at", "records", "dep_offsets", "deps") for k in ("f8", "u8", "O", "?"))
    return replace(b.tables, **{name: getattr(b.tables, name).astype(kind)}), b.expected


WAYS_TO_BREAK = [
    dependency_dropped,
    all_dependencies_dropped,
    dependency_turned,
    operand_moved,
    operand_in_another_tensor,
    output_in_another_base,
    box_changed,
    box_repeated,
    launches_swapped,
    after_dropped,
    kernel_changed,
    counts_changed,
    other_numbers,
]


@pytest.mark.parametrize("break_it", WAYS_TO_BREAK, ids=lambda way: way.__name__)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_broken_tables_are_refused(break_it, data):
    ways = data.draw(WAYS)
    if "depend" in break_it.__name__:
        ways |= {"strategy": "memoized", "launch": "persistent"}
    tables, expected = tables_of(data.draw(GRAPHS), **ways)
    broken = break_it(BrokenTables(data.draw, tables, expected))
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        validate(*broken)
