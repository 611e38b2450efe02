"""Runs of graphs in padded bricks on the host, with a library in the place of cuDNN."""

from __future__ import annotations

from callback_kernels import CallbackDriver
from fake_cudnn import Frontend, HostLibrary, PlanOf
from host_driver import SMALL
from task_checks import check_twice, lowered, with_values

from brickrt.graph.interpret import interpret
from brickrt.runtime.cuda.program import CudaOptions, CudaProgram


def check(
    graph,
    launch="graph",
    group=None,
    brick=None,
    band=None,
    seed=0,
    plans=None,
    device=SMALL,
    make=CallbackDriver,
    most=99,
    strategy="padded",
):
    """Runs a graph in padded bricks twice and compares; the program, and its library with what that ran since. The
    library takes products with at most `most` operations after them."""
    graph, inputs = with_values(graph)
    library = HostLibrary(Frontend([PlanOf()] if plans is None else plans, most))
    driver = make(spec=device, seed=seed, given_library=library)
    tasks = lowered(graph, strategy, driver.spec, band, brick=brick)
    want = interpret(graph, inputs)
    program = CudaProgram(tasks, driver, CudaOptions(launch, group))
    assert all(packed(tensor) for form in forms(program) for tensor in form.tensors)
    library.ran.clear()
    check_twice(program, graph, inputs, want)
    driver.check()
    return program, library


def packed(tensor):
    """Whether channels are innermost, and neither they nor anything else has gaps: what fusions of cuDNN take."""
    order = [0, *range(2, len(tensor.dims)), 1]
    step = 1
    for axis in reversed(order):
        if tensor.dims[axis] > 1 and tensor.strides[axis] != step:
            return False
        step *= tensor.dims[axis]
    return True


def forms(program):
    """Of all calls, in the order of their launches."""
    return [program._calls.layers[k][0].form for k in sorted(program._calls.layers)]
