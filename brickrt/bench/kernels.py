"""The kernel functions of the CUDA programs of networks, compiled for devices that need not be here: what they take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import onnx

import brickrt.ops.cuda.families  # noqa: F401  (makes the kernels known)
from brickrt.graph.precision import lowered
from brickrt.graph.source import load
from brickrt.graph.specialize import first_stage, specialize
from brickrt.ops.cuda.kernel import THREADS, Kernel
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.device import DeviceSpec
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from brickrt.runtime.cuda.build import Units
from brickrt.runtime.cuda.compile import Module, compile_modules
from brickrt.runtime.cuda.launches import make_launches
from brickrt.runtime.cuda.records import Records
from brickrt.runtime.cuda.sources import Source
from brickrt.runtime.lower import lower

GROUP = 1024  # tasks of a group of memoized bricks
MERGED = 16  # functions that are compiled together


@dataclass(frozen=True)
class Used:
    """A kernel function and what it computes, such as "ConvKernel [1, 64, 56, 56] float32"."""

    source: Source
    label: str


@dataclass(frozen=True)
class Figures:
    """What a kernel function takes; spills are bytes stored and loaded by it and by the functions that it calls."""

    name: str
    label: str
    registers: int
    shared: int
    stack: int
    spills: int


def functions_of(model: onnx.ModelProto, device: DeviceSpec, precision: str) -> list[Used]:
    """All kernel functions of a model's programs on a device, those of each way to launch them."""
    source = load(model)
    types = {
        name: TensorType(_extents(given.shape), given.dtype) for name, given in source.inputs.items() if given.dtype
    }
    special = specialize(first_stage(source), types, {})
    plan = make_plan(lowered(special.graph, precision), device, PlanOptions(precision=precision))
    tasks = lower(plan)
    records, found = Records(tasks), dict[str, Used]()
    for persistent in (False, True):
        launches = make_launches(tasks, persistent, GROUP)
        units = Units(records, launches, THREADS)
        sources = list(units.sources)
        for launch, k in zip(launches, units.of, strict=True):
            kernels = [rows.kernel for i in launch.steps for rows in records.of(i)]
            label = " + ".join(dict.fromkeys(map(_label, kernels)))
            found.setdefault(sources[k].name, Used(sources[k], label))
    return list(found.values())


def _extents(shape: Sequence[object] | None) -> Shape:
    """Those of an input, all known."""
    return tuple(e for e in shape or () if isinstance(e, int))


def _label(kernel: Kernel) -> str:
    return f"{type(kernel).__name__} {list(kernel.out.shape)} {kernel.out.dtype.name}"


def figures(
    used: Iterable[Used], arch: str, progress: Callable[[int, int], None] | None = None, threads: int | None = None
) -> list[Figures]:
    """What each function takes on an architecture. Raises BrickError where one does not compile."""
    distinct = list({one.source.name: one for one in used}.values())
    cuts = [*range(0, len(distinct), MERGED), len(distinct)]
    groups = [distinct[first:last] for first, last in pairwise(cuts)]
    texts = ["\n".join(one.source.text for one in group) for group in groups]
    modules = compile_modules(texts, arch, progress, threads)
    return [one for group, module in zip(groups, modules, strict=True) for one in _figures(group, module)]


def _figures(group: Sequence[Used], module: Module) -> list[Figures]:
    """Of functions in one module: what they call apart is told by its name, which is in their text."""
    known = {f.name: f for f in module.functions}
    called = [f for f in module.functions if not f.registers]
    found = []
    for one in group:
        own = known[one.source.name]
        mine = [own, *(f for f in called if _name(f.name) in one.source.text)]
        spills = sum(f.spill_stores + f.spill_loads for f in mine)
        shared = own.shared + one.source.shared
        found.append(Figures(own.name, one.label, own.registers, shared, max(f.stack for f in mine), spills))
    return found


def _name(mangled: str) -> str:
    """The name of a function without namespace: _Z5firsti → first."""
    digits = mangled[2:].lstrip("_")
    length = "".join(c for c in digits[:3] if c.isdigit())
    return digits[len(length) :][: int(length)] if mangled.startswith("_Z") and length else mangled
