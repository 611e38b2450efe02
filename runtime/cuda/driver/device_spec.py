"""From what CUDA says of a GPU to the planner's `DeviceSpec`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from brickrt.plan.device.device_spec import PRESETS, DeviceSpec

LEAST_CAPABILITY = 8, 0  # compute capability of the kernels' asynchronous copies and matrix products
MEMORY_SHARE = 0.87  # of the memory's own bandwidth that copies reach
# Per multiprocessor and cycle, by compute capability: float32 operations, those of matrix products of tf32 and of half
# types, and about how many bytes the L2 cache gives.
RATES = {
    (8, 0): (128, 1024, 2048, 30),
    (8, 6): (256, 512, 1024, 16),
    (8, 9): (256, 512, 1024, 16),
    (9, 0): (256, 2048, 4096, 30),
    (10, 0): (256, 4096, 8192, 30),
    (12, 0): (256, 512, 1024, 16),
}
SHARED_BYTES = 128  # of shared memory, per multiprocessor and cycle
GEFORCE = 0.5  # of these products' rate, with sums in float32, that such boards have


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
    flops, tf32, half, near = RATES[
        max((known for known in RATES if known <= found.capability), default=LEAST_CAPABILITY)
    ]
    matrix = ghz * (GEFORCE if "GeForce" in found.name else 1.0)
    l2 = near * ghz * found.multiprocessors
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
        matrix_gflops_per_core={"tf32": tf32 * matrix, "float16": half * matrix, "bfloat16": half * matrix},
        bandwidth={"shared": SHARED_BYTES * ghz * found.multiprocessors, "l2": l2, "l3": l2, "memory": memory},
    )
