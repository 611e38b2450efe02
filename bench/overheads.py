"""What is not arithmetic: import, cold and warm start, calibration, lowering, time per call and per task, memory.

    python bench/overheads.py [--out bench/results/FILE.json]

Each figure is the median of several fresh processes, or of several runs where a process can repeat it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from onnx import helper

from brickrt import zoo
from brickrt.compare.machine import machine
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from brickrt.runtime.compiled.compile_model import compile_model
from brickrt.runtime.lowering.lower import lower
from brickrt.runtime.session.runtime import Runtime

os.environ["BRICKRT_DEVICE"] = "cpu"  # of the processes that it starts too
IMPORT = "import time; t = time.perf_counter(); import brickrt; print(time.perf_counter() - t)"
START = """
import sys, time
import brickrt
import numpy as np
graph = brickrt.load(sys.argv[2])
runtime = brickrt.Runtime(graph)
x = np.zeros((1, 3, 224, 224), np.float32)
loaded = time.perf_counter()
runtime.prepare({"x": x})
prepared = time.perf_counter()
runtime.execute({"x": x})
print(prepared - loaded, time.time() - float(sys.argv[1]))
"""
COMPILED = """
import sys, time
import numpy as np
from brickrt import CompiledModel
model = CompiledModel(sys.argv[2])
opened = time.time()
model.execute({"x": np.zeros((1, 3, 224, 224), np.float32)})
print(opened - float(sys.argv[1]), time.time() - float(sys.argv[1]))
"""
CALIBRATION = """
import os, time
import numpy as np
from brickrt import Runtime, zoo
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cpu.calibrate.calibration import calibration
os.environ["BRICKRT_CALIBRATE"] = "0"
Runtime(zoo.build("unet", size=16, levels=1)).execute({"x": np.zeros((1, 3, 16, 16), np.float32)})
os.environ["BRICKRT_CALIBRATE"] = "1"
t = time.perf_counter()
calibration(host_device())
print(time.perf_counter() - t)
"""
MEMORY = """
import resource, sys
import numpy as np
import brickrt
from brickrt import zoo
def resident():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))
brickrt.Runtime(zoo.build("unet", size=16, levels=1)).execute({"x": np.zeros((1, 3, 16, 16), np.float32)})  # loads LLVM
graph = brickrt.load(sys.argv[1])
shape = list(graph.inputs["x"].shape)
x = np.zeros(shape, np.float32)
before = resident()
runtime = brickrt.Runtime(graph)
runtime.execute({"x": x})
print(resident() - before, runtime.stats.peak_bytes, runtime.plan.projected_bytes)
"""


def fresh(code: str, *args: str, cache: str | None = None) -> list[float]:
    """The numbers that a fresh interpreter prints; `cache` is a folder for its caches instead of the user's."""
    env = os.environ | ({"BRICKRT_CACHE_DIR": cache} if cache else {})
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True, env=env)
    return [float(word) for word in done.stdout.split()]


def from_nothing(code: str, *args: str, times: int = 3) -> list[float]:
    """Medians of the numbers, with empty caches."""
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as cache:
            found.append(fresh(code, *args, cache=cache))
    return [median(column) for column in zip(*found)]


def start(model: str, cache: str) -> list[float]:
    """Seconds of `prepare`, and from the process's start to the outputs, with caches in a folder."""
    return fresh(START, str(time.time()), model, cache=cache)


def starts(model: str, rounds: int = 3, warm: int = 3) -> dict[str, float]:
    """Medians over `rounds` starts from nothing, each with `warm` starts that find everything in its cache."""
    cold, again = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(start(model, cache))
            again += [start(model, cache) for _ in range(warm)]
    return {
        "cold_prepare_s": median(s[0] for s in cold),
        "cold_process_to_outputs_s": median(s[1] for s in cold),
        "warm_prepare_s": median(s[0] for s in again),
        "warm_process_to_outputs_s": median(s[1] for s in again),
    }


