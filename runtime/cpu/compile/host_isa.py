"""The instruction set to compile for."""

from __future__ import annotations

from llvmlite import binding as llvm

from brickrt.ops.cpu.isa import Isa
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.device.machine import instruction_set

# LLVM's processor and features for instruction sets that a plan may restrict kernels to.
LESSER = {"avx2": ("haswell", "+avx2,+fma,+f16c"), "generic": ("x86-64", "")}


def host_isa(spec: DeviceSpec) -> Isa:
    """The host's processor, or a lesser one where the plan is for fewer lanes than the host has."""
    if spec.isa == instruction_set() or spec.isa not in LESSER:
        return Isa(spec.lanes, spec.registers, llvm.get_host_cpu_name(), host_features(spec.tiles))
    return Isa(spec.lanes, spec.registers, *LESSER[spec.isa])


def host_features(tiles: bool) -> str:
    """The host's features as LLVM names them, those of AMX only if `tiles`."""
    features = llvm.get_host_cpu_features().flatten().split(",")
    return ",".join(f"-{name[1:]}" if name.startswith("+amx") and not tiles else name for name in features)
