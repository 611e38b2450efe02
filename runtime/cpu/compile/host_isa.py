"""The instruction set to compile for."""

from __future__ import annotations

from functools import cache

from llvmlite import binding as llvm

from brickrt.ops.cpu.isa import Isa
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.device.machine import instruction_set

# LLVM's processor and features for instruction sets that a plan may restrict kernels to.
LESSER = {"avx2": ("haswell", "+avx2,+fma,+f16c"), "generic": ("x86-64", "")}


def host_isa(spec: DeviceSpec) -> Isa:
    """The host's processor, or a lesser one where the plan is for fewer lanes than the host has."""
    return Isa(spec.lanes, spec.registers, *_processor(spec.isa, spec.tiles))


@cache
def _processor(isa: str, tiles: bool) -> tuple[str, str]:
    """Its name and features, those of AMX only if `tiles`; to ask LLVM takes half a millisecond, which every program
    would."""
    if isa == instruction_set() or isa not in LESSER:
        features = llvm.get_host_cpu_features().flatten().split(",")
        known = (f"-{name[1:]}" if name.startswith("+amx") and not tiles else name for name in features)
        return llvm.get_host_cpu_name(), ",".join(known)
    return LESSER[isa]
