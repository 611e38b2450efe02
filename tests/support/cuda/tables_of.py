"""The tables of programs, and what they are to do, without any kernel compiled."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from brickrt.graph.passes.half_precision import lowered as in_precision
from brickrt.runtime.cuda import program_tables
from brickrt.runtime.cuda.program import CudaOptions, CudaProgram
from tests.support.verify.order import Order
from tests.support.verify.types import CheckedTables, Wanted
from tests.support.cuda.fake_cudnn import Frontend, HostLibrary, PlanOf
from tests.support.cuda.host_driver import SMALL, HostDriver
from tests.support.task_checks import lowered, with_values


class Found(Exception):
    """What was to be checked."""


class Uncompiled(HostDriver):
    def functions(self, sources, progress):
        return [SimpleNamespace(resident=2) for _ in sources]


def tables_of(
    graph, strategy, launch, group=None, band=None, most=None, precision="fp32", **options
) -> tuple[CheckedTables, Wanted]:
    """With `most`, a library computes products with at most so many operations after them."""
    graph, _ = with_values(graph)
    library = None if most is None else HostLibrary(Frontend([PlanOf()], most))

    def stop(tables, wanted):
        raise Found(tables, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program_tables, "validate", stop)
        try:
            tasks = lowered(in_precision(graph, precision), strategy, SMALL, band, precision=precision, **options)
            CudaProgram(tasks, Uncompiled(given_library=library), CudaOptions(launch, group))
        except Found as found:
            return found.args
    raise AssertionError("nothing was checked")


def order_of(tables: CheckedTables, wanted: Wanted) -> Order:
    launch_of = np.concatenate([np.full(launch.count, k) for k, launch in enumerate(tables.launches)])
    return Order(tables, launch_of, np.bincount(wanted.tasks, minlength=len(tables)) == 0)
