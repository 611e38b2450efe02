"""From what CUDA says of a GPU to the planner's `DeviceSpec`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from brickrt.plan.device import PRESETS, DeviceSpec

LEAST = 8, 0  # compute capability of the kernels' asynchronous copies and matrix products
L2_BYTES = 30  # per multiprocessor and cycle: about what Ampere and Hopper reach
MEMORY_SHARE = 0.87  # of the memory's own bandwidth that copies reach
FLOPS = {  # per multiprocessor and cycle: float32; matrix products of tf32 and of half types
    (8, 0): (128, 1024, 2048),
    (8, 6): (256, 512, 1024),
    (9, 0): (256, 2048, 4096),
    (10, 0): (256, 4096, 8192),
    (12, 0): (256, 512, 1024),
}


@dataclass(frozen=True)
class Properties:
    """Sizes in bytes, clocks in kHz, the bus in bits."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared: int  # that a block may have
    l2: int
    memory: int
    clock: int
    memory_clock: int
    bus: int


def spec_of(found: Properties) -> DeviceSpec:
    """Sizes are the device's; speeds follow from clocks and the generation, the latest known where it is newer."""
    ghz = found.clock / 1e6
    flops, tf32, half = FLOPS[max((known for known in FLOPS if known <= found.capability), default=LEAST)]
    l2 = L2_BYTES * ghz * found.multiprocessors
    memory = MEMORY_SHARE * 2 * found.memory_clock * 1e3 * found.bus / 8 / 1e9
    return replace(
        PRESETS["h200"],
        name=found.name,
        isa="sm_{}{}".format(*found.capability),
        cores=found.multiprocessors,
        l1=found.shared,
        l2=found.l2 // found.multiprocessors,
        memory=found.memory,
        peak_gflops_per_core=flops * ghz,
        matrix_gflops_per_core={"tf32": tf32 * ghz, "float16": half * ghz, "bfloat16": half * ghz},
        bandwidth={"l2": l2, "l3": l2, "memory": memory},
    )
