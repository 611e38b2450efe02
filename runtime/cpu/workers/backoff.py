"""How compiled code waits: it looks again at once for a while, then lets others have the core, then takes naps."""

from __future__ import annotations

import platform

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, I64, PTR, VOID

PAUSES = 200  # looks with a pause in between: some microseconds, about what giving the core away costs
YIELDS = 2000  # looks after which others have had the core; a wait of a millisecond is worth sleeping
NAP_NS = 30_000
_PAUSE: dict[str, tuple[str, tuple[ir.Constant, ...]]] = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "amd64": ("llvm.x86.sse2.pause", ()),
}
_PAUSE |= dict.fromkeys(("aarch64", "arm64"), ("llvm.aarch64.hint", (I32(1),)))


def pause(f: FunctionEmitter) -> None:
    """Tells the core that this is a loop that waits."""
    name, args = _PAUSE.get(platform.machine().lower(), ("", ()))
    if name:
        f.intrinsic(name, VOID, *args)


def rest(f: FunctionEmitter, looks: ir.Value) -> None:
    """What to do before the next look, after `looks` (i64) that found nothing."""
    nap = f.local(I64, count=2)
    brief = f.b.icmp_signed("<=", looks, I64(PAUSES))
    with f.b.if_else(brief) as (short, longer):
        with short:
            pause(f)
        with longer, f.b.if_else(f.b.icmp_signed("<=", looks, I64(YIELDS))) as (polite, tired):
            with polite:
                f.intrinsic("sched_yield", I32)
            with tired:
                f.b.store(I64(0), nap)
                f.b.store(I64(NAP_NS), f.b.gep(nap, [I64(1)], source_etype=I64))
                f.intrinsic("nanosleep", I32, nap, ir.Constant(PTR, None))
