"""Measures the host: clock, multiply-adds, bandwidth per memory level, time per task. Takes a few tenths of a second.

Plans depend on what one core does in its best moments, which others at work on the machine do not change
(`best_turns.py`). What all cores do together is measured too, for rooflines and for those who want to know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from threading import Barrier

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.paired.pairing import PERIOD
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.device.machine import MIB
from brickrt.plan.plan import Plan
from brickrt.runtime.cpu.calibrate.best_turns import Turn, best_rates
from brickrt.runtime.cpu.calibrate.measured import LEVELS, CoreSpeeds, Measured
from brickrt.runtime.cpu.calibrate.planned_speeds import doubtful
from brickrt.runtime.cpu.calibrate.probe_loops import LINKS, Probes, probes
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.memory import aligned_empty
from brickrt.runtime.cpu.program import CpuProgram
from brickrt.runtime.lowering.task_graph import TaskGraph

COUNTED, MULTIPLIED, PAIRED = 4_000, 12_000, 500  # rounds of a loop that take some 30 µs
ALL_MULTIPLIED = 40_000  # the same while all cores work, some 100 µs
NEAR_TURN_BYTES = 4 * MIB  # that a turn moves through a core's own cache at least: some 40 µs
FAR_TURN_CACHES = 2  # times that cache: bytes that a turn moves through what is behind it, up to half a millisecond
REPEATS = 25
ALL_MOVED_BYTES = 8 * MIB  # that each core moves at least, while all do
LEAST_MEMORY, MOST_MEMORY = 64 * MIB, 2048 * MIB  # bytes of the buffer that is to exceed all caches
OVER_L3 = 4  # times L3 that it takes: of twice as much, L3 keeps parts by chance, and the best turn meets them
TASKS = 16_384
WINDOW = 8  # a task waits for the one so many before it


def measure(spec: DeviceSpec) -> Measured:
    """Speeds of the host, whose instruction set, cores and caches are those of `spec`."""
    isa, parts = host_isa(spec), level_bytes(spec)
    loops, each = probes(isa), max(parts.values())
    buffer = aligned_empty(spec.cores * each)
    buffer.fill(0)
    core = SoleCore(loops, buffer.ctypes.data).speeds(parts, spec)
    with ThreadPoolExecutor(spec.cores) as pool:
        cores = _Cores(loops, buffer.ctypes.data, each, pool, spec.cores)
        return Measured(
            core=core,
            peak_gflops_per_core=cores.gflops() / spec.cores,
            bandwidth={level: cores.gbps(nbytes) for level, nbytes in parts.items()},
            task_overhead_us=_task_overhead(isa, spec),
        )


def level_bytes(spec: DeviceSpec) -> dict[str, int]:
    """Bytes for each core to stream through, well inside a level of memory and well outside the one before: of those
    that can be told apart."""
    shared = spec.l3 // 2 // spec.cores
    memory = min(max(OVER_L3 * spec.l3, LEAST_MEMORY), MOST_MEMORY, spec.memory // 8)
    parts = {"l2": 3 * spec.l2 // 8}
    if shared >= 3 * spec.l2 // 2:
        parts["l3"] = shared
    if memory >= OVER_L3 * spec.l3:
        parts["memory"] = memory // spec.cores
    return parts


def _rate(work: Callable[[], None], units: float) -> float:
    """Units per nanosecond."""
    started = time.perf_counter_ns()
    work()
    return units / max(1, time.perf_counter_ns() - started)


@dataclass(frozen=True)
class SoleCore:
    """One core that works alone, on a buffer of zeros that begins at an address."""

    loops: Probes
    start: int

    def speeds(self, parts: Mapping[str, int], spec: DeviceSpec) -> CoreSpeeds:
        """What it does in its best moments."""
        return core_speeds(self.turns(parts, spec))

    def turns(self, parts: Mapping[str, int], spec: DeviceSpec) -> dict[str, Turn]:
        """Turns that give its clock, its arithmetic and each level of memory, of so many bytes."""
        turns = {"clock": self.count, "vectors": self.multiply_add, "paired": self.pair, "l2": self.near(parts["l2"])}
        if "l3" in parts:
            turns["l3"] = self.far(parts["l3"], FAR_TURN_CACHES * spec.l2)
        if "memory" in parts:
            near = max(nbytes for level, nbytes in parts.items() if level != "memory")  # which turns leave in caches
            turns["memory"] = self.far(parts["memory"] * spec.cores - near, FAR_TURN_CACHES * spec.l2, skipped=near)
        return turns

    def count(self) -> float:
        """Cycles per ns."""
        return _rate(lambda: self.loops.count(COUNTED, self.start), COUNTED * LINKS)

    def multiply_add(self) -> float:
        """Vectors per ns."""
        return _rate(lambda: self.loops.multiply_add(MULTIPLIED, self.start), MULTIPLIED * self.loops.chains)

    def pair(self) -> float:
        """Vectors per ns that are computed with paired elements."""
        return _rate(lambda: self.loops.pair(PAIRED, self.start), PAIRED * PERIOD * self.loops.chains)

    def near(self, nbytes: int) -> Turn:
        """Bytes per ns from a core's own cache, which holds them when the turn begins."""
        third = self.loops.third(nbytes)
        sweeps = -(-NEAR_TURN_BYTES // (12 * third))

        def turn() -> float:
            self.loops.stream(self.start, third, 1)
            return _rate(lambda: self.loops.stream(self.start, third, sweeps), 12 * third * sweeps)

        return turn

    def far(self, nbytes: int, at_once: int, skipped: int = 0) -> Turn:
        """Bytes per ns from behind that cache: every turn moves those that were moved longest ago. The first `skipped`
        bytes of the buffer are left out."""
        third = self.loops.third(min(nbytes, at_once))
        first = self.start + skipped
        starts = cycle(range(first, first + nbytes - 12 * third + 1, 12 * third))

        def turn() -> float:
            at = next(starts)
            return _rate(lambda: self.loops.stream(at, third, 1), 12 * third)

        return turn


def core_speeds(turns: Mapping[str, Turn], now: Callable[[], float] = time.perf_counter) -> CoreSpeeds:
    """The speeds of a core whose "clock", "vectors", "paired" and levels of memory have these turns, which give units
    per ns.

    Memory comes last: its turns leave nothing in the caches.
    """
    near = {name: turn for name, turn in turns.items() if name != "memory"}
    best = best_rates(near, lambda rates: doubtful(_speeds(rates)), now)
    far = {name: turn for name, turn in turns.items() if name == "memory"}
    return _speeds(best | best_rates(far, lambda rates: doubtful(_speeds(best | rates)), now)) if far else _speeds(best)


def _speeds(rates: Mapping[str, float]) -> CoreSpeeds:
    levels = {level: rates[level] for level in LEVELS if level in rates}
    return CoreSpeeds(rates["clock"], rates["vectors"] / rates["clock"], rates["paired"] / rates["clock"], levels)


@dataclass(frozen=True)
class _Cores:
    """All cores, which start a piece of work at the same time, each with as many bytes of the buffer."""

    loops: Probes
    start: int
    nbytes: int
    pool: ThreadPoolExecutor
    size: int

    def gflops(self) -> float:
        """GFLOP/s of all together, of each in its best turn."""
        flops = 2 * self.loops.lanes * self.loops.chains * ALL_MULTIPLIED
        turns = [self.rates(lambda at: self.loops.multiply_add(ALL_MULTIPLIED, at), flops) for _ in range(4 * REPEATS)]
        return sum(max(core) for core in zip(*turns, strict=True))

    def gbps(self, nbytes: int) -> float:
        """GB/s of all together, each in so many of its bytes, of which every turn moves others.

        The second best of several: in the best, cores may have worked one after another, each with all of the machine.
        """
        third = self.loops.third(min(nbytes, ALL_MOVED_BYTES))
        window = 12 * third
        sweeps = -(-ALL_MOVED_BYTES // window)

        def moved(offset: int) -> float:
            return sum(self.rates(lambda at: self.loops.stream(at + offset, third, sweeps), window * sweeps))

        return sorted(moved(turn % (nbytes // window) * window) for turn in range(REPEATS))[-2]

    def rates(self, work: Callable[[int], None], units: float) -> list[float]:
        """Units per ns of each core, in a turn in which each does so many in `work(address)`."""
        together = Barrier(self.size)

        def timed(k: int) -> float:
            together.wait()
            return _rate(lambda: work(self.start + k * self.nbytes), units)

        return list(self.pool.map(timed, range(self.size)))


def _task_overhead(isa: Isa, spec: DeviceSpec) -> float:
    """Microseconds of a core per task that has nothing to compute and waits for one other."""
    first = np.arange(TASKS + 1) - WINDOW
    tasks = TaskGraph(
        plan=Plan(Graph((), {}), {}, spec),
        dep_offsets=np.maximum(first, 0).astype(np.int64),
        deps=np.arange(TASKS - WINDOW, dtype=np.int64),
        task_subgraph=np.zeros(TASKS, np.int64),
    )
    program = CpuProgram.build(tasks, isa, spec.cores, arithmetic=False)
    return min(_run_us(program) for _ in range(REPEATS)) * spec.cores / TASKS


def _run_us(program: CpuProgram) -> float:
    started = time.perf_counter_ns()
    program.run([], [])
    return (time.perf_counter_ns() - started) / 1e3
