"""How many kernels sizes ask for whose code no size before had: counted, without compiling any.

    python bench/sizes/size_codes.py [NETWORK | FILE.onnx:64:512:32 …] [--sizes 20] [--warm 30] [--like host] [--why]

Each size is specialized, planned and lowered as a run does, by the planner's table of speeds, so that counts are the
same on any day; its kernels are emitted where no code of an earlier size is good for them. `--like` counts for another
processor with as many cores. `--why` tells of each such kernel which answer of the newest code it gives otherwise, or
how its outline differs from the nearest one.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

os.environ.setdefault("BRICKRT_CALIBRATE", "0")

from file_networks import file_network
from new_sizes import NETWORKS, distinct
from size_networks import OPEN_NETWORKS, OpenNetwork

from brickrt.graph.onnx_import.source import load
from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.sized_kernel import emit_sized, outline, outlines_of_larger
from brickrt.plan.device.device_spec import DeviceSpec, host_device
from brickrt.runtime.cpu.argument_table import host_places
from brickrt.runtime.cpu.compile.host_isa import LESSER, host_isa
from brickrt.runtime.cpu.step_kernels import StepKernels
from brickrt.runtime.cpu.weight_prefetch import WeightPrefetch
from brickrt.runtime.engines import Engine, choose_engine
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Program

KNOWN = {name: OpenNetwork(*parts) for name, parts in NETWORKS.items()} | OPEN_NETWORKS
CHANGES = 4  # of an outline that are told


class CodeCounter:
    """The codes that sizes so far have, by outline."""

    def __init__(self) -> None:
        self.codes: dict[str, list[SizeProgram]] = {}

    def new(self, kernel: Kernel) -> str | None:
        """Why a kernel needs code of its own; None where some is good for it."""
        shape = outline(kernel)
        known = self.codes.get(shape.text, [])
        if any(program.table(shape.numbers) is not None for program in known):
            return None
        larger = outlines_of_larger(kernel) if kernel.sized else ()
        if any(program.table(one.numbers) is not None for one in larger for program in self.codes.get(one.text, [])):
            return None
        why = failing(known[0], shape.numbers) if known else self.differing(shape.text)
        _, table = emit_sized(replace(kernel, broad=True), "kernel")  # as those of networks of open sizes are
        self.codes[shape.text] = [SizeProgram.of(table.answers, table.entries), *known]
        shapes = " ".join("x".join(map(str, o.shape)) for o in (kernel.out, *kernel.ins))
        return f"{type(kernel).__name__} {kernel.op.name} {shapes} class {kernel.shape_class}: {why}"

    def differing(self, text: str) -> str:
        """How an outline differs from the nearest one of the same kind of kernel."""
        mine, best, said = _words(text), 0.0, "the first of its kind"
        for other in map(_words, self.codes):
            match = SequenceMatcher(None, other, mine, autojunk=False)
            if other[0] == mine[0] and match.quick_ratio() > best and match.ratio() > best:
                changes = [c for c in match.get_opcodes() if c[0] != "equal"][:CHANGES]
                best = match.ratio()
                said = ", ".join(
                    f"{_said(mine, lo - 6, lo)}[{_said(other, a, b)} → {_said(mine, lo, hi)}]"
                    for _, a, b, lo, hi in changes
                )
        return said


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\W", text)


def _said(words: list[str], lo: int, hi: int) -> str:
    return "".join(words[max(0, lo) : hi])


def failing(program: SizeProgram, numbers: Sequence[int]) -> str:
    """The first step whose answer the numbers give otherwise, with all that it is made of."""
    names: list[str] = []
    for n, (word, a, b, answer) in enumerate(program.steps):
        leaf = {"n": f"n{a}", "c": str(a), "t": "entries"}
        names.append(leaf[word] if word in leaf else f"({names[a]} {word} {names[b]})")
        if answer is not None and SizeProgram(program.steps[: n + 1], []).table(numbers) is None:
            return f"{names[-1]} is not {answer} for {tuple(numbers)}"
    return "it divides by nothing"


def kernels(tasks: TaskGraph, isa: Isa) -> Iterator[Kernel]:
    """All kernels of a task graph, some several times."""
    places = host_places(tasks)
    chosen, prefetch = StepKernels(tasks, isa, places), WeightPrefetch(tasks)
    for steps in tasks.steps:
        if len(steps.boxes):
            node = tasks.plan.graph.nodes[steps.node]
            out, *ins = (places.operand(name) for name in (node.output, *node.inputs))
            variants, which = chosen.of(steps, out, tuple(ins))
            yield from prefetch.asking(steps, variants, which)[0]


def counting(spec: DeviceSpec, isa: Isa, asked: dict[Kernel, None]) -> Engine:
    """An engine whose programs compute nothing; the kernels that they would call are `asked` for."""
    null = choose_engine("null")

    def build(tasks: TaskGraph, *others: Any) -> Program:
        asked.update(dict.fromkeys(kernels(tasks, isa)))
        return null.build(tasks, *others)

    return replace(null, spec=spec, build=build)


def target(name: str) -> tuple[DeviceSpec, Isa]:
    """The processor to count for: this one, or one whose vectors are like those named; "double" splits them in two."""
    if name in ("host", "avx2"):
        spec = host_device(None if name == "host" else name)
        return spec, host_isa(spec) if name == "host" else Isa(spec.lanes, spec.registers, *LESSER[name])
    spec, double = host_device("avx512"), name == "double"
    peak = spec.peak_gflops_per_core * (1 + spec.double_pumped) / (1 + double)
    spec = replace(spec, double_pumped=double, peak_gflops_per_core=peak)
    return spec, Isa(spec.lanes, spec.registers, "znver4" if double else "icelake-server")


def count(name: str, warm: int, sizes: int, why: bool, like: str) -> None:
    """Counts for one network, and prints it."""
    build, draw, feed = KNOWN[name] if name in KNOWN else file_network(name)
    spec, isa = target(like)
    asked: dict[Kernel, None] = {}
    source, pipeline, counter = load(build()), Pipeline(counting(spec, isa, asked)), CodeCounter()
    figures: list[int] = []
    for k, size in enumerate(islice(distinct(draw, 1), warm + sizes)):
        asked.clear()
        pipeline.run(source, feed(size))
        told = [line for kernel in asked if (line := counter.new(kernel))]
        figures.append(len(told))
        if k >= warm and told and why:
            print(f"  {'x'.join(map(str, size))}:", *told, sep="\n    ")
    late, codes = figures[warm:], sum(map(len, counter.codes.values()))
    said = f"{sum(late):4} kernels at {sum(map(bool, late)):3} of {len(late)} sizes; {codes} in all; before:"
    print(f"{name:12}", said, *figures[:warm], flush=True)


def main() -> None:
    """Counts each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(KNOWN))
    parser.add_argument("--sizes", type=int, default=20)
    parser.add_argument("--warm", type=int, default=30)
    parser.add_argument("--why", action="store_true")
    parser.add_argument("--like", choices=("host", "wide", "double", "avx2"), default="host")
    asked = parser.parse_args()
    for name in asked.networks:
        count(name, asked.warm, asked.sizes, asked.why, asked.like)


if __name__ == "__main__":
    main()
