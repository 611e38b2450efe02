"""What planning knows of a device: sizes, speeds, and the constants of its rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Literal

from brickrt.plan.device import machine

# float32 vector lanes and vector registers of each instruction set.
ISAS = {"avx512": (16, 32), "avx2": (8, 16), "neon": (4, 32), "generic": (4, 16)}

MEMORY_SCALING = 0.75  # so many cores draw from memory what cores**MEMORY_SCALING times one does


@dataclass(frozen=True)
class DeviceSpec:
    """A device as planning sees it.

    Sizes are in bytes. `lanes` are the float32 elements of a vector. `bandwidth` is in GB/s of all cores together, by
    level ("l2", "l3", "memory", and of a GPU "shared"); `core_bandwidth` that of one core running alone (where it is
    not known, an equal share of all). Products of the types that `matrix_gflops_per_core` names ("tf32", "float16",
    "bfloat16") run at that peak, all else at `peak_gflops_per_core`.

    `double_pumped` is set where a core splits its vector operations in two, as Zen 4 does those of 512 bits: one
    multiply-add a cycle, not two. Kernels come nearer to that lower peak.

    `one_a_cycle` is set where it multiplies and adds one vector a cycle for any reason: what is read beside matters
    less then.

    `paces_weights` is set where two multiply-adds of 16 lanes a cycle outrun memory (`Isa.paces_weights`).

    `pairs` is set where a core adds beside multiply-adds, so that products are faster with most elements of K paired
    (`ops/cpu/paired/`).

    `tiles` is set where a core has registers of whole tiles and multiplies them (`ops/cpu/amx/`).

    `byte_products` is how many products of bytes a core adds in the time of one in float32, `bfloat16_products` how
    many of bfloat16.

    A core of a GPU is a streaming multiprocessor: `l1` is its shared memory, `l2` its share of the chip's cache.
    """

    name: str
    kind: Literal["cpu", "cuda"]
    isa: str
    cores: int
    lanes: int
    registers: int
    l1: int
    l2: int
    l3: int
    memory: int
    peak_gflops_per_core: float
    bandwidth: Mapping[str, float] = field(hash=False)
    core_bandwidth: Mapping[str, float] = field(default_factory=dict, hash=False)
    matrix_gflops_per_core: Mapping[str, float] = field(default_factory=dict, hash=False)  # of matrix units, by type
    double_pumped: bool = False
    one_a_cycle: bool = False
    paces_weights: bool = False
    pairs: bool = False
    tiles: bool = False
    byte_products: int = 1
    bfloat16_products: int = 1
    task_overhead_us: float = 1.0  # taking a task, checking what it waits for, publishing it
    call_overhead_us: float = 0.3  # one kernel call inside a task
    min_task_us: float = 30.0  # a layer is not cut in smaller tasks
    tasks_per_core: int = 4  # tasks a layer is cut in, so that uneven ones even out
    tau: int = 2**12  # most bricks that the edge rule asks for (BrickDL §3.3)
    edges: tuple[int, ...] = (4, 8, 16, 32)
    row_edges: tuple[int, ...] = (32, 64, 128, 256)  # of matrices: fewer rows would stream the other operand too often
    delta_limit: float = 0.15  # growth by halos above which bricks are memoized
    max_layers: int = 3  # convolutions and products in one subgraph
    margin: float = 0.05  # share of time that a merge must save; where negative, it may take so much more
    cache_share: float = 0.7  # share of l2 that the working set of a brick may take
    spill_limit: float = 3.0  # multiples of l2 that a brick may touch: measured, larger ones run at the speed of layers

    @property
    def integer_products(self) -> bool:
        """Whether quantized layers are multiplied as integers: where that was measured to be faster than in float32."""
        return self.kind == "cpu" and self.isa != "neon"

    @property
    def gains_by_bfloat16(self) -> bool:
        """Whether products of bfloat16 are faster than those of float32."""
        return self.kind != "cpu" or self.tiles or self.bfloat16_products > 1

    @property
    def shares_chunks(self) -> bool:
        """Whether tiles of pixels share chunks of weights in L1 (`Isa.shares_chunks`)."""
        return self.paces_weights or self.narrow

    @property
    def narrow(self) -> bool:
        """Whether vectors have eight lanes, of which tiles in 16 registers have few multiply-adds a step."""
        return self.isa == "avx2"

    @property
    def cpu_operators(self) -> bool:
        """Whether there are kernels of operators that only CPUs have any of: recurrent layers, sums so far, images at
        points."""
        return self.kind == "cpu"

    @property
    def fast_bytes(self) -> int:
        """Cache that one core has to itself: its L2 and its share of L3."""
        return self.l2 + self.l3 // self.cores

    @property
    def brick_bytes(self) -> int:
        """Bytes that a brick of a merged subgraph may touch at most."""
        return int(min(self.cache_share * self.fast_bytes, self.spill_limit * self.l2))

    @property
    def shared(self) -> tuple[str, int]:
        """The last cache level before memory, and its bytes: all cores share it."""
        return ("l3", self.l3) if self.l3 else ("l2", self.l2 * self.cores)

    def bandwidth_at(self, level: str, cores: int) -> float:
        """GB/s that so many busy cores draw from a level together."""
        alone = self.core_bandwidth.get(level, self.bandwidth[level] / self.cores)
        return min(self.bandwidth[level], alone * cores)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON has them."""
        mappings = ("bandwidth", "core_bandwidth", "matrix_gflops_per_core")
        return asdict(self) | {name: dict(getattr(self, name)) for name in mappings}


