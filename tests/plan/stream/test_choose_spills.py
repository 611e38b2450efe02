"""Which tensors are spilled: compared with all choices in small networks, and in networks of many passes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import chain, combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brickrt import zoo
from brickrt.plan.stream.choose_spills import GAIN, choose_spills
from brickrt.plan.stream.spill_costs import DiskSpeed, SpillCosts, SweptUnit
from brickrt.plan.stream.stream_plan import StreamPlanner
from tests.support.cpu.streams import plan_of, planner_of

FAST, SLOW = DiskSpeed(2e9, 4e9), DiskSpeed(1e6, 2e6)


def total(costs: SpillCosts, names: Iterable[str]) -> float:
    chosen = set(names)
    return sum(one.seconds for one in costs.passes([k for k, unit in enumerate(costs.units) if unit.name in chosen]))


def random_costs(seed: int) -> SpillCosts:
    """A few units that read earlier ones, in up to five passes; each pass is for one of its units."""
    draw = random.Random(seed)
    units = [SweptUnit(0, 2**20, is_input=True)]
    for number in range(1, draw.randint(4, 9)):
        reads = draw.sample(range(number), min(number, draw.choice([1, 1, 2])))
        level = max(units[read].level for read in reads)
        level += level < 4 and draw.random() < 0.4
        nbytes, seconds = draw.choice([2**20, 2**22, 2**23]), draw.choice([1e-4, 1e-3, 1e-2, 5e-2])
        units.append(SweptUnit(level, nbytes, seconds, tuple(reads), f"t{number}" if draw.random() < 0.8 else ""))
    passes = 1 + max(unit.level for unit in units)
    targets = [tuple(k for k, unit in enumerate(units) if unit.level == number)[-1:] for number in range(passes)]
    last = [unit if unit.level < passes - 1 else SweptUnit(*vars(unit).values()) for unit in units]
    units = [SweptUnit(**{**vars(unit), "name": unit.name if unit.level < passes - 1 else ""}) for unit in last]
    return SpillCosts(tuple(units), tuple(targets), DiskSpeed(draw.choice([1e8, 1e9]), draw.choice([1e9, 4e9])))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 2**20))
@example(34316)  # a tensor in place of another
@example(34375)  # all but one left out of all
def test_nearly_the_best_of_all_choices(seed: int) -> None:
    """Never more than without spills, and within a fifth of the least of all sets of tensors."""
    costs = random_costs(seed)
    names = [unit.name for unit in costs.units if unit.name]
    every = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
    best, without = min(total(costs, names) for names in every), total(costs, ())
    found = total(costs, choose_spills(costs))
    assert found <= without
    assert found <= 1.2 * best or (found <= without and best > GAIN * without / 1.2)


def costs_of(planner: StreamPlanner, disk: DiskSpeed) -> SpillCosts:
    return SpillCosts.of(planner.plan, planner.network, planner.may_spill, disk, 2)


def test_a_network_of_many_passes() -> None:
    """Work that grew with the square of the passes grows with them: a pass goes on from the one before it."""
    planner = planner_of(plan_of(zoo.build("nafnet", size=512, blocks=12)))
    costs = costs_of(planner, FAST)
    names = choose_spills(costs)
    assert set(names) <= set(planner.may_spill)
    once = sum(unit.seconds for unit in costs.units)
    assert total(costs, names) < 4 * once < 6 * once < total(costs, ())
    assert choose_spills(costs_of(planner, SLOW)) == ()
    spilled = planner.spilling(names).stream_plan(16)
    units = sum(len(sweep.schedule.units) for sweep in spilled.sweeps)
    assert units < sum(len(sweep.schedule.units) for sweep in planner.stream_plan(16).sweeps) / 2
    for name in names:
        assert len(spilled.users(name)) > 1, name


def test_a_pass_computes_while_it_reads_and_writes() -> None:
    """A tensor is spilled that takes about as long to write as to compute: no pass waits for it long."""
    units = [SweptUnit(0, 8, is_input=True), *(SweptUnit(k, 10**6, 1.0, (k,), f"t{k}" * (k < 2)) for k in range(3))]
    costs = SpillCosts(tuple(units), ((1,), (2,), (3,)), DiskSpeed(10**6, 10**9))
    first, second, third = costs.passes([1, 2])
    assert 1 < first.seconds < 2 and 1 < second.seconds < 2 and 1 < third.seconds < 1.1
    assert choose_spills(costs)


def test_room_is_that_of_the_passes_that_still_read() -> None:
    """A chain in which each pass reads what the one before spilled: two tensors are there at a time."""
    units = [SweptUnit(0, 8, is_input=True), *(SweptUnit(k, 10**6, 1.0, (k,), f"t{k}") for k in range(6))]
    costs = SpillCosts(tuple(units), tuple((k + 1,) for k in range(6)), FAST)
    assert choose_spills(costs) == ("t0", "t1", "t2", "t3", "t4")
    assert costs.room([1, 2, 3, 4, 5]) == 2 * 10**6


@pytest.mark.parametrize("name", ["unet", "mobilenetv2"])
def test_one_pass_or_little_to_save(name: str) -> None:
    planner = planner_of(plan_of(zoo.build(name, size=64)))
    assert choose_spills(costs_of(planner, SLOW)) == ()
