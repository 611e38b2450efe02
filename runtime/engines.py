"""The engines by name: what each plans for, and how it makes a program of a task graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.graph.host.helpers import Helpers
from brickrt.plan.device.device_spec import DeviceSpec, host_device
from brickrt.plan.plan import Plan
from brickrt.runtime.analysis.memory_projection import check_fits
from brickrt.runtime.arrays import DeviceArrays
from brickrt.runtime.cache.plan_cache import Tune
from brickrt.runtime.environment import DEVICE, first_tune_seconds, measures, usual_device
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.program_protocol import LAUNCHES, LaunchMode, Program
from brickrt.runtime.progress import KernelProgress, Progress
from brickrt.runtime.tuning.known_plans import KnownPlans

if TYPE_CHECKING:
    from brickrt.runtime.cpu.tune import Tuner as CpuTuner

Constants = dict[str, np.ndarray]
Device = Literal["auto", "cpu", "cuda", "reference", "null"]
NAMES: tuple[str, ...] = get_args(Device)


Build = Callable[[TaskGraph, Constants, int, KernelProgress | None], Program]


@dataclass(frozen=True)
class Engine:
    """`build(tasks, constants, threads, progress)` makes the program, which owns the constants from then on.
    `arrays` is for engines whose device has memory of its own; `tune(threads, progress)` for those that measure plans,
    or run plans that were measured before. With `bodies`, the subgraphs of If, Loop and Scan run as programs too; else
    the host evaluates them, node by node. `helpers(threads)` gives the threads that share compiled loops of the
    host."""

    name: str
    spec: DeviceSpec
    build: Build
    arrays: DeviceArrays | None = None
    tune: Callable[[int, KernelProgress | None], Tune] | None = None
    bodies: bool = False
    helpers: Callable[[int], Helpers] | None = None


def planner(spec: DeviceSpec) -> Engine:
    """An engine that plans for a device and builds nothing: the device need not be here."""

    def build(tasks: TaskGraph, constants: Constants, threads: int, progress: KernelProgress | None) -> Program:
        raise BrickError(f"plans for {spec.name} are not run: use a device that is here")

    return Engine("planner", spec, build, tune=_known_plans if spec.kind == "cpu" else None)


def choose_engine(device: Device = "auto", isa: str | None = None, launch: LaunchMode = "auto") -> Engine:
    """The engine for a device name; "auto" is a GPU if there is one that can be used, else the CPU, or what the
    environment's BRICKRT_DEVICE says. `isa` restricts the CPU's instruction set, `launch` is for the GPU.

    Raises BrickError if it is missing.
    """
    if launch not in LAUNCHES:
        raise BrickError(f"launch '{launch}' is unknown: use one of {', '.join(LAUNCHES)}")
    if device not in NAMES:
        raise BrickError(f"device '{device}' is unknown: use one of {', '.join(NAMES)}")
    if not isinstance(isa, str | None):
        raise BrickError(f"isa is a {type(isa).__name__}: give a name, such as 'avx2'")
    if device == "auto":
        device = cast(Device, usual_device())  # which is checked next
        if device not in NAMES:
            raise BrickError(f"{DEVICE}={device} in the environment is unknown: use one of {', '.join(NAMES)}")
    if device == "auto" and isa is None and (engine := _gpu_if_any(launch)):
        return engine
    if device == "cuda":
        return _cuda(launch)
    if launch != "auto":
        raise BrickError(f"launch '{launch}' is how a GPU runs plans: use it with device cuda")
    try:
        spec = _host(isa)
    except ValueError as e:
        raise BrickError(str(e)) from None
    if device == "reference":
        return Engine(device, spec, _reference, tune=_known_plans)
    if device == "null":
        return Engine(device, spec, _cpu(spec, arithmetic=False), tune=_known_plans)
    build = _cpu(spec, arithmetic=True)

    def tune(threads: int, progress: KernelProgress | None) -> Tune:
        seconds = first_tune_seconds()
        return cpu_tuner(build, threads, seconds) if seconds else KnownPlans()

    return Engine("cpu", spec, build, tune=tune, bodies=True, helpers=_helpers)


def cpu_tuner(
    build: Build, threads: int, seconds: float, again: bool = False, progress: Progress | None = None
) -> CpuTuner:
    """What measures plans of the CPU, on the programs that `build` makes, for so many seconds. With
    `again`, what was measured before is measured anew. `progress` is told of seconds."""
    from brickrt.runtime.cpu.tune import Tuner
    from brickrt.runtime.lowering.lower import lower

    def program(plan: Plan, compiling: KernelProgress) -> Program:
        tasks = lower(plan)
        check_fits(tasks, threads)
        return build(tasks, dict(plan.graph.constants), threads, compiling)

    return Tuner(program, seconds, again, progress)


def _known_plans(threads: int, progress: KernelProgress | None) -> KnownPlans:
    """Plans that were measured before: engines beside the CPU's run the same tasks."""
    return KnownPlans()


