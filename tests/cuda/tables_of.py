"""The tables of programs, and what they are to do, without any kernel compiled."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from fake_cudnn import Frontend, HostLibrary, PlanOf
from host_driver import SMALL, HostDriver
from task_checks import lowered, with_values

from brickrt.graph.precision import lowered as in_precision
from brickrt.runtime.cuda import build
from brickrt.runtime.cuda.program import CudaOptions, CudaProgram
from brickrt.runtime.cuda.validate_order import Order
from brickrt.runtime.cuda.validate_types import Tables, Wanted


class Found(Exception):
    """What was to be checked."""


class Uncompiled(HostDriver):
    def functions(self, sources, progress):
        return [SimpleNamespace(resident=2) for _ in sources]


def tables_of(
    graph, strategy, launch, group=None, band=None, most=None, precision="fp32", **options
) -> tuple[Tables, Wanted]:
    """With `most`, a library computes products with at most so many operations after them."""
    graph, _ = with_values(graph)
    library = None if most is None else HostLibrary(Frontend([PlanOf()], most))

    def stop(tables, wanted):
        raise Found(tables, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "validate", stop)
        try:
            tasks = lowered(in_precision(graph, precision), strategy, SMALL, band, precision=precision, **options)
            CudaProgram(tasks, Uncompiled(given_library=library), CudaOptions(launch, group))
        except Found as found:
            return found.args
    raise AssertionError("nothing was checked")


def order_of(tables: Tables, wanted: Wanted) -> Order:
    launch_of = np.concatenate([np.full(launch.count, k) for k, launch in enumerate(tables.launches)])
    return Order(tables, launch_of, np.bincount(wanted.tasks, minlength=len(tables)) == 0)
