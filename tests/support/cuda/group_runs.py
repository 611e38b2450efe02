"""Runs of graphs in padded bricks on the host, with a library in the place of cuDNN."""

from __future__ import annotations

from dataclasses import replace

from brickrt.graph.passes.half_precision import to_half_precision as in_precision
from brickrt.runtime.cuda.blueprint import CudaOptions
from brickrt.runtime.cuda.program import CudaProgram
from tests.support.cuda.callback_kernels import CallbackDriver
from tests.support.cuda.host_driver import SMALL
from tests.support.cudnn.fake_cudnn import Frontend, HostLibrary, PlanOf
from tests.support.graphs.by_definition import interpret
from tests.support.task_checks import check_twice, lowered, with_values

TOLERANCE = {"fp32": 1e-4, "tf32": 1e-4, "fp16": 1e-2, "bf16": 5e-2}


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
    precision="fp32",
):
    """Runs a graph in padded bricks twice and compares; the program, and its library with what that ran since. The
    library takes products with at most `most` operations after them. Halves are compared with float32."""
    graph, inputs = with_values(graph)
    if precision in ("fp16", "bf16"):
        graph = replace(graph, constants={name: values / 8 for name, values in graph.constants.items()})
    library = HostLibrary(Frontend([PlanOf()] if plans is None else plans, most))
    driver = make(spec=device, seed=seed, given_library=library)
    want, tolerance = interpret(graph, inputs), TOLERANCE[precision]
    tasks = lowered(in_precision(graph, precision), strategy, driver.spec, band, brick=brick, precision=precision)
    program = CudaProgram(tasks, driver, CudaOptions(launch, group))
    assert all(packed(tensor, form.kind) for form in forms(program) for tensor in form.tensors)
    library.ran.clear()
    check_twice(program, graph, inputs, want, tolerance)
    driver.check()
    return program, library


def packed(tensor, kind):
    """Whether channels are innermost, or columns, and neither they nor anything else has gaps: what fusions of cuDNN
    take."""
    order = range(3) if kind == "matmul" else [0, *range(2, len(tensor.dims)), 1]
    step = 1
    for axis in reversed(order):
        if tensor.dims[axis] > 1 and tensor.strides[axis] != step:
            return False
        step *= tensor.dims[axis]
    return True


def forms(program):
    """The forms of all calls, in the order of their launches."""
    return [program._calls.layers[k][0].form for k in sorted(program._calls.layers)]
