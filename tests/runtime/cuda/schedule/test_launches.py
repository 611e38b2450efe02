"""From task graphs to launches: all tasks that do something, once, after what they wait for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.runtime.cuda.schedule.launches import CHAIN_STEPS, Launch, make_launches
from brickrt.runtime.lowering.task_graph import TaskGraph
from tests.support.cuda.host_driver import SMALL
from tests.support.graphs.piece_graphs import pieces
from tests.support.graphs.plan_graphs import Sketch, networks
from tests.support.task_checks import ancestors, lowered, needs


def check(tasks: TaskGraph, launches: list[Launch]) -> None:
    together = np.concatenate([np.zeros(0, np.int64), *(launch.tasks for launch in launches)])
    assert len(set(together.tolist())) == len(together)
    working = {t for s in (*tasks.steps, *tasks.scratch_moves) for t in s.tasks.tolist()}
    assert working <= set(together.tolist())
    launch_of = {int(t): k for k, launch in enumerate(launches) for t in launch.tasks}
    done, before = ancestors(launch.after for launch in launches), ancestors(needs(tasks))
    for t in working:
        mine = launches[launch_of[t]]
        for d in (d for d in working if before[t] >> d & 1):
            other = launch_of[d]
            if other == launch_of[t]:
                assert mine.kind == "persistent" and d < t
            else:
                assert done[launch_of[t]] >> other & 1
    for launch in launches:
        assert (np.diff(launch.tasks) > 0).all()
        owned = {t for i in launch.steps for t in tasks.steps[i].tasks.tolist()}
        assert set(launch.tasks.tolist()) & working <= owned


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(networks(), pieces()),
    st.sampled_from(["layerwise", "padded", "memoized", "auto"]),
    st.sampled_from([1, 3, 8]),
    st.booleans(),
    st.integers(1, 9),
)
def test_launches_of_random_graphs(graph, strategy, brick, persistent, group):
    tasks = lowered(graph, strategy, SMALL, brick=brick)
    check(tasks, make_launches(tasks, persistent, group))


def chain(layers: int) -> Sketch:
    s = Sketch()
    x = s.input(1, 8, 16, 16)
    for _ in range(layers):
        x = s.conv(x, 8, 3)
    return s


def test_groups_of_memoized_bricks_by_node():
    tasks = lowered(chain(2).graph(), "memoized", SMALL, brick=8)
    launches = make_launches(tasks, persistent=False, group=4)
    assert all(launch.kind == "layer" and len(launch.tasks) <= 4 for launch in launches)
    assert len(launches) > 2
    (whole,) = make_launches(tasks, persistent=True, group=4)
    assert (whole.kind, len(whole.tasks)) == ("persistent", len(tasks))


def test_chains_of_memoized_subgraphs_are_of_limited_length():
    tasks = lowered(chain(3 * CHAIN_STEPS).graph(), "memoized", SMALL, brick=8)
    launches = make_launches(tasks, persistent=True, group=4)
    assert 3 <= len(launches) < len(tasks.plan.subgraphs)
    assert all(len(launch.steps) <= CHAIN_STEPS for launch in launches)


def test_padded_bricks_share_scratch_and_take_turns():
    """x → a → b, x → c → d: nothing else orders them."""
    s = Sketch()
    x = s.input(1, 8, 16, 16)
    ends = [s.conv(s.conv(x, 8, 3), 8, 3) for _ in range(2)]
    tasks = lowered(s.graph(*ends), "padded", SMALL, brick=8)
    launches = make_launches(tasks, persistent=True, group=4)
    assert {launch.kind for launch in launches} == {"bricks"}
    in_scratch = [k for k, launch in enumerate(launches) if len(launch.steps) > 1]
    assert in_scratch
    done = ancestors(launch.after for launch in launches)
    assert all(done[k] >> before & 1 for before, k in pairwise(in_scratch))
