"""How compiled code waits for a word to change: it looks again at once, later yields the core between looks, then
sleeps."""

from __future__ import annotations

import platform

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I32, I64, PTR, VOID
from brickrt.runtime.cpu.compile.native_function import NativeFunction

PAUSES = 200  # looks with a pause in between: some microseconds, about what giving the core away costs
YIELDS = 2000  # looks after which others have had the core; a wait of a millisecond is worth sleeping
NAP_NS = 30_000
_PAUSE: dict[str, tuple[str, tuple[ir.Constant, ...]]] = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "amd64": ("llvm.x86.sse2.pause", ()),
}
_PAUSE |= dict.fromkeys(("aarch64", "arm64"), ("llvm.aarch64.hint", (I32(1),)))


def pause(f: NativeFunction) -> None:
    """Emits the instruction that tells the core that this loop waits, where it has one."""
    name, args = _PAUSE.get(platform.machine().lower(), ("", ()))
    if name:
        f.intrinsic(name, VOID, *args)


def rest(f: NativeFunction, looks: ir.Value) -> None:
    """Emits the pause before the next look, after `looks` (i64) that found nothing."""
    nap = f.local(I64, count=2)
    brief = f.b.icmp_signed("<=", looks, I64(PAUSES))
    with f.b.if_else(brief) as (short, longer):
        with short:
            pause(f)
        with longer, f.b.if_else(f.b.icmp_signed("<=", looks, I64(YIELDS))) as (polite, tired):
            with polite:
                f.intrinsic("sched_yield", I32)
            with tired:
                f.put(0, nap, 0)
                f.put(NAP_NS, nap, 1)
                f.intrinsic("nanosleep", I32, nap, ir.Constant(PTR, None))
