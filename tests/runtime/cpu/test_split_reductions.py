"""Partial results of global reductions are made in the tasks that make what is reduced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.plan.device.device_spec import host_device
from brickrt.plan.merging import split_reductions
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.program import CpuProgram
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import SERVER, ArenaMachine, any_order, check_arena, check_reads, lowered, with_values

SMALL = replace(SERVER, l2=2**12, min_task_us=1e-3)  # no tensor of these tests is small


@pytest.fixture(autouse=True)
def short_segments(monkeypatch):
    monkeypatch.setattr(split_reductions, "LENGTH", 8)


def attention(*spatial: int, channels: int = 20, images: int = 1) -> Sketch:
    """x → conv ─┬─ sum over space ─ 1×1 ─┐
    └────────────────────── add → conv
    """
    s = Sketch()
    y = s.conv(s.conv(s.input(images, 3, *spatial), channels), channels)
    scaled = s.map("add", y, s.conv(s.reduce(y, *range(2, 2 + len(spatial))), channels, 1))
    s.conv(scaled, 5)
    return s


def hosts(tasks) -> list[str]:
    """Strategies of the subgraphs that make segments beside their output."""
    return [s.strategy for s in tasks.plan.subgraphs if s.partial_reductions]


def alone(tasks) -> int:
    """Subgraphs that make segments and nothing else."""
    return sum(tasks.plan.graph.nodes[s.nodes[-1]].op.name == "Segments" for s in tasks.plan.subgraphs)


CASES = {
    "layerwise": (attention(24, 20), "layerwise", None, None),
    "padded": (attention(24, 20), "padded", 8, None),
    "in bands": (attention(24, 20), "padded", 16, 3),
    "one brick a row": (attention(10, 13), "padded", 16, 2),
    "batches": (attention(9, 17, images=2), "padded", 8, 1),
    "3d": (attention(5, 6, 16), "padded", 8, None),
    "1d, more segments than the cache has room for": (attention(1000), "layerwise", None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_segments_are_made_where_their_input_is(name):
    sketch, strategy, brick, band = CASES[name]
    graph, inputs = with_values(sketch.graph())
    options = {} if brick is None else {"brick": brick}
    tasks = lowered(graph, strategy, SMALL, band, **options)
    assert hosts(tasks) == [strategy] and not alone(tasks)
    check_reads(tasks)
    check_arena(tasks)
    [(output, want)] = interpret(graph, inputs).items()
    for seed in range(3):
        got = ArenaMachine(tasks, inputs).run(any_order(tasks, np.random.default_rng(seed)))
        np.testing.assert_array_equal(got[output], want)


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
def test_bricks_that_cut_segments_leave_them_to_tasks_of_their_own(strategy):
    graph, inputs = with_values(attention(24, 20).graph())
    tasks = lowered(graph, strategy, SMALL, brick=6)
    assert not hosts(tasks) and alone(tasks) == 1
    check_reads(tasks)
    [(output, want)] = interpret(graph, inputs).items()
    got = ArenaMachine(tasks, inputs).run(any_order(tasks, np.random.default_rng(0)))
    np.testing.assert_array_equal(got[output], want)


def test_what_fits_the_cache_is_reduced_at_once():
    tasks = lowered(attention(24, 20).graph(), "padded", brick=8)
    assert not hosts(tasks) and not alone(tasks)


@pytest.mark.parametrize("isa", [None, "avx2"])
@pytest.mark.parametrize("name", ["layerwise", "in bands", "batches"])
def test_the_same_bits_for_any_number_of_threads(name, isa):
    sketch, strategy, brick, band = CASES[name]
    graph = sketch.graph()
    rng = np.random.default_rng(0)
    constants = {n: rng.standard_normal(graph.types[n].shape).astype(np.float32) for n in graph.constants}
    x = rng.standard_normal(graph.types[graph.inputs[0]].shape).astype(np.float32)
    [want] = interpret(replace(graph, constants=constants), {graph.inputs[0]: x}).values()
    spec = replace(host_device(isa), l2=2**12, min_task_us=1e-3)
    results = []
    for threads in (1, 2, 3):
        options = {} if brick is None else {"brick": brick}
        tasks = lowered(replace(graph, constants=dict(constants)), strategy, spec, band, **options)
        assert hosts(tasks) == [strategy]
        got = np.full(want.shape, np.nan, np.float32)
        CpuProgram.build(tasks, host_isa(host_device(isa)), threads).run([x], [got])
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
        results.append(got)
    assert all((r == results[0]).all() for r in results)
