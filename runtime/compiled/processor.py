"""Which processors compiled code runs on: architecture and extensions, as Linux names them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from brickrt.ops.cpu.amx.permission import may_use_tiles

MACHINE = "x86_64"
"""The architecture that code is compiled into files for."""
_CODE = re.compile(
    r"sse.*|pni|ssse3|avx.*|fma4?|f16c|bmi[12]|abm|popcnt|movbe|adx|aes|pclmulqdq|sha_ni|sha512|sm[34]|vaes|vpclmulqdq"
    r"|gfni|amx.*|xop|tbm|cx16|lahf_lm|cmov|rdpid|movdiri|movdir64b|serialize|3dnow.*"
)
AMX = "amx"  # what its flags and features begin with
"""Extensions that a compiler may use by itself; other flags say what an operating system needs."""


def machine() -> str:
    """The architecture of this process, with its system: 'x86_64 Linux'."""
    if not hasattr(os, "uname"):
        return "Windows"
    system = os.uname()
    return f"{system.machine} {system.sysname}"


def extensions() -> frozenset[str]:
    """The extensions of the processor that compilers may use, those of AMX if the system lets this process; none where
    the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    found = flags[1].split() if flags else []
    tiles = any(flag.startswith(AMX) for flag in found) and may_use_tiles()
    return frozenset(flag for flag in found if _CODE.fullmatch(flag) and (tiles or not flag.startswith(AMX)))


def lacking(needs: Iterable[str]) -> list[str]:
    """The extensions that this processor does not have."""
    return sorted(set(needs) - extensions())