def _helpers(threads: int) -> Helpers:
    """The CPU engine's own threads."""
    from brickrt.runtime.cpu.program import host_helpers

    return host_helpers(threads)


def _gpu_if_any(launch: LaunchMode) -> Engine | None:
    from brickrt.runtime.cuda.driver.detect_gpu import gpu_present

    if not gpu_present():
        return None
    try:
        return _cuda(launch)
    except BrickError as e:
        print(f"brickrt: running on the CPU. {e}", file=sys.stderr)
        return None


def _host(isa: str | None) -> DeviceSpec:
    """All engines plan for the host as the CPU engine does, so that they run the same tasks."""
    from brickrt.runtime.cpu.calibrate.calibration import calibrated

    return calibrated(host_device(isa))


def _cuda(launch: LaunchMode) -> Engine:
    """The GPU engine. Its packages are only loaded here."""
    from brickrt.runtime.cuda.blueprint import CudaOptions
    from brickrt.runtime.cuda.driver.cupy_driver import current_driver
    from brickrt.runtime.cuda.kernels.compile import check_compiler
    from brickrt.runtime.cuda.program import CudaProgram
    from brickrt.runtime.cuda.tune import Tuner
    from brickrt.runtime.lowering.lower import lower

    driver: Any = current_driver()  # its streams and events go with its own only
    compiler = check_compiler(driver.spec.isa)

    def build(tasks: TaskGraph, constants: Constants, threads: int, progress: KernelProgress | None) -> CudaProgram:
        return CudaProgram(tasks, driver, CudaOptions(launch), progress, constants=constants)

    def tune(threads: int, progress: KernelProgress | None) -> Tuner:
        library = driver.library()
        how = f"{launch}, NVRTC {compiler}, cuDNN {library and library.version}"
        return Tuner(lambda plan: build(lower(plan), dict(plan.graph.constants), 1, progress), how)

    return Engine("cuda", driver.spec, build, driver, tune if measures() else None)


def _reference(tasks: TaskGraph, constants: Constants, threads: int, progress: KernelProgress | None) -> Program:
    from brickrt.runtime.reference import ReferenceProgram

    return ReferenceProgram(tasks, constants=constants)


def _cpu(spec: DeviceSpec, arithmetic: bool) -> Build:
    """The CPU engine; without arithmetic it is the null engine: the same schedule and states, no kernels."""
    from brickrt.runtime.cpu.engine_memory import EngineMemory

    memory = EngineMemory()

    def build(tasks: TaskGraph, constants: Constants, threads: int, progress: KernelProgress | None) -> Program:
        from brickrt.runtime.cpu.compile.host_isa import host_isa
        from brickrt.runtime.cpu.program import CpuProgram

        return CpuProgram.build(tasks, host_isa(spec), threads, arithmetic, progress, constants, memory)

    return build
