"""Is everything right on this GPU? Networks, strategies, launches and precisions, against the reference engine.

    python -m bench.gpu.asks.check [--what networks|others|repeat|chain] [--references FOLDER] [--runs 1000]

networks: all of them in every strategy as one CUDA graph, in fp32 and fp16. others: the other launches and precisions.
repeat: the persistent kernel again and again: no hang, the same bits each time. chain: three layers in a few bricks,
small enough for compute-sanitizer. Sizes are small, since the reference is NumPy; `--references` names a folder where
its outputs are kept.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.gpu.support.common import CHECKED, TOLERANCE, engine, outputs_of, random_feeds, reference, small
from bench.gpu.support.items import Item, NotInstalled, options, run
from bench.gpu.support.programs import Programs, run_program
from brickrt.compare.difference import difference
from brickrt.plan.options import PlanOptions

STRATEGIES = ("layerwise", "padded", "memoized", "fused")
SMALLEST = "nafnet"  # which is run again and again
CHANNELS, SIZE = 16, 24  # of the chain
Way = tuple[str, str, str]  # strategy, launch, precision


def ways() -> Iterator[Way]:
    """What is checked first of every network."""
    yield from ((strategy, "graph", precision) for precision in ("fp32", "fp16") for strategy in STRATEGIES)


def other_ways() -> Iterator[Way]:
    """What is checked when there is time."""
    for launch in ("persistent", "streams", "dynamic"):
        yield from ((strategy, launch, "fp32") for strategy in ("memoized", "padded"))
    yield from ((strategy, "graph", precision) for precision in ("tf32", "bf16") for strategy in STRATEGIES)
    yield from (("auto", "persistent", precision) for precision in TOLERANCE)


# ---- networks


@lru_cache(2)  # as many as a process of `first.py` has
def known(name: str, folder: Path | None) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """A network, its inputs, and the reference's outputs: those of the folder where they are of these weights."""
    model = small(name)
    feeds = random_feeds(model)
    if folder is None:
        return model, feeds, reference(model, feeds)
    file = folder / f"{name}-{hashlib.sha256(model.SerializeToString()).hexdigest()[:16]}.npz"
    if not file.exists():
        keep(file, {f"a{k}": array for k, array in enumerate(reference(model, feeds))})
    with np.load(file) as kept:
        return model, feeds, [kept[f"a{k}"] for k in range(len(kept.files))]


def keep(file: Path, arrays: dict[str, Any]) -> None:
    """Writes a file of arrays that is whole or not there: a process may be ended at any time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.stem}-{os.getpid()}.new")
    with unfinished.open("wb") as f:
        np.savez_compressed(f, **arrays)
    unfinished.replace(file)


def check_network(name: str, way: Way, asked: argparse.Namespace) -> dict[str, Any]:
    """The largest error of a network's outputs relative to their largest value."""
    strategy, launch, precision = way
    model, feeds, expected = known(name, asked.references)
    how: Any = PlanOptions(strategy=strategy, precision=precision)  # type: ignore[arg-type]
    found = outputs_of(engine(asked.device, launch), model, feeds, how)  # type: ignore[arg-type]
    error = difference(found, expected)["max_rel_error"]
    return {"error": error, "tolerance": TOLERANCE[precision], "good": error <= TOLERANCE[precision]}


def networks(some: Iterator[Way], asked: argparse.Namespace) -> Iterator[Item]:
    """Each network in each way; a network's ways of one strategy and precision follow one another."""
    for way in some:
        yield from (Item(" ".join((name, *way)), partial(check_network, name, way, asked)) for name in CHECKED)


def repeat(asked: argparse.Namespace) -> dict[str, Any]:
    """Whether the persistent kernel gives the same bits every time."""
    model, feeds, expected = known(SMALLEST, asked.references)
    programs = Programs(engine(asked.device, "persistent"), model)
    program = programs.program(programs.plan(PlanOptions("memoized")))
    first = run_program(program, feeds)
    changed = sum(_differ(run_program(program, feeds), first) for _ in range(asked.runs))
    error = difference(first, expected)["max_rel_error"]
    return {"runs": asked.runs, "changed": changed, "error": error, "good": not changed and error <= TOLERANCE["fp32"]}


def _differ(some: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return any(a.tobytes() != b.tobytes() for a, b in zip(some, others, strict=True))


# ---- small models


def convolutions(layers: int, channels: int, size: int, rank: int = 3) -> onnx.ModelProto:
    """A chain of 3ⁿ convolutions with rectifiers after them, on [1, channels, size…]."""
    rng, nodes, weights, x = np.random.default_rng(0), [], [], "x"
    for k in range(layers):
        w = rng.standard_normal((channels, channels, *[3] * rank), np.float32) / (channels * 3**rank) ** 0.5
        weights.append(numpy_helper.from_array(w, f"w{k}"))
        nodes.append(helper.make_node("Conv", [x, f"w{k}"], [f"c{k}"], pads=[1] * 2 * rank))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [x := f"t{k}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, *[size] * rank]) for name in ("x", x)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def check_chain(strategy: Any, launch: Any, precision: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Three convolutions in bricks of 8²."""
    model = convolutions(3, CHANNELS, SIZE, 2)
    feeds = random_feeds(model)
    how = PlanOptions(strategy, 8, precision=precision)
    found = outputs_of(engine(asked.device, launch, library=False), model, feeds, how)
    error = difference(found, reference(model, feeds))["max_rel_error"]
    return {"error": error, "good": error <= TOLERANCE[precision]}


def convolution_error(precision: Any) -> dict[str, Any]:
    """One convolution by cuDNN: its plan is built on one handle, and captured on a stream that has another."""
    model = convolutions(1, 32, 28, 2)
    feeds = random_feeds(model)
    programs = Programs(engine("cuda", "graph"), model)
    program = programs.program(programs.plan(PlanOptions("layerwise", precision=precision)))
    if not program.called:
        raise NotInstalled(program.notes.get("cuDNN", "cuDNN computes no layer"))
    error = difference(run_program(program, feeds), reference(model, feeds))["max_rel_error"]
    captured = program.not_captured is None
    good = captured and error <= TOLERANCE[precision]
    return {"error": error, "captured": captured, "us": 1e6 * program.seconds(), "good": good}


def chain(asked: argparse.Namespace) -> Iterator[Item]:
    """The chain in all strategies and two launches."""
    for precision in ("fp32", "fp16"):
        for strategy in STRATEGIES:
            launch = "persistent" if strategy == "memoized" else "graph"
            name = f"chain {strategy} {launch} {precision}"
            yield Item(name, partial(check_chain, strategy, launch, precision, asked))


def items(asked: argparse.Namespace) -> Iterator[Item]:
    """What the command line names."""
    if asked.what == "repeat":
        return iter([Item(f"{SMALLEST}, {asked.runs} runs of the persistent kernel", partial(repeat, asked))])
    if asked.what == "chain":
        return chain(asked)
    return networks(ways() if asked.what == "networks" else other_ways(), asked)


def main() -> int:
    """Checks what the command line names."""
    parser = options(__doc__)
    parser.add_argument("--what", choices=["networks", "others", "repeat", "chain"], default="networks")
    parser.add_argument("--references", type=Path, help="a folder for the reference's outputs")
    parser.add_argument("--runs", type=int, default=1000)
    asked = parser.parse_args()
    return run(items(asked), asked)


if __name__ == "__main__":
    sys.exit(main())
