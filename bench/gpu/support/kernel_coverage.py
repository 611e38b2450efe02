"""A few of many device functions, such that every line that any of them is printed with is compiled.

Kernels are headers of templates, and a printed text that chooses among them: members such as `WIDTH = 8`, a tile, lines
of an expression. Texts differ mostly in extents and strides, which decide no branch of a template that small members do
not decide too. So lines are taken as equal where only large numbers, or numbers in names and addresses, differ; and a
selection that has every line of every family, and every tile with every type, instantiates all that all of them do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from brickrt.ops.cuda.kernel import THREADS
from brickrt.runtime.cuda.kernels.kernel_sources import FunctionSource, KernelSource

Trait = tuple[str, str]
LARGEST_DECIDING_NUMBER = 8  # of a template's members: widths, taps, strides, flags
_CORE = re.compile(r"brick::(Warps|Lanes)<([\w:]+), brick::Tile<.*?>, \d+, \d+>")
_RUNNER = """struct Call {{ brick::Step s; char* const* at; }};
BRICK_KERNEL({name}, Call, {threads}, 2) {{
    BRICK_SHARED(shared);
    {call}(c->s, c->at, shared);
}}
"""


def traits(function: FunctionSource) -> frozenset[Trait]:
    """The lines of a function, each with its family; tiles apart, since all families use them in the same way."""
    text = function.named.replace(function.name, "NAME")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    calls = [line for line in lines if line.startswith("brick::") and "NAME" in line]
    family = calls[-1].partition("<")[0] if calls else ""
    cores = {("", core[0]) for line in lines for core in _CORE.finditer(line)}
    return frozenset({*((family, _masked(line)) for line in lines), *cores})


def _masked(line: str) -> str:
    """A line without what no template depends on."""
    line = _CORE.sub(r"\1<\2>", line)
    if line.startswith("static constexpr int"):
        return re.sub(r"\d+", lambda n: n[0] if int(n[0]) <= LARGEST_DECIDING_NUMBER else "#", line)
    if line.startswith("static constexpr"):
        return re.sub(r"\d+", lambda n: n[0] if int(n[0]) <= 1 else "#", line)
    line = re.sub(r"-?0x[0-9a-f.]+p[-+]\d+f?", "#", line)
    return re.sub(r"(?<![a-z]{2})\d+", "#", line)  # not those of types: int32, float4


def cover(functions: Iterable[FunctionSource]) -> list[FunctionSource]:
    """Functions that have all traits of all: always the one with most that are missing, the first by name."""
    known = {f.name: f for f in functions}
    left = {name: traits(f) for name, f in known.items()}
    missing = set[Trait]().union(*left.values())
    chosen = []
    while missing:
        best = max(sorted(left), key=lambda name: len(left[name] & missing))
        missing -= left.pop(best)
        chosen.append(known[best])
    return chosen


def alone(function: FunctionSource) -> KernelSource:
    """A kernel function of one box: cheaper to compile than one that finds its boxes in a program's tables."""
    name = f"alone_{function.name}"
    headers = dict.fromkeys(("portable.cuh", *function.headers))
    runner = _RUNNER.format(name=name, threads=THREADS, call=function.name).replace("Call", f"Call_{name}")
    text = "".join([*(f'#include "{one}"\n' for one in headers), function.named, runner])
    return KernelSource(name, text, THREADS, function.shared)
