"""Plans see the same speeds of a machine whatever disturbs the measurement: simulated machines are measured."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.plan.device.device_spec import DeviceSpec, host_device
from brickrt.runtime.cpu.calibrate.best_turns import MOST_S, best_rates
from brickrt.runtime.cpu.calibrate.measured import CoreSpeeds
from brickrt.runtime.cpu.calibrate.microbenchmarks import core_speeds
from brickrt.runtime.cpu.calibrate.planned_speeds import (
    BYTES,
    CLOCK_GHZ,
    REACHED,
    VECTORS,
    Classes,
    doubtful,
    planned,
)

SPEC = replace(host_device(), isa="avx512", lanes=16, cores=2, l2=1 << 20, l3=32 << 20)
TURN_US = {"clock": 30.0, "vectors": 30.0, "paired": 30.0, "l2": 40.0, "l3": 200.0, "memory": 200.0}
MACHINES = {
    "a share of an Intel server": CoreSpeeds(3.7, 2.0, 1.4, {"l2": 118.0, "l3": 18.0}),
    "Zen 4": CoreSpeeds(3.7, 1.0, 1.43, {"l2": 104.0, "l3": 88.0, "memory": 30.0}),
    "AVX2": CoreSpeeds(4.6, 2.0, 1.7, {"l2": 120.0, "l3": 35.0, "memory": 32.0}),
    "NEON, no L3": CoreSpeeds(3.2, 4.0, 3.0, {"l2": 110.0, "memory": 60.0}),
}


@dataclass
class Noise:
    """What disturbs turns: each takes up to `jitter` more or less; a share `interrupted` waits for a slice of another
    process; the clock goes down to `slowest` and up again; a neighbour makes all `neighbour` times slower for 50 ms out
    of each 100."""

    jitter: float = 0.0
    interrupted: float = 0.0
    slowest: float = 1.0
    neighbour: float = 1.0


@dataclass
class Machine:
    """A core with these speeds, and a time of its own."""

    true: CoreSpeeds
    noise: Noise
    random: random.Random
    seconds: float = 0.0
    turns: dict[str, Callable[[], float]] = field(init=False)

    def __post_init__(self) -> None:
        true = self.true
        cycles = {"clock": 1.0, "vectors": true.vectors_per_cycle, "paired": true.paired_per_cycle}
        rates = {name: figure * true.clock_ghz for name, figure in cycles.items()}
        self.turns = {n: lambda n=n, r=r: self.turn(r, TURN_US[n]) for n, r in (rates | self.true.bandwidth).items()}

    def turn(self, rate: float, usual_us: float) -> float:
        """The rate of a turn, which takes its time."""
        noise, units = self.noise, rate * usual_us
        us = usual_us * (1 + self.random.uniform(-noise.jitter, noise.jitter))
        us /= self.random.uniform(noise.slowest, 1.0) if int(self.seconds * 40) % 3 else 1.0
        us *= noise.neighbour if self.seconds % 0.1 < 0.05 else 1.0
        us += self.random.uniform(500, 8000) * (self.random.random() < noise.interrupted)
        self.seconds += us / 1e6
        return units / us

    def speeds(self) -> CoreSpeeds:
        """As they are measured."""
        return core_speeds(self.turns, lambda: self.seconds)


LOADS = {
    "idle": Noise(jitter=0.02),
    "jitter": Noise(jitter=0.08),
    "a busy core": Noise(0.05, interrupted=0.05, slowest=0.8),
    "busy cores": Noise(0.08, interrupted=0.3, slowest=0.7),
    "a neighbour": Noise(0.05, interrupted=0.02, slowest=0.8, neighbour=1.8),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_ten_calibrations_under_each_load_give_one_device(machine):
    true = MACHINES[machine]
    for noise in LOADS.values():
        for seed in range(10):
            simulated = Machine(true, noise, random.Random(seed))
            assert planned(SPEC, simulated.speeds()) == planned(SPEC, true)
            assert simulated.seconds < 2 * MOST_S + 0.1


def _clear(classes: Classes) -> st.SearchStrategy[float]:
    """Figures a tenth and more from the ends of their class."""
    figures = st.floats(1.0, 60.0)
    return figures.filter(lambda f: classes.of(f / 1.1) == classes.of(f) == classes.of(f * 1.1))


@settings(max_examples=200, deadline=None)
@given(
    speeds=st.builds(
        lambda clock, vectors, gain, l2, far: CoreSpeeds(
            clock, vectors, gain * vectors, {"l2": l2 * clock, "l3": far * clock}
        ),
        clock=st.floats(1.5, 5.5),
        vectors=st.sampled_from([0.5, 1.0, 2.0, 4.0]),
        gain=st.sampled_from([0.6, 1.0, 1.4]),
        l2=_clear(BYTES["l2"]),
        far=_clear(BYTES["l3"]),
    ),
    noise=st.builds(Noise, st.floats(0, 0.04), st.floats(0, 0.3), st.floats(0.7, 1.0), st.floats(1.0, 2.0)),
    seed=st.integers(0, 2**32),
)
def test_any_machine_clear_of_the_ends_has_one_device(speeds, noise, seed):
    assert planned(SPEC, Machine(speeds, noise, random.Random(seed)).speeds()) == planned(SPEC, speeds)


def test_a_quiet_machine_is_measured_soon_and_a_doubtful_one_longer():
    quiet = Machine(MACHINES["AVX2"], Noise(), random.Random(0))
    quiet.speeds()
    assert quiet.seconds < 0.2
    near = CoreSpeeds(3.0, 2.0, 2.0, {"l2": 40 * 3.0})
    assert doubtful(near) and not doubtful(MACHINES["AVX2"])
    longer = Machine(near, Noise(), random.Random(0))
    longer.speeds()
    assert MOST_S <= longer.seconds < MOST_S + 0.1


def test_a_rate_that_rises_late_is_met():
    """An undisturbed turn comes after 50 ms of disturbed ones: the rise makes measuring go on."""
    seconds, rates = [0.0], []

    def turn() -> float:
        seconds[0] += 0.001
        rates.append(2.0 if seconds[0] > 0.05 else 1.0)
        return rates[-1]

    assert best_rates({"any": turn}, lambda best: False, lambda: seconds[0]) == {"any": 2.0}
    assert 0.1 < seconds[0] < 0.2


def test_classes():
    assert [VECTORS.of(figure) for figure in (0.5, 0.9, 1.3, 1.5, 1.9, 2.1, 3.2)] == [0.5, 1.0, 1.0, 2.0, 2.0, 2.0, 4.0]
    assert VECTORS.doubtful(1.3) and not VECTORS.doubtful(1.0) and not VECTORS.doubtful(1.9)
    assert [BYTES["l3"].of(figure) for figure in (4.5, 8.0, 24.0)] == [5.0, 5.0, 20.0]
    assert [BYTES["memory"].of(figure) for figure in (2.0, 4.5, 8.0, 24.0)] == [2.0, 8.0, 8.0, 32.0]


def test_elements_are_paired_where_that_is_clearly_faster():
    zen4 = MACHINES["Zen 4"]
    assert planned(SPEC, zen4).pairs and not doubtful(zen4)
    assert not any(planned(SPEC, true).pairs for name, true in MACHINES.items() if name != "Zen 4")
    near = replace(zen4, paired_per_cycle=1.15)
    assert not planned(SPEC, near).pairs and doubtful(near)
    assert planned(SPEC, replace(near, vectors_per_cycle=0.9)) == planned(SPEC, near)  # a disturbed figure, not faster


def test_one_multiply_add_a_cycle_is_told():
    one, two = (CoreSpeeds(2.5, vectors, 1.0, {"l2": 70.0, "l3": 40.0}) for vectors in (0.98, 1.95))
    assert planned(SPEC, one).one_a_cycle and not planned(SPEC, two).one_a_cycle
    assert planned(SPEC, one).peak_gflops_per_core == 2 * SPEC.lanes * CLOCK_GHZ
    assert planned(SPEC, one).double_pumped == SPEC.double_pumped  # which processor that is, its name tells


def test_planned_figures():
    device = planned(SPEC, CoreSpeeds(3.7, 1.95, 1.5, {"l2": 118.0, "l3": 88.0, "memory": 30.0}))
    assert device.peak_gflops_per_core == 2 * 2 * 16 * CLOCK_GHZ
    assert device.bandwidth["l2"] == 2 * 30 * CLOCK_GHZ
    assert device.bandwidth["l3"] == pytest.approx(2 * 20 * CLOCK_GHZ * REACHED)
    assert device.bandwidth["memory"] == pytest.approx(2**0.75 * 8 * CLOCK_GHZ * REACHED)


def test_levels_that_could_not_be_told_apart_are_typical():
    device: DeviceSpec = planned(SPEC, CoreSpeeds(3.7, 2.0, 1.5, {"l2": 118.0, "l3": 18.0}))
    assert (
        device.bandwidth["memory"] == device.bandwidth["l3"] < device.bandwidth["l2"]
    )  # not faster than what is before
    without = planned(replace(SPEC, l3=0), CoreSpeeds(3.2, 4.0, 4.0, {"l2": 110.0, "memory": 90.0}))
    assert without.bandwidth["memory"] > without.bandwidth["l3"]  # which is not there
    assert device.bandwidth_at("memory", 2) == device.bandwidth["memory"] and not device.core_bandwidth


def test_plans_know_nothing_of_the_clock():
    slow, fast = (CoreSpeeds(ghz, 2.0, 2.0, {"l2": 32 * ghz, "l3": 5 * ghz}) for ghz in (2.0, 5.0))
    assert planned(SPEC, slow) == planned(SPEC, fast)
