"""Whether memory has room for a tensor, and the model may have it, asked before anything is spent on it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from brickrt.graph.allowance import GIB, LESS_MEMORY, allowance
from brickrt.graph.errors import BrickError

UNKNOWN = 8 * GIB
CGROUP = Path("/sys/fs/cgroup")
"""Where a container sees its limits (version 2)."""
POSITION_BYTES = 40
"""What one entry of a table of positions takes: a Python integer and its place in a tuple."""


def available_bytes() -> int:
    """Bytes that this process can still get: what the system has free or in caches, less where a container's or the
    process's limit is lower."""
    free = _from_meminfo()
    if free is None:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else UNKNOWN
    limit, container = _address_limit(), _from_cgroup()
    free = free if container is None else min(free, container)
    return max(0, free if limit is None else min(free, limit - mapped_bytes()))


def _address_limit() -> int | None:
    """Bytes of address space that the process may have; None where there is no limit."""
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def require_room(shape: Sequence[int], dtype: np.dtype, what: str) -> None:
    """Raises BrickError for a tensor, which `what` names, larger than the memory that is available."""
    needed = math.prod(int(d) for d in shape) * dtype.itemsize
    require_bytes(needed, f"{what} {dtype.name}[{','.join(map(str, shape))}]")


def require_bytes(needed: float, what: str) -> None:
    """Raises BrickError for what `what` says in words, where it takes more than the model may, or than is available."""
    allowed = allowance()
    if allowed is not None:
        allowed.require_bytes(needed, what)
    if needed > UNASKED_BYTES and needed > (has := available_bytes()):
        raise _refusal(what, needed, has)


def require_modest(needed: float, what: str) -> None:
    """Raises BrickError for what `what` says in words, where it takes more than the model may, on any machine."""
    allowed = allowance()
    if allowed is not None and needed > UNASKED_BYTES:
        allowed.require_bytes(needed, what)


def require_table_room(entries: int, what: str) -> None:
    """Raises BrickError for tables of positions, which `what` names, larger than the memory that is available."""
    require_bytes(entries * POSITION_BYTES, f"{what} by a table of {entries} positions")


def own_bytes(array: np.ndarray, others: Iterable[np.ndarray]) -> int:
    """The memory of an array; 0 for a view of others, or of one element."""
    if array.base is not None and (0 in array.strides or any(np.may_share_memory(array, one) for one in others)):
        return 0
    return array.nbytes


UNASKED_BYTES = 1 << 24
"""Bytes for which nobody is asked: there is always room for so little, and asking reads a file."""


def _refusal(what: str, needed: float, has: int) -> BrickError:
    return BrickError(
        f"{what} takes {needed:.0f} bytes ({needed / GIB:.1f} GiB), {has / GIB:.1f} GiB of memory are available: "
        + LESS_MEMORY
    )


def _from_meminfo() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def _from_cgroup() -> int | None:
    """What a container's limit leaves, where there is one: files that it has in memory can be given up."""
    try:
        limit, used = ((CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        figures = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    if limit == "max":
        return None
    return int(limit) - int(used) + int(figures["active_file"]) + int(figures["inactive_file"])


def mapped_bytes() -> int:
    """What of the address space this process has already; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
