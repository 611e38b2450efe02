"""Where the time of a network goes: per subgraph, from the events of several runs.

    python bench/layers.py resnet50 [--size 224] [--threads 2] [--runs 9] [--strategy auto] [--top 40] [--calls]

`NAME` is a network of the zoo or a path to an ONNX file whose inputs have fixed shapes. Per subgraph: microseconds of
the busy cores together, tasks, arithmetic per core and second (a Winograd layer counts a direct one's operations), and
the last line tells how long cores were idle. `--calls` adds up equal subgraphs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx

from brickrt import Runtime, zoo
from brickrt.ops.operators.conv import Conv
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.events import TaskEvents


def profile(
    model: onnx.ModelProto, threads: int, runs: int, **options
) -> tuple[Plan, np.ndarray, np.ndarray, float, float]:
    """The plan; per subgraph busy µs (median over runs) and tasks; µs from first to last task; idle share."""
    seen: list[TaskEvents] = []
    runtime = Runtime(model, device="cpu", threads=threads, watch=seen.append, **options)
    rng = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feeds[value.name] = rng.standard_normal(shape).astype(dtype)
    for _ in range(runs + 2):
        runtime.execute(feeds)
    program = runtime.plan.programs[0]
    owner, count = program.tasks.task_subgraph, len(program.tasks.plan.subgraphs)
    busy = np.median([_busy(e, owner, count) for e in seen[2:]], axis=0)
    spans = [(e.end.max() - e.start.min()) / 1e3 for e in seen[2:]]
    tasks = np.bincount(owner[owner >= 0], minlength=count)
    span = float(np.median(spans))
    return program.tasks.plan, busy, tasks, span, 1 - float(busy.sum()) / threads / span


def _busy(e: TaskEvents, owner: np.ndarray, count: int) -> np.ndarray:
    which = owner[e.task]
    return np.bincount(which[which >= 0], (e.end - e.start)[which >= 0] / 1e3, minlength=count)


def describe(plan: Plan, s: Subgraph) -> str:
    """Operators, shapes and brick of a subgraph, without names."""
    graph, words = plan.graph, []
    for k in s.nodes:
        node = graph.nodes[k]
        word = plan.algorithms.get(k, node.op.name)
        if isinstance(node.op, Conv):
            op = node.op
            word += "x".join(map(str, op.kernel))
            word += f"/{op.strides[0]}" if set(op.strides) != {1} else ""
            word += f"d{op.dilations[0]}" if set(op.dilations) != {1} else ""
            word += f"g{op.groups}" if op.groups > 1 else ""
        words.append(word)
    ins, out = graph.ins(graph.nodes[s.nodes[0]])[0].shape, graph.out(graph.nodes[s.nodes[-1]]).shape
    return f"{s.strategy[:4]} {'+'.join(words)[:60]} {list(ins)}→{list(out)} brick {list(s.brick)}"


def main() -> None:
    """Profiles the network that the command line names, and prints its subgraphs, the longest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", metavar="NAME")
    parser.add_argument("--size", type=int)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--brick", type=int)
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--calls", action="store_true")
    asked = parser.parse_args()
    known = Path(asked.network).suffix == ".onnx"
    model = onnx.load(asked.network) if known else zoo.build(asked.network, batch=asked.batch, size=asked.size)
    plan, busy, tasks, span, idle = profile(
        model, asked.threads, asked.runs, strategy=asked.strategy, brick=asked.brick
    )
    rows: dict[str, list[float]] = {}
    for number, s in enumerate(plan.subgraphs):
        key = describe(plan, s) if asked.calls else f"{number:3} {describe(plan, s)}"
        row = rows.setdefault(key, [0, 0, 0, 0])
        for i, value in enumerate((busy[number], tasks[number], s.flops, 1)):
            row[i] += value
    print(f"{'core µs':>9} {'share':>6} {'tasks':>6} {'GFLOP/s':>8}  subgraph")
    for key, (us, n, flops, calls) in sorted(rows.items(), key=lambda item: -item[1][0])[: asked.top]:
        rate = flops / us / 1e3 if us else 0.0
        print(f"{us:9.0f} {us / busy.sum():6.1%} {n:6.0f} {rate:8.1f}  {key}" + (f" ×{calls:.0f}" if calls > 1 else ""))
    print(f"{span / 1e3:.2f} ms from the first task to the last, cores idle {idle:.1%}")


if __name__ == "__main__":
    main()
