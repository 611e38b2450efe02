"""Equal layers are lowered once: to the tasks that each would have been lowered to."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest

from brickrt.plan.structure import Structures
from brickrt.runtime.lowering.equal_layers import EqualLayers
from brickrt.runtime.lowering.task_graph import TaskGraph
from tests.support.graphs.plan_graphs import Sketch, bottlenecks
from tests.support.task_checks import lowered


class Forgetful(dict):
    """Knows nothing that it was told, but gives it once more."""

    def __contains__(self, key: Hashable) -> bool:
        return False


def forget(monkeypatch):
    """Has each layer lowered by itself."""
    made = EqualLayers.__init__

    def init(self, plan):
        made(self, plan)
        self._regions, self._swept, self._covering = Forgetful(), Forgetful(), Forgetful()

    monkeypatch.setattr(EqualLayers, "__init__", init)


def arrays(tasks: TaskGraph) -> list[np.ndarray]:
    """All numbers of a task graph."""
    found = [tasks.dep_offsets, tasks.deps, tasks.task_subgraph, np.array([tasks.recomputed, tasks.scratch_bytes])]
    for steps in tasks.steps:
        found += [steps.boxes.lo, steps.boxes.hi, steps.tasks, steps.positions, *steps.origins.values()]
    for moves in tasks.scratch_moves:
        found += [moves.boxes.lo, moves.boxes.hi, moves.tasks, moves.positions, moves.before, moves.after]
    return found


@pytest.mark.parametrize(("strategy", "band"), [("layerwise", None), ("padded", None), ("padded", 2), ("memoized", 2)])
def test_tasks_are_those_of_layers_by_themselves(strategy, band, monkeypatch):
    """Three equal blocks, each 1×1 → 3×3 → 1×1 + what came in."""
    graph = bottlenecks(3, size=20, channels=16)
    together = lowered(graph, strategy, band=band, brick=8)
    forget(monkeypatch)
    apart = lowered(graph, strategy, band=band, brick=8)
    assert together.allocations == apart.allocations and len(together.steps) == len(apart.steps)
    for steps, other in zip(together.steps, apart.steps, strict=True):
        assert (steps.node, list(steps.origins)) == (other.node, list(other.origins))
    for one, other in zip(arrays(together), arrays(apart), strict=True):
        np.testing.assert_array_equal(one, other)


def test_equal_layers_share_their_boxes():
    boxes = [id(steps.boxes) for steps in lowered(bottlenecks(4, size=20, channels=16), "layerwise").steps]
    assert len(set(boxes)) < len(boxes)


def test_what_makes_layers_equal():
    """x → a → b → c → d: b and c read as many channels, a fewer; d is an output."""
    s = Sketch()
    x = s.input(1, 3, 8, 8)
    a = s.conv(x, 16)
    b = s.conv(a, 16)
    c = s.conv(b, 16)
    d = s.conv(c, 16)
    graph = s.graph(d)
    of = Structures(graph, dict.fromkeys(graph.types, "plain"))
    producers = graph.producers
    first, second, third, last = (producers[name] for name in (a, b, c, d))
    assert of.kinds[second] == of.kinds[third] != of.kinds[first] and of.kinds[last] != of.kinds[third]
    assert of.of([first, second]) != of.of([second, third])
    assert of.of([second]) == of.of([third])
