"""Programs own their constants: they take the values that they are given, drop them, and leave the graph alone."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.program import CpuProgram
from brickrt.runtime.lowering.owned_constants import OwnedConstants
from brickrt.runtime.reference import ReferenceProgram
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import check_twice, lowered, with_values


def placeholder(kind: TensorType) -> np.ndarray:
    """Stands for a constant whose value only the program has."""
    return np.broadcast_to(np.zeros((), kind.dtype), kind.shape)


def sketch():
    s = Sketch()
    return s.graph(s.conv(s.conv(s.map("abs", s.input(1, 8, 6, 6)), 8), 8))


def test_values_go_with_their_last_reader():
    tasks = lowered(sketch(), "layerwise")
    values = {name: np.zeros(3) for name in tasks.plan.graph.constants}
    owned, name = OwnedConstants(tasks, values), next(iter(values))
    held = weakref.ref(owned[name])
    assert not owned.is_shared(name)
    owned.done(name)
    assert name not in values and held() is None


def test_without_values_the_graph_s_are_used():
    tasks = lowered(with_values(sketch())[0], "layerwise")
    constants = tasks.plan.graph.constants
    owned, before = OwnedConstants(tasks), dict(constants)
    for name in before:
        assert owned[name] is before[name]
        owned.done(name)
    assert constants == before


@pytest.mark.parametrize("strategy", ["layerwise", "padded"])
@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_values_come_from_the_dictionary(engine, strategy):
    spec = host_device()
    graph, inputs = with_values(sketch())
    expected = interpret(graph, inputs)
    tasks = lowered(graph, strategy, spec, **({"brick": 3} if strategy == "padded" else {}))
    values = dict(tasks.plan.graph.constants)
    empty = {name: placeholder(tasks.plan.graph.types[name]) for name in values}
    plan = replace(tasks.plan, graph=replace(tasks.plan.graph, constants=empty))
    tasks, before = replace(tasks, plan=plan), dict(empty)
    if engine == "cpu":
        program = CpuProgram.build(tasks, host_isa(spec), 2, constants=values)
        assert not values
    else:
        program = ReferenceProgram(tasks, constants=values)
    check_twice(program, graph, inputs, expected)
    assert all(tasks.plan.graph.constants[name] is before[name] for name in before)
