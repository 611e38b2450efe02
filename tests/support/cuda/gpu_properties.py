"""What GPUs say of themselves, by the name of their preset: nominal sizes, and clocks of the makers' data sheets."""

from __future__ import annotations

from brickrt.runtime.cuda.driver.device_spec import Properties

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

PROPERTIES = {
    "h200": Properties("NVIDIA H200", (9, 0), 132, 227 * KIB, 60 * MIB, 141 * GIB, 1_980_000, 3_201_000, 6144),
    "h100": Properties("NVIDIA H100", (9, 0), 132, 227 * KIB, 50 * MIB, 80 * GIB, 1_980_000, 2_619_000, 5120),
    "a100": Properties("NVIDIA A100", (8, 0), 108, 163 * KIB, 40 * MIB, 40 * GIB, 1_410_000, 1_215_000, 5120),
    "l40s": Properties("NVIDIA L40S", (8, 9), 142, 99 * KIB, 96 * MIB, 48 * GIB, 2_520_000, 9_001_000, 384),
    "rtx4090": Properties(
        "NVIDIA GeForce RTX 4090", (8, 9), 128, 99 * KIB, 72 * MIB, 24 * GIB, 2_520_000, 10_501_000, 384
    ),
}
