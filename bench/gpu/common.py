"""What the scripts of this folder share: networks, options, the machine, files of results."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from brickrt import zoo
from brickrt.compare.machine import machine
from brickrt.graph.errors import BrickError
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.runtime.engines import Engine, choose_engine

RESULTS = Path(__file__).parents[1] / "results"
PAPER = ("vgg16", "resnet50", "darknet53", "resnet34-3d", "drn-c-26", "deepcam", "inception-v4")  # BrickDL's seven
MORE = ("mobilenetv2", "unet", "nafnet", "vit-s16")
CHECKED = (*PAPER, *MORE, "unet3d")
LARGE = {"unet": 2048, "nafnet": 2048, "deepcam": 1536, "drn-c-26": 1024}  # high resolution, batch 1
SMALL = {"resnet34-3d": (8, 32, 32), "inception-v4": 139, "vit-s16": 64, "unet3d": 32}  # 64 otherwise


def random_feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Seeded normal values for the input of a network of the zoo."""
    x = model.graph.input[0]
    shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
    return {x.name: np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}


def built(name: str, batch: int = 1, size: Any = None) -> onnx.ModelProto:
    """A network of the zoo; a size of None is its own."""
    return zoo.build(name, batch=batch, size=size)


def small(name: str) -> onnx.ModelProto:
    """A network of the zoo that the reference engine computes in seconds."""
    return built(name, 1, SMALL.get(name, 64))


def gpu_text() -> str | None:
    """Name, driver and memory, as the driver's tool tells."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


class ResultTable:
    """Rows, printed as they come, and written with the machine after each, so that none is lost at a sudden end."""

    def __init__(self, name: str, spec: DeviceSpec, asked: argparse.Namespace, **about: Any) -> None:
        """`asked` has `out`, the folder, and whether to `append` to the rows that the file has."""
        self.file = asked.out / f"{name}.json"
        rows = json.loads(self.file.read_text())["rows"] if asked.append and self.file.exists() else []
        self.content: dict[str, Any] = {"machine": machine(spec) | {"gpu": gpu_text()}, **about, "rows": rows}

    def add(self, row: Mapping[str, Any], text: str) -> None:
        """Prints `text`, and writes the file again with `row` added."""
        self.content["rows"].append(dict(row))
        print(text, flush=True)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps(self.content, indent=1) + "\n")
        partial.replace(self.file)


class Clock:
    """Whether there is time for more; what is left out is said."""

    def __init__(self, seconds: float) -> None:
        self.ends = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds, not negative."""
        return max(self.ends - time.monotonic(), 0.0)

    def has_time(self, what: str) -> bool:
        """Whether there is time left; says on stderr that `what` is left out where there is not."""
        if self.left:
            return True
        print(f"no time for {what}", file=sys.stderr, flush=True)
        return False


def gpu() -> Engine:
    """The engine, or the process's end with one line that says what is missing."""
    try:
        return choose_engine("cuda")
    except BrickError as e:
        print(e, file=sys.stderr)
        raise SystemExit(2) from None


def why(error: Exception) -> str:
    """An error of whatever library in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def spoiled() -> bool:
    """Whether an error on the GPU has ended all work of this process, as one of a kernel does."""
    import cupy

    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError:
        return True
    return False


def go_on(done: int, clock: Clock) -> int:
    """Does in a new process what is left after the first `done` rows, networks or tables; its exit code."""
    print("the GPU takes no more work from this process: the rest is done by another", file=sys.stderr, flush=True)
    more = ["--append", "--skip", str(done), "--seconds", f"{clock.left:.0f}"]
    return subprocess.run([sys.executable, *sys.argv, *more]).returncode


def options(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """What every script takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=defaults.get("networks", ",".join(PAPER + MORE)))
    parser.add_argument("--rounds", type=int, default=defaults.get("rounds", 9))
    parser.add_argument("--seconds", type=float, default=500.0, help="no new row after so long")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--skip", type=int, default=0, help="so many rows, networks or tables are done")
    parser.add_argument("--append", action="store_true", help="keep the rows that the file of results has")
    return parser


def each(text: str) -> Iterator[str]:
    """The words of a list with commas."""
    yield from (part for part in text.split(",") if part)


def among(text: str, known: Iterable[str], what: str) -> list[str]:
    """The words of a list, all of them known; else the process's end with one line."""
    words, known = list(each(text)), list(known)
    strange = [word for word in words if word not in known]
    if strange:
        print(f"{what} '{strange[0]}' is unknown: use some of {', '.join(known)}", file=sys.stderr)
        raise SystemExit(2)
    return words