@cache
def host_device(isa: str | None = None) -> DeviceSpec:
    """The CPU this runs on; `isa` names another instruction set to plan for. Raises ValueError for an unknown one."""
    if isa is not None and isa not in ISAS:
        raise ValueError(f"instruction set '{isa}' is unknown: use one of {', '.join(ISAS)}")
    isa = isa or machine.instruction_set()
    lanes, registers = ISAS[isa]
    cpus, double_pumped, one_a_cycle = machine.usable_cpus(), machine.double_pumped(isa), machine.one_a_cycle(isa)
    cores, cached, ghz = machine.core_count(cpus), machine.caches(cpus), machine.clock_ghz()
    return DeviceSpec(
        name=machine.cpu_name(),
        kind="cpu",
        isa=isa,
        cores=cores,
        lanes=lanes,
        registers=registers,
        l1=cached.l1,
        l2=cached.l2,
        l3=cached.l3,
        memory=machine.memory_bytes(),
        peak_gflops_per_core=lanes * 2 * (1 if one_a_cycle else 2) * ghz,  # per unit and lane a product and a sum
        bandwidth=typical_bandwidth(cores, lanes, ghz),
        tau=max(64, 16 * cores),
        double_pumped=double_pumped,
        one_a_cycle=one_a_cycle,
        paces_weights=machine.paces_weights(isa),
        pairs=double_pumped,  # Zen 4, which is known for it; of others it is measured
        tiles=machine.multiplies_tiles(isa),
        byte_products=4 if machine.multiplies_bytes(isa) else 1,
        bfloat16_products=machine.bfloat16_products(isa),
        margin=0.02,  # measured: merges modelled 3 % faster are, those modelled level may take a tenth longer
    )


def typical_bandwidth(cores: int, lanes: int, ghz: float) -> dict[str, float]:
    """Rules of thumb, in GB/s: 0.4 vectors (L2) or 10 bytes (L3) a cycle and core; memory grows slower than cores."""
    return {"l2": 0.4 * 4 * lanes * ghz * cores, "l3": 10 * ghz * cores, "memory": 12 * cores**MEMORY_SCALING}


def _gpu(
    name: str, isa: str, multiprocessors: int, shared_kib: int, l2_mib: int, memory_gib: int, **speeds: Any
) -> DeviceSpec:
    """A GPU by its maker's figures, of which memory reaches nine tenths; nothing was measured."""
    return DeviceSpec(
        name=name,
        kind="cuda",
        isa=isa,
        cores=multiprocessors,
        lanes=32,
        registers=256,
        l1=shared_kib * machine.KIB,
        l2=l2_mib * machine.MIB // multiprocessors,
        l3=0,
        memory=memory_gib * machine.GIB,
        task_overhead_us=2.0,
        min_task_us=5.0,
        tasks_per_core=2,
        **speeds,
    )


def _bandwidth(shared: float, l2: float, memory: float) -> dict[str, float]:
    return {"shared": shared, "l2": l2, "l3": l2, "memory": memory}


def _matrix(tf32: float, half: float) -> dict[str, float]:
    return {"tf32": tf32, "float16": half, "bfloat16": half}


_HOPPER = _matrix(3700.0, 7500.0)


PRESETS = {
    "h200": _gpu(
        "NVIDIA H200", "sm_90", 132, 227, 60, 141,
        peak_gflops_per_core=500.0, matrix_gflops_per_core=_HOPPER, bandwidth=_bandwidth(33000.0, 8000.0, 4300.0),
    ),
    "h100": _gpu(
        "NVIDIA H100", "sm_90", 132, 227, 50, 80,
        peak_gflops_per_core=500.0, matrix_gflops_per_core=_HOPPER, bandwidth=_bandwidth(33000.0, 8000.0, 3000.0),
    ),
    "a100": _gpu(
        "NVIDIA A100", "sm_80", 108, 163, 40, 40,
        peak_gflops_per_core=180.0, matrix_gflops_per_core=_matrix(1440.0, 2890.0),
        bandwidth=_bandwidth(19000.0, 4500.0, 1400.0),
    ),
    "l40s": _gpu(
        "NVIDIA L40S", "sm_89", 142, 99, 96, 48,
        peak_gflops_per_core=640.0, matrix_gflops_per_core=_matrix(1290.0, 2550.0),
        bandwidth=_bandwidth(45000.0, 5500.0, 780.0),
    ),
    "rtx4090": _gpu(
        "NVIDIA GeForce RTX 4090", "sm_89", 128, 99, 72, 24,
        peak_gflops_per_core=640.0, matrix_gflops_per_core=_matrix(640.0, 1290.0),
        bandwidth=_bandwidth(41000.0, 5000.0, 920.0),
    ),
}  # fmt: skip


def device_named(name: str) -> DeviceSpec:
    """The device of a name: "cpu" is this machine, others are in PRESETS. Raises ValueError for an unknown one."""
    if name == "cpu":
        return host_device()
    if name not in PRESETS:
        raise ValueError(f"device '{name}' is unknown: use one of cpu, {', '.join(PRESETS)}")
    return PRESETS[name]
