"""What cuDNN is told of a device that is not here, in the words of its device properties.

Figures that planning knows come from PRESETS. Of the others, those by compute capability are from the table "Technical
Specifications per Compute Capability" of the CUDA C++ Programming Guide, and clocks and widths of the memory bus from
NVIDIA's data sheets: bus × 2 × memory clock is the bandwidth that they state (4.9, 3.35, 1.56 and 0.86 TB/s).
"""

from __future__ import annotations

from typing import Any

from brickrt.plan.device.device_spec import PRESETS

CUDA = 13_000  # version of runtime and driver, as the runtime encodes it
CLOCKS = {  # boost clock of multiprocessors and clock of memory in kHz, bits of the memory bus
    "h200": (1_980_000, 3_201_000, 6144),
    "h100": (1_980_000, 2_619_000, 5120),
    "a100": (1_410_000, 1_215_000, 5120),
    "l40s": (2_520_000, 9_001_000, 384),
}
RESIDENT = {  # by compute capability × 100: threads and blocks that a multiprocessor holds
    800: (2048, 32),
    890: (1536, 24),
    900: (2048, 32),
}
DESCRIBED = tuple(CLOCKS)


def properties(name: str) -> dict[str, Any]:
    """The device properties of one of DESCRIBED, as `cudnn.create_device_properties` reads them."""
    spec, (clock, memory_clock, bus) = PRESETS[name], CLOCKS[name]
    capability = int(spec.isa.removeprefix("sm_")) * 10
    threads, blocks = RESIDENT[capability]
    return {
        "deviceName": spec.name,
        "deviceVer": capability,
        "driverVer": CUDA,
        "multiProcessorCount": spec.cores,
        "smCountOrigin": 0,  # all multiprocessors of the device, no part of it
        "l2CacheSize": spec.l2 * spec.cores,
        "totalGlobalMem": spec.memory,
        "maxSharedMemoryPerBlockOptin": spec.l1,
        "smClockRateKHz": clock,
        "memClockRateKHz": memory_clock,
        "memoryBusWidth": bus,
        "maxThreadsPerSM": threads,
        "maxCtasPerSM": blocks,
        # the same for all compute capabilities from 8.0 to 9.0
        "maxGridSize": [2**31 - 1, 65_535, 65_535],
        "maxBlockSize": [1024, 1024, 64],
        "maxThreadsPerBlock": 1024,
        "regsPerBlock": 65_536,
        "maxRegistersPerSM": 65_536,
        "maxSharedMemoryPerBlock": 48 << 10,
        "reservedSharedMemoryPerBlock": 1 << 10,
        "oversizedSharedMemoryPerBlock": 0,
        "warpSize": 32,
        "supportCoopLaunch": 1,
        "isTccDriver": 0,
        "pciDeviceId": 0,
        "cudaDeviceId": 0,
        "version": 1,
    }


def attributes(name: str) -> dict[int, int]:
    """Attributes by their numbers in `enum cudaDeviceAttr`, for what the fake runtime is asked."""
    known = properties(name)
    capability = known["deviceVer"] // 10
    return {
        8: known["maxSharedMemoryPerBlock"],
        10: known["warpSize"],
        12: known["regsPerBlock"],
        13: known["smClockRateKHz"],
        16: known["multiProcessorCount"],
        36: known["memClockRateKHz"],
        37: known["memoryBusWidth"],
        38: known["l2CacheSize"],
        39: known["maxThreadsPerSM"],
        75: capability // 10,
        76: capability % 10,
        81: known["maxSharedMemoryPerBlockOptin"] + known["reservedSharedMemoryPerBlock"],
        82: known["maxRegistersPerSM"],
        95: known["supportCoopLaunch"],
        97: known["maxSharedMemoryPerBlockOptin"],
        106: known["maxCtasPerSM"],
        111: known["reservedSharedMemoryPerBlock"],
    }
