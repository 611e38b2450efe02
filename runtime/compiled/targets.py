"""Processors that a model can be compiled for: this one, or all that have a set of instructions."""

from __future__ import annotations

from dataclasses import dataclass

from brickrt.graph.errors import BrickError
from brickrt.ops.cpu.isa import Isa
from brickrt.plan.device.device_spec import ISAS, host_device
from brickrt.plan.device.machine import instruction_set
from brickrt.runtime.compiled.processor import MACHINE, extensions, machine
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.engines import Engine, choose_engine, planner

_AVX2 = frozenset("cx16 lahf_lm pni ssse3 sse4_1 sse4_2 popcnt avx avx2 fma f16c bmi1 bmi2 abm movbe".split())
_AVX512 = frozenset("avx512f avx512cd avx512bw avx512dq avx512vl adx aes pclmulqdq".split())


@dataclass(frozen=True)
class Target:
    """What code is compiled for: `needs` are extensions of the processor, `engine` plans for it."""

    name: str
    isa: Isa
    needs: frozenset[str]
    engine: Engine


@dataclass(frozen=True)
class _Portable:
    cpu: str
    features: str
    needs: frozenset[str]


_PORTABLE = {
    "avx512": _Portable("skylake-avx512", "-prefer-256-bit", _AVX2 | _AVX512),
    "avx2": _Portable("haswell", "+avx2,+fma,+f16c", _AVX2),
    "generic": _Portable("x86-64", "", frozenset()),
}
TARGETS = ("host", *_PORTABLE, "neon")


def target_named(name: str) -> Target:
    """What `--target` says. Raises BrickError for one that is unknown, or that this machine does not compile for."""
    if name not in TARGETS:
        raise BrickError(f"target '{name}' is unknown: use one of {', '.join(TARGETS)}")
    if machine() != f"{MACHINE} Linux":
        raise BrickError(f"compiled files are for {MACHINE} Linux, this is {machine()}: run the .onnx file")
    if name == "neon":
        raise BrickError(f"compiled files are for {MACHINE} Linux, target neon is for ARM64: run the .onnx file there")
    if name == "host":
        engine = choose_engine("cpu")
        return Target(name, host_isa(engine.spec), extensions(), engine)
    known = _PORTABLE[name]
    here = known.needs <= extensions() and list(ISAS).index(instruction_set()) <= list(ISAS).index(name)
    engine = choose_engine("cpu", isa=name) if here else planner(host_device(name))
    return Target(name, Isa(*ISAS[name], known.cpu, known.features), known.needs, engine)
