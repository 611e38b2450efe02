"""Programs for each GPU that has a preset, built from what the GPU says of itself on a device that does nothing."""

from __future__ import annotations

import pytest

from bench.gpu.support.null_driver import NullDriver
from brickrt.ops.cuda.kernel import BLOCKS
from brickrt.ops.cuda.shared_memory import RESERVED, of_multiprocessor
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec
from brickrt.runtime.cuda.blueprint import CudaOptions, draw_up
from brickrt.runtime.cuda.driver.device_spec import spec_of
from brickrt.runtime.cuda.program import CudaProgram
from tests.support.cuda.gpu_properties import PROPERTIES
from tests.support.graphs.plan_graphs import bottlenecks, gated_depthwise
from tests.support.task_checks import lowered, with_values
from tests.support.verify.expected import verify_program


def sizes(spec: DeviceSpec) -> tuple[str, str, int, int, int, int]:
    """What plans and kernels take from a device, speeds aside."""
    return spec.kind, spec.isa, spec.cores, spec.l1, spec.l2, spec.memory


def test_every_preset_has_properties():
    assert PROPERTIES.keys() == PRESETS.keys()


@pytest.mark.parametrize("strategy", ["memoized", "padded"])
@pytest.mark.parametrize("name", PRESETS)
def test_programs_for_a_device_that_says_what_it_is(name, strategy):
    """Their tables are right, and two blocks of each kernel have room on a multiprocessor."""
    driver = NullDriver(spec_of(PROPERTIES[name]))
    spec = driver.spec
    assert sizes(spec) == sizes(PRESETS[name])
    for graph, precision in ((bottlenecks(1, 40, 32), "tf32"), (gated_depthwise(40), "fp32")):
        tasks = lowered(with_values(graph)[0], strategy, spec, precision=precision, brick=8)
        assert strategy in {s.strategy for s in tasks.plan.subgraphs}
        blueprint = draw_up(tasks, driver, CudaOptions())
        verify_program(blueprint)
        shared = [source.shared for source in blueprint.units.sources]
        assert shared and all(BLOCKS * (one + RESERVED) <= of_multiprocessor(spec.l1) for one in shared)
        assert CudaProgram(tasks, driver).launched_together
