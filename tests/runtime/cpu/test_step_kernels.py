"""Kernels are chosen once for equal steps, and are those that each step would have been given."""

from __future__ import annotations

from brickrt.runtime.cpu.argument_table import host_places
from brickrt.runtime.cpu.step_kernels import StepKernels
from tests.support.cpu.harness import HOST
from tests.support.graphs.plan_graphs import bottlenecks
from tests.support.task_checks import lowered


def test_equal_steps_are_given_the_same_kernels():
    """Three equal blocks, each 1×1 → 3×3 → 1×1 + what came in."""
    tasks = lowered(bottlenecks(3, size=20, channels=16), "layerwise")
    places = host_places(tasks)
    chosen = StepKernels(tasks, HOST, places)
    found = []
    for steps in tasks.steps:
        node = tasks.plan.graph.nodes[steps.node]
        out, *ins = (places.operand(name) for name in (node.output, *node.inputs))
        kernels, which = chosen.of(steps, out, tuple(ins))
        alone, its = StepKernels(tasks, HOST, places).of(steps, out, tuple(ins))
        assert list(kernels) == list(alone) and (which == its).all() and len(which) == len(steps.boxes)
        found.append(id(kernels))
    assert len(set(found)) < len(found)