def compiled_starts(model: str, rounds: int = 9) -> dict[str, float]:
    """Medians over starts from a compiled file: seconds from the process's start until it is open, and to outputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.brick"
        content = compile_model(model)
        with path.open("wb") as f:
            content.write(f)
        found = [fresh(COMPILED, str(time.time()), str(path)) for _ in range(rounds)]
    opened, done = (median(column) for column in zip(*found))
    return {"process_to_open_s": opened, "process_to_outputs_s": done}


def task_graph(bricks: int = 4):
    """Seconds to lower and order a graph of several 100,000 brick tasks, and how many there are."""
    kind = TensorType((1, 3, 1024, 1024), np.dtype(np.float32))
    graph = specialize(first_stage(load(zoo.build("unet", size=1024, levels=2, width=16))), {"x": kind}, {}).graph
    plan = make_plan(graph, host_device(), PlanOptions("memoized", bricks))
    started = time.perf_counter()
    tasks = lower(plan)
    return time.perf_counter() - started, len(tasks)


def task_overhead(device: str, threads: int) -> float:
    """Microseconds per task: of the null engine, or of the CPU engine with kernels that move 16 numbers."""
    if device == "null":
        model, shape, options = zoo.build("unet", size=256), (1, 3, 256, 256), {"brick": 4}
    else:
        model, shape, options = tiny_kernels(), (1, 1, 256, 256), {"brick": 4}
    runtime = Runtime(model, device=device, strategy="memoized", threads=threads, **options)
    x = np.zeros(shape, np.float32)
    runs = [runtime.execute({"x": x}) and runtime.stats for _ in range(6)]
    return min(1e3 * s.run_ms / s.tasks for s in runs)


def tiny_kernels(layers: int = 6) -> onnx.ModelProto:
    """Poolings 3×3 of one channel, whose small bricks have 16 elements each and wait for nine others."""
    names = ["x", *(f"h{k}" for k in range(layers - 1)), "y"]
    pool = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [helper.make_node("MaxPool", [a], [b], **pool) for a, b in pairwise(names)]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 1, 256, 256]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "tiny kernels", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def call_overhead() -> float:
    """Microseconds of a call beyond its tasks, median: from `execute` to the first, and from the last to its return.

    An upper bound: a call that is watched also allocates, and sorts, its events.
    """
    spans: list[float] = []
    watched = Runtime(zoo.build("mobilenetv2"), watch=lambda e: spans.append((e.end.max() - e.start.min()) / 1e3))
    x = np.zeros((1, 3, 224, 224), np.float32)
    beyond = []
    for _ in range(60):
        started = time.perf_counter()
        watched.execute({"x": x})
        beyond.append((time.perf_counter() - started) * 1e6 - spans[-1])
    return median(beyond[10:])


def main() -> None:
    """Measures everything, prints it, and writes it to --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = {}
        for name, size in (("resnet50", 224), ("unet", 512)):
            models[name] = str(Path(folder) / f"{name}.onnx")
            onnx.save(zoo.build(name, size=size), models[name])
        figures = {
            "import_s": median(fresh(IMPORT)[0] for _ in range(7)),
            "calibration_s": from_nothing(CALIBRATION)[0],
            "resnet50": starts(models["resnet50"]),
            "resnet50_compiled": compiled_starts(models["resnet50"]),
            "memory": {
                name: dict(zip(("resident_growth", "peak_bytes", "projected_bytes"), fresh(MEMORY, path), strict=True))
                for name, path in models.items()
            },
        }
    seconds, tasks = task_graph()
    figures |= {"lowering_s": seconds, "lowered_tasks": tasks, "call_overhead_us": call_overhead()}
    for device, threads in (("null", 1), ("cpu", 1), ("cpu", 2)):
        figures[f"{device}_task_us_{threads}_threads"] = task_overhead(device, threads)
    print(json.dumps(figures, indent=1))
    if asked.out:
        asked.out.write_text(json.dumps({"machine": machine(host_device()), "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
