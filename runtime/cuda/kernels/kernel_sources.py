"""The texts that a program is compiled from: one per distinct kernel function, each complete, so that they compile in
parallel and programs that have equal ones share them.

Names are digests of texts: what two programs have in common has one name in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from brickrt.ops.cuda.kernel import BLOCKS, Kernel
from brickrt.ops.cuda.shared_memory import RESERVED, of_multiprocessor
from brickrt.plan.geometry.arena_packing import aligned
from brickrt.runtime.cuda.kernels.context_header import header
from brickrt.runtime.cuda.kernels.kernel_context import SHARED_BYTES

BY_TICKETS, IN_TURN = "run_by_tickets(c, first, count, launch,", "run_in_turn(c, first, count, launch,"
_NAME = "brick_function_name"  # stands for the name until the text is known


@dataclass(frozen=True)
class KernelSource:
    """C++ of one kernel function, its name, the threads of its blocks and the dynamic shared memory they need."""

    name: str
    text: str
    threads: int
    shared: int


@dataclass(frozen=True)
class FunctionSource:
    """C++ of a device function, without its name, and the headers it includes."""

    text: str
    headers: tuple[str, ...]
    shared: int

    @property
    def name(self) -> str:
        """A name that no other text has."""
        return "box_" + _digest(self.text)

    @property
    def named(self) -> str:
        """The text, which a translation unit may have twice."""
        return f"#ifndef HAS_{self.name}\n#define HAS_{self.name}\n{self.text.replace(_NAME, self.name)}\n#endif\n"


@cache
def function_of(kernel: Kernel) -> FunctionSource:
    """The device function of a kernel; kernels that differ only in what their text does not depend on have the same."""
    return FunctionSource(kernel.emit(_NAME), tuple(kernel.headers), kernel.shared)


@dataclass(frozen=True)
class FusedMemory:
    """What blocks of fused bricks have in shared memory, of which the device gives a block at most `most` bytes: the
    `words` of a task's records, twice, and `scratch` bytes."""

    words: int
    scratch: int
    most: int

    def blocks(self, shared: int) -> int:
        """Blocks of so many bytes that a multiprocessor has room for, at most BLOCKS: the fewer, the more registers."""
        return max(1, min(BLOCKS, of_multiprocessor(self.most) // (shared + RESERVED)))

    @property
    def nbytes(self) -> int:
        """Bytes of all, the records rounded up to the alignment of tensors."""
        return aligned(self.record_bytes) + self.scratch

    @property
    def record_bytes(self) -> int:
        """Bytes of the records of two tasks."""
        return 2 * 8 * self.words


def source_of(
    functions: Sequence[FunctionSource], by_tickets: bool, threads: int, fused: FusedMemory | None = None
) -> KernelSource:
    """The kernel function whose steps call `functions`, by their index. Scratch lies in global memory unless it is
    `fused`."""
    own = SHARED_BYTES + max((f.shared for f in functions), default=0)
    shared = own if fused is None else aligned(own) + fused.nbytes
    blocks = BLOCKS if fused is None else fused.blocks(shared)
    kind = "tickets" if by_tickets else "turns" if fused is None else "fused"
    apart = "" if fused is None else f" {fused.words} {fused.scratch} {blocks}"
    name = f"{kind}_" + _digest("".join(f.name for f in functions) + str(threads) + apart)
    headers = dict.fromkeys(("portable.cuh", *(name for f in functions for name in f.headers)))
    text = "\n".join(
        [
            *(() if fused is None else ("#define BRICK_FUSED",)),
            *(f'#include "{one}"' for one in headers),
            f"#ifndef HAS_CONTEXT\n#define HAS_CONTEXT\n{header()}#endif",
            '#include "schedule.cuh"',
            *dict.fromkeys(f.named for f in functions),
            _call(name, functions),
            f"BRICK_KERNEL({name}, brick::Context, {threads}, {blocks}) {{",
            "    BRICK_SHARED(shared);",
            f"    {_run(name, by_tickets, own, fused)}",
            "}",
            "",
        ]
    )
    return KernelSource(name, text, threads, shared)


def _run(name: str, by_tickets: bool, own: int, fused: FusedMemory | None) -> str:
    """The statement that runs tasks, in a block whose functions have the first `own` bytes of shared memory."""
    if fused is None:
        return f"brick::{BY_TICKETS if by_tickets else IN_TURN} slot, shared, Call_{name}());"
    records = aligned(own)
    return (
        f"brick::run_fused<{fused.words}>(c, first, count, launch, shared, Call_{name}(), "
        f"shared + {records}, shared + {records + aligned(fused.record_bytes)});"
    )


def _call(name: str, functions: Sequence[FunctionSource]) -> str:
    """The function object that tells functions apart. Several are not inlined into one: registers would be the sum."""
    arguments, values = "const brick::Step& s, char* const* at, char* shared", "(s, at, shared);"
    if len(functions) == 1:
        calls, apart = [f"        {functions[0].name}{values}"], []
    else:
        calls = [f"        case {k}: apart_{f.name}{values} break;" for k, f in enumerate(functions)]
        calls = ["        switch (kernel) {", *calls, "        }"]
        apart = [_apart(f, arguments, values) for f in dict.fromkeys(functions)]
    return "\n".join(
        [
            *apart,
            f"struct Call_{name} {{",
            f"    BRICK_DEVICE void operator()(int kernel, {arguments}) const {{",
            *calls,
            "    }",
            "};",
        ]
    )


def _apart(function: FunctionSource, arguments: str, values: str) -> str:
    guard = f"HAS_apart_{function.name}"
    body = f"BRICK_FUNCTION void apart_{function.name}({arguments}) {{ {function.name}{values} }}"
    return f"#ifndef {guard}\n#define {guard}\n{body}\n#endif"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
