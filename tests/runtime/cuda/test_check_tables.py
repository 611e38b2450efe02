"""What every build checks of its tables, and that programs of the tests are verified besides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.runtime.cuda import program
from brickrt.runtime.cuda.blueprint import CudaOptions, draw_up
from brickrt.runtime.cuda.check_tables import check_tables
from brickrt.runtime.cuda.program import CudaProgram
from tests.support.cuda.callback_kernels import CallbackDriver, use_callbacks
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import lowered, with_values


@pytest.fixture(autouse=True)
def _callbacks(monkeypatch):
    use_callbacks(monkeypatch)


def tasks_of(driver):
    s = Sketch()
    graph = s.graph(s.map("abs", s.conv(s.conv(s.input(1, 8, 6, 6), 8, 1), 8)))
    return lowered(with_values(graph)[0], "memoized", driver.spec, brick=3)


@pytest.fixture
def good():
    driver = CallbackDriver()
    return draw_up(tasks_of(driver), driver, CudaOptions("persistent"))


def changed(array, at, value):
    array = array.copy()
    array[at] = value
    return array


def test_good_tables_pass(good):
    assert len(good.tables.deps)
    check_tables(good)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("deps", lambda deps: changed(deps, -1, 99), "which is no earlier one of its launch"),
        ("deps", lambda deps: changed(deps, 0, -1), "task .* waits for task -1"),
        ("deps", lambda deps: deps[:-1], "the offsets into deps do not go from 0"),
        ("deps", lambda deps: deps.astype(np.int64), "the deps are int64"),
        ("dep_offsets", lambda offsets: changed(offsets, 1, 1 << 20), "the offsets into deps"),
        ("order", lambda order: changed(order, 1, order[0]), "task .* is launched twice"),
        ("order", lambda order: order[:-1], "are not the .* of all launches"),
    ],
)
def test_broken_tables_are_refused(good, name, change, message):
    tables = replace(good.tables, **{name: change(getattr(good.tables, name))})
    with pytest.raises(ValueError, match=message) as error:
        check_tables(replace(good, tables=tables))
    assert "\n" not in str(error.value)


def test_launches_come_after_earlier_ones(good):
    launches = [replace(launch, after=(k,)) for k, launch in enumerate(good.launches)]
    with pytest.raises(ValueError, match="not all earlier ones"):
        check_tables(replace(good, launches=launches))


def test_programs_of_the_tests_are_verified(monkeypatch):
    """A box that is too small hurts nothing that the build looks at."""

    def broken(*given):
        blueprint = draw_up(*given)
        table = blueprint.tables.table
        records = changed(table.records, table.task_at[1] - 1, 1 << 32)
        return replace(blueprint, tables=replace(blueprint.tables, table=replace(table, records=records)))

    monkeypatch.setattr(program, "draw_up", broken)
    driver = CallbackDriver()
    with pytest.raises(ValueError, match="is written 0 times"):
        CudaProgram(tasks_of(driver), driver, CudaOptions("persistent"))
