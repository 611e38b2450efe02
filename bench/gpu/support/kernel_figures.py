"""The kernel functions of the CUDA programs of networks, compiled for devices that need not be here: what they take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import onnx

import brickrt.ops.cuda.all_kernels  # noqa: F401  (makes the kernels known)
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import load
from brickrt.graph.passes.chains.gpu_graph import gpu_graph
from brickrt.graph.passes.half_precision import to_half_precision
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.cuda.kernel import THREADS, Kernel
from brickrt.ops.cuda.products.block_tile import Core
from brickrt.ops.cuda.shared_memory import RESERVED, of_multiprocessor
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec
from brickrt.plan.options import PlanOptions, Precision
from brickrt.plan.plan import make_plan
from brickrt.runtime.cuda.kernels.compile import CompiledModule, compile_modules
from brickrt.runtime.cuda.kernels.kernel_sources import FunctionSource, KernelSource, function_of
from brickrt.runtime.cuda.memory.constants import PackedConstants
from brickrt.runtime.cuda.program_tables import Units
from brickrt.runtime.cuda.schedule.argument_table import ArgumentTable
from brickrt.runtime.cuda.schedule.launches import make_launches
from brickrt.runtime.lowering.lower import lower

GROUP_TASKS = 1024  # of memoized bricks
MERGED = 16  # functions that are compiled together
REGISTERS = 1 << 16  # of a multiprocessor
MOST_THREADS = {"sm_80": 2048, "sm_89": 1536, "sm_90": 2048}  # of a multiprocessor
SHARED = {device.isa: of_multiprocessor(device.l1) for device in PRESETS.values()}  # bytes of a multiprocessor


@dataclass(frozen=True)
class Used:
    """A kernel function, the device functions it calls, and what it computes, as "ProductConv [1, 64, 56, 56] tf32"."""

    source: KernelSource
    label: str
    functions: tuple[FunctionSource, ...] = ()


@dataclass(frozen=True)
class KernelFigures:
    """What a kernel function takes; spills are bytes stored and loaded by it and by the functions that it calls."""

    name: str
    label: str
    registers: int
    shared: int
    stack: int
    spills: int

    def blocks(self, arch: str) -> int:
        """Blocks that a multiprocessor holds at the same time."""
        by_registers = REGISTERS // (THREADS * -(-self.registers // 8) * 8)
        return min(MOST_THREADS[arch] // THREADS, by_registers, SHARED[arch] // (self.shared + RESERVED))


@dataclass
class _Unpacked(PackedConstants):
    """Weights are not packed: kernels do not depend on them."""

    def add_packed(self, kernel: Kernel, i: int, array: np.ndarray) -> int:
        return 0


@dataclass
class ModelPrograms:
    """A model whose programs are asked for: read and folded once, in each precision once."""

    graph: Graph
    chains: bool = True  # whether operators on pixels are joined
    _lowered: dict[str, Graph] = field(default_factory=dict)

    @staticmethod
    def of(model: onnx.ModelProto, chains: bool = True) -> ModelPrograms:
        """The model specialized to the shapes of its inputs, which are all known."""
        source = load(model)
        types = {name: TensorType(_extents(i.shape), i.dtype) for name, i in source.inputs.items() if i.dtype}
        return ModelPrograms(specialize(first_stage(source), types, {}).graph, chains)

    def in_precision(self, precision: Precision) -> Graph:
        """The specialized graph in a precision."""
        if precision not in self._lowered:
            lowered = gpu_graph if self.chains else to_half_precision
            self._lowered[precision] = lowered(self.graph, precision)
        graph = self._lowered[precision]
        return replace(graph, constants=dict(graph.constants))  # which programs give up

    def functions(self, device: DeviceSpec, precision: Precision) -> list[Used]:
        """All kernel functions of its programs on a device, those of each way to launch them."""
        plan = make_plan(self.in_precision(precision), device, PlanOptions(precision=precision))
        tasks = lower(plan)
        table, found = ArgumentTable(tasks, packed=_Unpacked()), dict[str, Used]()
        for persistent in (False, True):
            launches = make_launches(tasks, persistent, GROUP_TASKS)
            units = Units(table, launches, THREADS)
            sources = list(units.sources)
            for launch, k in zip(launches, units.of, strict=True):
                if sources[k].name not in found:
                    kernels = [one.kernel for i in launch.steps for one in table.of(i)]
                    found[sources[k].name] = _used(sources[k], kernels)
        return list(found.values())


def _extents(shape: Sequence[object] | None) -> Shape:
    """Those of an input, all known."""
    return tuple(e for e in shape or () if isinstance(e, int))


def _used(source: KernelSource, kernels: Sequence[Kernel]) -> Used:
    label = " + ".join(dict.fromkeys(map(_label, kernels)))
    return Used(source, label, tuple(dict.fromkeys(map(function_of, kernels))))


def _label(kernel: Kernel) -> str:
    core = getattr(kernel, "core", None)
    tf32 = isinstance(core, Core) and core.warps and core.dtype == np.float32
    tile = f" {core.tile.m}x{core.tile.n}" if isinstance(core, Core) else ""
    return f"{type(kernel).__name__} {list(kernel.out.shape)} {'tf32' if tf32 else kernel.out.dtype.name}{tile}"


def figures(
    used: Iterable[Used], arch: str, progress: Callable[[int, int], None] | None = None, threads: int | None = None
) -> list[KernelFigures]:
    """What each function takes on an architecture. Raises BrickError where one does not compile."""
    distinct = list({one.source.name: one for one in used}.values())
    cuts = [*range(0, len(distinct), MERGED), len(distinct)]
    groups = [distinct[first:last] for first, last in pairwise(cuts)]
    texts = ["\n".join(one.source.text for one in group) for group in groups]
    modules = compile_modules(texts, arch, progress, threads)
    return [one for group, module in zip(groups, modules, strict=True) for one in _figures(group, module)]


def _figures(group: Sequence[Used], module: CompiledModule) -> list[KernelFigures]:
    """The figures of functions in one module: what they call apart is told by its name, which is in their text."""
    known = {f.name: f for f in module.functions}
    called = [f for f in module.functions if not f.registers]
    found = []
    for one in group:
        own = known[one.source.name]
        mine = [own, *(f for f in called if _name(f.name) in one.source.text)]
        spills = sum(f.spill_stores + f.spill_loads for f in mine)
        shared = own.shared + one.source.shared
        found.append(KernelFigures(own.name, one.label, own.registers, shared, max(f.stack for f in mine), spills))
    return found


def _name(mangled: str) -> str:
    """The name of a function without namespace: _Z5firsti → first."""
    digits = mangled[2:].lstrip("_")
    length = "".join(c for c in digits[:3] if c.isdigit())
    return digits[len(length) :][: int(length)] if mangled.startswith("_Z") and length else mangled
