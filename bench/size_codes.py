"""How many kernels sizes ask for that no size before had: counted, without compiling any.

    python bench/size_codes.py [NETWORK …] [--sizes 20] [--warm 30] [--why]

Each size is specialized, planned and lowered as a run does, on the speeds of the planner's table, so that counts are the
same on any day; its kernels are emitted where no code of an earlier size is good for them. `--why` tells of each such
kernel how it differs from the nearest outline, or which answer of the nearest code it gives otherwise.
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

import numpy as np
from new_sizes import NETWORKS, distinct
from size_networks import OPEN_NETWORKS, OpenNetwork

from brickrt.graph.onnx_import.source import load
from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.sized_kernel import emit_sized, outline
from brickrt.plan.device.device_spec import DeviceSpec, host_device
from brickrt.plan.device.machine import clock_ghz
from brickrt.runtime.cpu.argument_table import host_places
from brickrt.runtime.cpu.compile.host_isa import LESSER, host_isa
from brickrt.runtime.cpu.step_kernels import StepKernels
from brickrt.runtime.cpu.weight_prefetch import WeightPrefetch
from brickrt.runtime.engines import Engine, choose_engine
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Program

KNOWN = {name: OpenNetwork(*parts) for name, parts in NETWORKS.items()} | OPEN_NETWORKS


class CodeCounter:
    """The codes that sizes so far have, by outline."""

    def __init__(self) -> None:
        self.codes: dict[str, list[SizeProgram]] = {}

    def new(self, kernel: Kernel) -> str | None:
        """Why a kernel needs code of its own; None where some is good for it."""
        shape = outline(kernel)
        known = self.codes.setdefault(shape.text, [])
        if any(program.table(shape.numbers) is not None for program in known):
            return None
        why = told(kernel, self.differing(kernel, shape.text) if not known else failing(known[-1], shape.numbers))
        _, table = emit_sized(kernel, "kernel")
        known.append(SizeProgram.of(table.answers, table.entries))
        return why

    def differing(self, kernel: Kernel, text: str) -> str:
        """How an outline differs from the nearest one of the same operator."""
        others = [t for t in self.codes if t != text and t.startswith(f"{type(kernel).__name__} ")]
        parts = re.findall(r"\w+|\W", text)
        best: tuple[float, str] = 0.0, "the first of its kind"
        for other in others:
            match = SequenceMatcher(None, re.findall(r"\w+|\W", other), parts, autojunk=False)
            if match.quick_ratio() > best[0] and match.ratio() > best[0]:
                changes = [c for c in match.get_opcodes() if c[0] != "equal"]
                old = re.findall(r"\w+|\W", other)
                said = ", ".join(f"…{''.join(parts[max(0,c[3]-6):c[3]])}[{''.join(old[c[1]:c[2]])}→{''.join(parts[c[3]:c[4]])}]" for c in changes[:4])
                best = match.ratio(), f"outline {said}"
        return best[1]


def failing(program: SizeProgram, numbers: Sequence[int]) -> str:
    """The first answer that the numbers give otherwise."""
    formulas: list[str] = []
    found: list[int] = []
    from brickrt.ops.cpu.emit.sizes import OPERATIONS

    for word, a, b, answer in program.steps:
        if word == "n":
            value, text = numbers[a], f"n{a}"
        elif word == "c":
            value, text = a, str(a)
        else:
            if found[b] == 0 and word in "//%":
                return "division by nothing"
            value, text = int(OPERATIONS[word](found[a], found[b])), f"({formulas[a]} {word} {formulas[b]})"
        if answer is not None and value != answer:
            return f"answer {text} = {value}, not {answer}; numbers {numbers}"
        found.append(value)
        formulas.append(text)
    return "?"


def told(kernel: Kernel, why: str) -> str:
    """A line about a kernel."""
    shapes = " ".join("x".join(map(str, o.shape)) for o in (kernel.out, *kernel.ins))
    return f"{type(kernel).__name__} {type(kernel.op).__name__} {shapes} class {kernel.shape_class} decided {kernel.decisions() if kernel.sized else ''}: {why}"


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
    """The processor to count for: this one, or one with as many cores whose vectors are like those named."""
    if name == "host":
        spec = host_device()
        return spec, host_isa(spec)
    if name == "avx2":
        spec = host_device("avx2")
        return spec, Isa(spec.lanes, spec.registers, *LESSER["avx2"])
    spec = replace(host_device("avx512"), double_pumped=name == "double")
    spec = replace(spec, peak_gflops_per_core=spec.lanes * (2 if spec.double_pumped else 4) * clock_ghz())
    return spec, Isa(spec.lanes, spec.registers, "znver4" if spec.double_pumped else "icelake-server")


def count(name: str, warm: int, sizes: int, why: bool, like: str) -> None:
    """Counts for one network, and prints it."""
    build, draw, feed = KNOWN[name]
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
    late = figures[warm:]
    codes = sum(map(len, counter.codes.values()))
    first = " ".join(map(str, figures[:warm]))
    print(f"{name:12} {sum(late):4} kernels at {sum(map(bool, late)):3} of {len(late)} sizes; {codes} in all; before: {first}", flush=True)


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
