"""What the scripts of this folder share: networks, inputs, engines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.gpu.support.null_driver import NullDriver
from brickrt import zoo
from brickrt.compare.machine import machine
from brickrt.graph.onnx_import.source import load
from brickrt.plan.device.device_spec import PRESETS
from brickrt.plan.options import PlanOptions
from brickrt.runtime.cuda.blueprint import CudaOptions
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.engines import Engine, choose_engine
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import LaunchMode
from brickrt.runtime.progress import KernelProgress
from brickrt.runtime.reference import ReferenceProgram

ROOT = Path(__file__).parents[3]
COMMIT = "COMMIT"  # the file of a packed folder that names its commit
PAPER_NETWORKS = ("vgg16", "resnet50", "darknet53", "resnet34-3d", "drn-c-26", "deepcam", "inception-v4")  # BrickDL's
MORE_NETWORKS = ("mobilenetv2", "unet", "nafnet", "vit-s16")
CHECKED = (*PAPER_NETWORKS, *MORE_NETWORKS, "unet3d")
SMALL_SIZES = {"resnet34-3d": (8, 32, 32), "inception-v4": 139, "vit-s16": 64, "unet3d": 32}  # 64 otherwise
TOLERANCE = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
"""Largest error of a network's output relative to its largest value, by precision."""


def random_feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Seeded values for the inputs of a network of the zoo, or for the one input of another."""
    if model.graph.name in zoo.names():
        return zoo.feeds(model)
    x = model.graph.input[0]
    shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
    return {x.name: np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}


def built(name: str, batch: int = 1, size: Any = None) -> onnx.ModelProto:
    """A network of the zoo; a size of None is its own."""
    return zoo.build(name, batch=batch, size=size)


def small(name: str) -> onnx.ModelProto:
    """A network of the zoo that the reference engine computes in seconds."""
    return built(name, 1, SMALL_SIZES.get(name, 64))


# ---- engines


def engine(device: str, launch: LaunchMode = "auto", library: bool = True) -> Engine:
    """The GPU's engine, or one whose device does nothing (see `items.DEVICES`); it measures no plans. Without
    `library`, all layers are computed by brickrt's own kernels. Raises BrickError where the GPU cannot be used."""
    nothing = partial(NullDriver, PRESETS.get(device, PRESETS["h200"]), device in PRESETS)
    driver: Any = choose_engine("cuda").arrays if device == "cuda" else nothing()

    def build(
        tasks: TaskGraph, constants: dict[str, np.ndarray], threads: int, progress: KernelProgress | None
    ) -> CudaProgram:
        return CudaProgram(tasks, driver, CudaOptions(launch, library=library), progress, constants=constants)

    return Engine("cuda", driver.spec, build, driver)


def outputs_of(on: Engine, model: onnx.ModelProto, feeds: Mapping[str, Any], how: PlanOptions) -> list[Any]:
    """A model's outputs, computed once."""
    return list(Pipeline(on, how).run(load(model), feeds).values())


def reference(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """A model's outputs by the definitions in NumPy. Their plan is a GPU's: so nothing is asked of the processor, and
    what a machine without LLVM has suffices."""

    def build(tasks: TaskGraph, constants: dict[str, np.ndarray], *_: Any) -> ReferenceProgram:
        return ReferenceProgram(tasks, constants=constants)

    return outputs_of(Engine("reference", NullDriver().spec, build), model, feeds, PlanOptions("layerwise"))


# ---- the machine


def gpu_text() -> str | None:
    """Name, driver and memory, as the driver's tool tells."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        return done.stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def about(device: str) -> dict[str, Any]:
    """Versions, commit and GPU, for files of results."""
    known = {key: value for key, value in machine(NullDriver().spec).items() if key not in ("cpu", "device")}
    return known | {"commit": commit(), "gpu": gpu_text() if device == "cuda" else None}


def commit() -> str:
    """The commit of this working copy, or the one that a packed folder was made of."""
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    packed = ROOT / COMMIT
    if packed.exists():
        return packed.read_text().strip()
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip()


# ---- words of the command line


def each(text: str, mark: str = ",") -> Iterator[str]:
    """The words of a list with commas, or another mark."""
    yield from (part for part in text.split(mark) if part)


def asked_networks(text: str) -> list[tuple[str, int | None]]:
    """Networks of a list such as "resnet50,nafnet:2048": names, and sizes where they are not a network's own."""
    pairs = [word.partition(":") for word in each(text)]
    among(",".join(name for name, _, _ in pairs), zoo.names(), "network")
    return [(name, int(size) if size else None) for name, _, size in pairs]


def among(text: str, known: Iterable[str], what: str, mark: str = ",") -> list[str]:
    """The words of a list, all of them known; else the process's end with one line."""
    words, known = list(each(text, mark)), list(known)
    strange = [word for word in words if word not in known]
    if strange:
        print(f"{what} '{strange[0]}' is unknown: use some of {', '.join(known)}", file=sys.stderr)
        raise SystemExit(2)
    return words
