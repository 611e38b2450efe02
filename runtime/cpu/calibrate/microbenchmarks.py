"""Measures the host: multiply-add peak, bandwidth per memory level, time per task. Takes about a tenth of a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.cpu.isa import Isa
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.device.machine import MIB
from brickrt.plan.plan import Plan
from brickrt.runtime.cpu.calibrate.probe_loops import probes
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.memory import aligned_empty
from brickrt.runtime.cpu.program import CpuProgram
from brickrt.runtime.lowering.task_graph import TaskGraph

LEVELS = ("l2", "l3", "memory")
REPEATS = 7
STEADY = 1.3  # the second best repetition over the third
TURNS = 20_000  # of the multiply-adds, about half a millisecond
MOVED = 32 * MIB  # bytes that a repetition streams through a cache
LEAST_MEMORY, MOST_MEMORY = 64 * MIB, 512 * MIB  # bytes of the buffer that is to exceed all caches
TASKS = 16_384
WINDOW = 8  # a task waits for the one so many before it


@dataclass(frozen=True)
class Measured:
    """GFLOP/s of one core while all are busy; GB/s read and written by all cores together, and by one alone, per memory
    level; µs of one core per task. `steady` tells that repetitions agreed."""

    peak_gflops_per_core: float
    bandwidth: dict[str, float]
    core_bandwidth: dict[str, float]
    task_overhead_us: float
    steady: bool


def measure(spec: DeviceSpec) -> Measured:
    """Speeds of the host, whose instruction set, cores and caches are those of `spec`."""
    isa = host_isa(spec)
    with ThreadPoolExecutor(spec.cores) as pool:
        peak = _peak(isa, _Team(pool, spec.cores))
        together = _bandwidths(isa, spec, _Team(pool, spec.cores))
        alone = _bandwidths(isa, spec, _Team(pool, 1)) if spec.cores > 1 else together
    rates = [peak, *together.values(), *alone.values()]
    return Measured(
        peak_gflops_per_core=peak.usual / spec.cores,
        bandwidth={level: rate.usual for level, rate in together.items()},
        core_bandwidth={level: rate.usual for level, rate in alone.items()},
        task_overhead_us=_task_overhead(isa, spec),
        steady=all(rate.steady for rate in rates),
    )


@dataclass(frozen=True)
class _Rate:
    """Giga-units per second of several repetitions, the best first. The second counts: in the best, threads may have
    run one after the other, each with all of the machine."""

    repeats: Sequence[float]

    @property
    def usual(self) -> float:
        return self.repeats[1]

    @property
    def steady(self) -> bool:
        return self.repeats[1] <= STEADY * self.repeats[2]


@dataclass(frozen=True)
class _Team:
    """Threads that start a piece of work at the same time."""

    pool: ThreadPoolExecutor
    size: int

    def rate(self, work: Callable[[int], None], units: float) -> _Rate:
        """The threads' speeds added up, where each does `units` of work in `work(thread)`."""
        found = []
        for _ in range(REPEATS):
            together = Barrier(self.size)

            def timed(k: int, together: Barrier = together) -> float:
                together.wait()
                started = time.perf_counter_ns()
                work(k)
                return units / max(1, time.perf_counter_ns() - started)

            found.append(sum(self.pool.map(timed, range(self.size))))
        return _Rate(sorted(found, reverse=True))


def _peak(isa: Isa, team: _Team) -> _Rate:
    loops = probes(isa)
    buffers = [np.full(loops.vectors * isa.lanes, 0.5, np.float32) for _ in range(team.size)]
    return team.rate(lambda k: loops.multiply_add(TURNS, buffers[k].ctypes.data), TURNS * loops.flops_per_turn)


def _bandwidths(isa: Isa, spec: DeviceSpec, team: _Team) -> dict[str, _Rate]:
    """Bandwidth by memory level, of those that can be told apart."""
    parts = {level: nbytes for level, nbytes in _parts(spec, team.size).items() if nbytes}
    buffer = aligned_empty(max(nbytes * team.size for nbytes in parts.values()))
    buffer.fill(0)
    return {level: _bandwidth(isa, team, buffer, nbytes) for level, nbytes in parts.items()}


def _parts(spec: DeviceSpec, threads: int) -> dict[str, int]:
    """Bytes that each thread streams through, by level: well inside it, and well outside the one before. 0: none."""
    shared = spec.l3 // 2 // spec.cores
    memory = min(max(2 * spec.l3, LEAST_MEMORY), MOST_MEMORY, spec.memory // 8)
    return {
        "l2": 3 * spec.l2 // 8,
        "l3": shared if shared >= 3 * spec.l2 // 2 else 0,
        "memory": memory // threads if memory >= 3 * spec.l3 // 2 else 0,
    }


def _bandwidth(isa: Isa, team: _Team, buffer: np.ndarray, nbytes: int) -> _Rate:
    loops = probes(isa)
    third = nbytes // 12 // loops.chunk * loops.chunk
    moved = 12 * third
    sweeps = max(1, MOVED // moved)
    return team.rate(lambda k: loops.stream(buffer.ctypes.data + k * nbytes, third, sweeps), moved * sweeps)


def _task_overhead(isa: Isa, spec: DeviceSpec) -> float:
    """Microseconds of a core per task that has nothing to compute and waits for one other."""
    first = np.arange(TASKS + 1) - WINDOW
    tasks = TaskGraph(
        plan=Plan(Graph((), {}), {}, spec),
        dep_offsets=np.maximum(first, 0).astype(np.int64),
        deps=np.arange(TASKS - WINDOW, dtype=np.int64),
        task_subgraph=np.zeros(TASKS, np.int64),
    )
    program = CpuProgram(tasks, isa, spec.cores, arithmetic=False)
    return min(_run_us(program) for _ in range(REPEATS)) * spec.cores / TASKS


def _run_us(program: CpuProgram) -> float:
    started = time.perf_counter_ns()
    program.run([], [])
    return (time.perf_counter_ns() - started) / 1e3
