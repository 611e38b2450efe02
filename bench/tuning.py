"""What measuring plans gains: networks tuned, then timed in turns as modelled, as tuned, and by each strategy forced.

    python bench/tuning.py [--networks resnet50,nafnet] [--seconds 30] [--threads 2] [--rounds 25] [--out FILE.json]

Per network: the seconds that tuning took, milliseconds as modelled, and the median ratio, over the rounds, of each plan
to that as modelled; below 1 it is faster.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.networks import ELEVEN
from brickrt import zoo
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions, Strategy
from brickrt.plan.plan import Plan, make_plan, plan_subgraphs, with_subgraphs
from brickrt.runtime.engines import choose_engine, cpu_tuner
from brickrt.runtime.lowering.lower import lower

STRATEGIES: tuple[Strategy, ...] = ("layerwise", "padded", "memoized")


def graph_of(name: str) -> Graph:
    """A network of the zoo, specialized."""
    model = zoo.build(name, size=ELEVEN.get(name))
    source = load(model)
    feeds = zoo.feeds(model)
    types = {name: TensorType(array.shape, array.dtype) for name, array in feeds.items()}
    return specialize(first_stage(source, frozenset(types)), types, {}).graph


def runner(plan: Plan, threads: int) -> Callable[[], float]:
    """Runs a plan's program on normally distributed inputs; gives milliseconds."""
    graph = plan.graph
    program = choose_engine("cpu").build(lower(plan), dict(graph.constants), threads, None)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(graph.types[n].shape, np.float32).astype(graph.types[n].dtype) for n in graph.inputs]
    outputs = [np.empty(graph.types[n].shape, graph.types[n].dtype) for n in graph.outputs]

    def run() -> float:
        began = time.perf_counter()
        program.run(inputs, outputs)
        return (time.perf_counter() - began) * 1e3

    return run


def measure(name: str, seconds: float, threads: int, rounds: int) -> dict[str, Any]:
    """Tunes a network, and times all its plans in turns."""
    graph, engine = graph_of(name), choose_engine("cpu")
    modelled, began = make_plan(graph, engine.spec), time.perf_counter()
    tuner = cpu_tuner(engine.build, threads, seconds)
    tuned = with_subgraphs(modelled, tuner(graph, modelled) or modelled.subgraphs)
    took = time.perf_counter() - began
    plans = {"as modelled": modelled, "tuned": tuned}
    for strategy in STRATEGIES:
        plans[strategy] = with_subgraphs(modelled, plan_subgraphs(modelled, options=PlanOptions(strategy)))
    runs = {what: runner(plan, threads) for what, plan in plans.items()}
    times: dict[str, list[float]] = {what: [] for what in runs}
    for number in range(rounds + 1):
        for what, run in list(runs.items())[:: 1 if number % 2 else -1]:
            run()  # into caches
            if number:
                times[what].append(run())
    usual = times["as modelled"]
    ratios = {what: median(a / b for a, b in zip(ms, usual, strict=True)) for what, ms in times.items()}
    reports = [report.to_dict() for report in tuner.reports]
    return {"network": name, "tuning_s": took, "ms": median(usual), "ratios": ratios, "reports": reports}


def main() -> None:
    """Parses the command line, measures, and prints and writes what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(ELEVEN))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    for name in asked.networks.split(","):
        rows.append(measure(name, asked.seconds, asked.threads, asked.rounds))
        row = rows[-1]
        told = "  ".join(f"{what} ×{ratio:.3f}" for what, ratio in row["ratios"].items() if what != "as modelled")
        print(f"{name:14} tuned in {row['tuning_s']:5.1f} s, as modelled {row['ms']:8.2f} ms  {told}", flush=True)
        for report in row["reports"]:
            changed = f"{report['changed']} of {report['subgraphs']} subgraphs changed"
            print(f"               taken: {report['taken']}, {changed}, tried:", end="")
            print("".join(f" {t['name']} ×{t['ratio']:.3f};" for t in report["tried"] if t["ratio"]), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
