"""The tables of programs, and what they must do, without any kernel compiled."""

from __future__ import annotations

import numpy as np

from brickrt.graph.passes.half_precision import to_half_precision as in_precision
from brickrt.runtime.cuda.blueprint import CudaOptions, draw_up
from tests.support.cuda.host_driver import SMALL, HostDriver
from tests.support.cudnn.fake_cudnn import Frontend, HostLibrary, PlanOf
from tests.support.task_checks import lowered, with_values
from tests.support.verify.expected import checked_tables, expected_of
from tests.support.verify.order import Order
from tests.support.verify.types import CheckedTables, Expected


def tables_of(
    graph, strategy, launch, group=None, band=None, most=None, precision="fp32", **options
) -> tuple[CheckedTables, Expected]:
    """With `most`, a library computes products with at most so many operations after them."""
    graph, _ = with_values(graph)
    library = None if most is None else HostLibrary(Frontend([PlanOf()], most))

    tasks = lowered(in_precision(graph, precision), strategy, SMALL, band, precision=precision, **options)
    blueprint = draw_up(tasks, HostDriver(given_library=library), CudaOptions(launch, group))
    return checked_tables(blueprint), expected_of(blueprint)


def order_of(tables: CheckedTables, expected: Expected) -> Order:
    launch_of = np.concatenate([np.full(launch.count, k) for k, launch in enumerate(tables.launches)])
    return Order(tables, launch_of, np.bincount(expected.tasks, minlength=len(tables)) == 0)
