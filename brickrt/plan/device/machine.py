"""Reads from the operating system what the machine has: cores, caches, memory, clock, instruction set.

On Linux from files below /sys and /proc, on macOS from `sysctl`; what neither tells gets a cautious default.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from brickrt.ops.cpu.amx.permission import may_use_tiles
from brickrt.ops.cpu.isa import AMX_FEATURES, DOUBLE_PUMPED, NARROW_DOUBLE_PUMPED, Isa
from brickrt.plan.device.cgroup import cpu_limit, read_text

CPUS = Path("/sys/devices/system/cpu")
KIB, MIB, GIB = 2**10, 2**20, 2**30
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB}


@dataclass(frozen=True)
class Caches:
    """Bytes of the data caches: `l1` and `l2` are one core's share, `l3` is what all cores have together (0: none)."""

    l1: int = 32 * KIB
    l2: int = 512 * KIB
    l3: int = 0


def usable_cpus() -> tuple[int, ...]:
    """Logical CPUs that this process may run on, one per physical core: one thread fills its arithmetic units."""
    if not hasattr(os, "sched_getaffinity"):
        return tuple(range(_sysctl("hw.perflevel0.physicalcpu") or os.cpu_count() or 1))
    seen: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        seen.setdefault(read_text(CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu), cpu)
    return tuple(seen.values())


def core_count(cpus: Iterable[int]) -> int:
    """Cores to plan for: those of the usable `cpus`, or fewer where a container's quota allows fewer."""
    usable = len(tuple(cpus))
    return max(1, min(usable, cpu_limit() or usable))


def caches(cpus: tuple[int, ...]) -> Caches:
    """Data caches of these CPUs, each shared cache counted once."""
    found: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        for index in (CPUS / f"cpu{cpu}/cache").glob("index*"):
            level, size = read_text(index / "level"), _bytes(read_text(index / "size"))
            if level.isdigit() and size and read_text(index / "type") != "Instruction":
                found[int(level), read_text(index / "shared_cpu_list") or str(cpu)] = size
    total = {level: sum(size for (at, _), size in found.items() if at == level) for level in (1, 2, 3)}
    if not total[1]:
        return _caches_elsewhere(len(cpus))
    share = [total[level] // len(cpus) for level in (1, 2)]
    return Caches(share[0], share[1] or Caches.l2, total[3])


def _caches_elsewhere(cores: int) -> Caches:
    l1, l2 = (_sysctl(f"hw.perflevel0.{name}") or _sysctl(f"hw.{name}") for name in ("l1dcachesize", "l2cachesize"))
    sharers = _sysctl("hw.perflevel0.cpusperl2") or 1
    return Caches(l1 or Caches.l1, (l2 or Caches.l2) // min(sharers, cores), _sysctl("hw.l3cachesize"))


def memory_bytes() -> int:
    """Physical memory, or less where a container's limit is lower."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        total = _sysctl("hw.memsize") or 8 * GIB
    return min(total, _bytes(read_text(Path("/sys/fs/cgroup/memory.max"))) or total)


def clock_ghz() -> float:
    """Highest clock of the first core, in GHz; 2.5 where it is not known."""
    khz = read_text(CPUS / "cpu0/cpufreq/cpuinfo_max_freq")
    if khz.isdigit():
        return int(khz) / 1e6
    mhz = re.search(r"^cpu MHz\s*:\s*([\d.]+)", read_text(Path("/proc/cpuinfo")), re.MULTILINE)
    if mhz:
        return float(mhz[1]) / 1e3
    return _sysctl("hw.cpufrequency_max") / 1e9 or 2.5


def instruction_set() -> str:
    """The widest of "avx512", "avx2", "neon" that the host runs, else "generic"."""
    from llvmlite import binding

    if platform.machine().lower() in ("arm64", "aarch64"):
        return "neon"
    features = binding.get_host_cpu_features()
    if all(features.get(f) for f in ("avx512f", "avx512dq", "avx512bw", "avx512vl")):
        return "avx512"
    return "avx2" if features.get("avx2") and features.get("fma") else "generic"


def double_pumped(isa: str) -> bool:
    """Whether the host splits the vector operations of an instruction set in two, as Zen 4 does those of 512 bits."""
    return isa == "avx512" and one_a_cycle(isa)


def one_a_cycle(isa: str) -> bool:
    """Whether the host is known to multiply and add one vector of an instruction set a cycle."""
    names = {"avx512": DOUBLE_PUMPED, "avx2": NARROW_DOUBLE_PUMPED}.get(isa)
    if names is None:
        return False
    from llvmlite import binding

    return binding.get_host_cpu_name() in names


def paces_weights(isa: str) -> bool:
    """Whether kernels for the host, in vectors of an instruction set, ask for weights at an even pace."""
    if isa != "avx512":
        return False
    from llvmlite import binding

    return Isa(16, 32, binding.get_host_cpu_name()).paces_weights


def multiplies_bytes(isa: str) -> bool:
    """Whether kernels for the host, in vectors of an instruction set, add products of four bytes by one instruction
    (VNNI). Those that are restricted to a lesser set than the host's have none."""
    name = {"avx512": "avx512vnni", "avx2": "avxvnni"}.get(isa)
    if name is None or isa != instruction_set():
        return False
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get(name))


def bfloat16_products(isa: str) -> int:
    """How many products of bfloat16 the host adds in the time of one of float32, in vectors of an instruction set.
    Intel's cores have the instruction, which adds two, in one of their two units."""
    if isa != "avx512" or paces_weights(isa):
        return 1
    from llvmlite import binding

    return 2 if binding.get_host_cpu_features().get("avx512bf16") else 1


def multiplies_tiles(isa: str) -> bool:
    """Whether the host multiplies tiles (AMX) beside an instruction set, and this process may use them."""
    if isa != "avx512":
        return False
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return all(features.get(name.removeprefix("+")) for name in AMX_FEATURES) and may_use_tiles()


def cpu_name() -> str:
    """The processor's marketing name where the system has one, else that of its architecture."""
    model = re.search(r"^model name\s*:\s*(.+)$", read_text(Path("/proc/cpuinfo")), re.MULTILINE)
    return model[1].strip() if model else platform.processor() or platform.machine()


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * _UNITS[match[2]] if match else 0


def _sysctl(name: str) -> int:
    """A number from macOS `sysctl`; 0 where there is none."""
    if sys.platform != "darwin":
        return 0
    import subprocess  # which no other system needs, and which takes a while to import

    done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.stdout.strip().isdigit() else 0
