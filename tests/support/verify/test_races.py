"""Whatever tables pass, no two tasks meet: found out by going through all elements that all steps touch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.plan.geometry.bricks import row_offsets
from brickrt.runtime.cuda.kernels.kernel_context import FIRST_IO, SCRATCH
from tests.support.cuda.tables_of import order_of, tables_of
from tests.support.graphs.plan_graphs import networks
from tests.support.graphs.window_graphs import stacks
from tests.support.task_checks import ancestors, needs
from tests.support.verify.steps import find_steps
from tests.support.verify.validate import validate


def touched(tables, expected):
    """Every element that steps read or write, constants aside: address, place of the step twice, plus one for writes,
    and task; in order of address and time."""
    columns = []
    for steps in find_steps(tables, order_of(tables, expected).launch_of, expected):
        for k, operand in enumerate(steps.like.operands):
            for i in range(len(steps.tasks) if not steps.like.constant[k] else 0):
                base = int(steps.bases[i, k])
                box = steps.region(k)[i]
                axes = [np.arange(lo, hi) * s for lo, hi, s in zip(box.lo[0], box.hi[0], operand.strides, strict=True)]
                offsets = sum(np.ix_(*axes)) if axes else np.zeros(1, np.int64)
                at = steps.origins[i, k] + np.reshape(offsets, -1) * operand.dtype.itemsize
                room = base if base != SCRATCH else 1000 + int(steps.tasks[i])
                time = np.full(len(at), 2 * steps.at[i] + (k == 0))
                columns.append((room * (1 << 40) + at, time, np.full(len(at), steps.tasks[i])))
    address, time, task = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((time, address))
    return address[order], time[order], task[order]


def complete_before(tables, order):
    """[task, task]: whether the second is complete before the first begins."""
    found = np.array([[bits >> d & 1 for d in range(len(tables))] for bits in ancestors(needs(tables))], bool)
    found = found.reshape(len(tables), len(tables))
    launches = np.arange(len(tables.launches))
    before = np.array([order.launched(launches, np.full(len(launches), k)) for k in launches.tolist()])
    return found | before[order.launch_of][:, order.launch_of]


def races(tables, expected):
    """Whether tasks meet, or something is read that nobody has written."""
    address, time, task = touched(tables, expected)
    writes, index = time % 2 == 1, np.arange(len(time))
    begins = np.concatenate([[True], address[1:] != address[:-1]])
    last = np.maximum.accumulate(np.where(writes, index, -1))
    last = np.where(writes, np.concatenate([[-1], last[:-1]]), last)  # the last write before
    known = last >= np.maximum.accumulate(np.where(begins, index, 0))
    base = address >> 40
    given_ones = (base >= FIRST_IO) & (base < 1000) & ~np.isin(base, [expected.io[name] for name in expected.outputs])
    if (~writes & ~known & ~given_ones).any():
        return True
    done = complete_before(tables, order_of(tables, expected))

    def apart(first, then):
        return (task[first] == task[then]) | done[task[then], task[first]]

    if not apart(last[known], index[known]).all():
        return True
    ends = np.concatenate([begins[1:], [True]])
    following = np.minimum.accumulate(np.where(writes, index, len(index))[::-1])[::-1]
    end = np.minimum.accumulate(np.where(ends, index, len(index))[::-1])[::-1]
    read = np.flatnonzero(~writes & (following <= end))
    return not apart(read, following[read]).all()


WAYS = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(["layerwise", "padded", "memoized", "memoized", "auto"]),
        "launch": st.sampled_from(["streams", "persistent", "persistent"]),
        "brick": st.sampled_from([2, 3, 8]),
        "group": st.sampled_from([None, 1, 3]),
    }
)


def free(expected):
    """What the graph says left out."""
    return replace(expected, dep_offsets=np.zeros_like(expected.dep_offsets), deps=expected.deps[:0])


@settings(max_examples=40, deadline=None)
@given(st.one_of(networks(), stacks()), WAYS, st.data())
def test_what_passes_has_no_races(graph, ways, data):
    """Some dependencies and some waits of launches are dropped; nothing but what steps touch tells."""
    tables, expected = tables_of(graph, **ways)
    assert not races(tables, expected)
    keep = np.ones(len(tables.deps), bool)
    keep[sorted(data.draw(st.sets(st.integers(0, len(keep) - 1), max_size=3)) if len(keep) else ())] = False
    readers = np.repeat(np.arange(len(tables)), np.diff(tables.dep_offsets))[keep]
    launches = list(tables.launches)
    if data.draw(st.booleans()):
        k = data.draw(st.integers(0, len(launches) - 1))
        launches[k] = replace(launches[k], after=launches[k].after[1:])
    offsets = row_offsets(np.bincount(readers, minlength=len(tables)))
    broken = replace(tables, dep_offsets=offsets, deps=tables.deps[keep], launches=launches)
    try:
        validate(broken, free(expected))
    except ValueError:
        return
    assert not races(broken, expected)
