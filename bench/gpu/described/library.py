"""cuDNN as the library of the CUDA engine, on a described device: it plans, and runs nothing."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from brickrt.ops.cuda.cudnn.form import Form, Unfit
from brickrt.ops.cuda.cudnn.graph import CudnnPlan
from brickrt.runtime.cuda.driver.protocol import Stream

HERE = Path(__file__).parent
SOURCE = HERE / "fake_cuda.c"
COMPILER = shutil.which("cc")
PACKAGES = ("nvidia-cudnn-frontend", "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cuda-nvrtc")
SONAME = "libcuda.so.1"


def missing() -> str | None:
    """What planning needs that is not here, and how to get it; None if all is."""
    if sys.platform != "linux":
        return "cuDNN plans for described devices on Linux only"
    if COMPILER is None:
        return "the fake runtime needs a C compiler, cc"
    absent = [name for name in PACKAGES if not _installed(name)]
    return f"cuDNN is missing: pip install --no-deps {' '.join(absent)}" if absent else None


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
        return True
    except metadata.PackageNotFoundError:
        return False


def compiled(folder: Path) -> Path:
    """The fake runtime and driver, compiled into a folder."""
    made = folder / SONAME
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}"]
    subprocess.run([str(COMPILER), *flags, str(SOURCE), "-o", str(made)], check=True)
    return made


@dataclass(frozen=True)
class Answer:
    """What cuDNN said to a form: the name of the first plan that it built, its workspace in bytes and, for float32,
    whether it uses tensor cores; or why it `refused`. `crashed` if its process ended instead."""

    plan: str = ""
    workspace: int = 0
    tensor_cores: bool = False
    refused: str | None = None
    crashed: bool = False
    seconds: float = 0.0


class DescribedLibrary:
    """A `ProductLibrary` for a described device, with cuDNN in a process of its own. `answers` has all forms asked."""

    def __init__(self, device: str) -> None:
        """Raises RuntimeError where cuDNN does not start; `missing` says beforehand what is not installed."""
        self.device, self.version = device, ""
        self.answers: dict[Form, Answer] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="brickrt-described-")
        self._log = Path(self._folder.name) / "log"
        self._runtime = compiled(Path(self._folder.name))
        self._start()

    def __enter__(self) -> DescribedLibrary:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends cuDNN's process."""
        self._end()
        self._folder.cleanup()

    def plan(self, form: Form) -> CudnnPlan:
        """See `ProductLibrary`."""
        if form not in self.answers:
            self.answers[form] = self._ask(form)
        found = self.answers[form]
        if found.refused is not None:
            raise Unfit(found.refused)
        return CudnnPlan(form, _run, found.workspace, b"")

    def run(self, plan: CudnnPlan, addresses: Sequence[int], workspace: int, stream: Stream) -> None:
        """See `ProductLibrary`. Raises RuntimeError: a described device runs nothing."""
        plan.run(addresses, workspace)

    def _start(self) -> None:
        command = [sys.executable, "-m", "bench.gpu.described.worker", str(self._runtime), self.device]
        with self._log.open("wb") as log:
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            self._worker = subprocess.Popen(command, cwd=HERE.parents[2], **pipes)
        version = self._line()
        if version is None:
            raise RuntimeError(f"cuDNN does not plan for a described device: {self._said()}")
        self.version = str(version)

    def _ask(self, form: Form) -> Answer:
        assert self._worker.stdin is not None
        start = time.monotonic()
        with suppress(BrokenPipeError):  # then there is no answer either
            pickle.dump(form, self._worker.stdin)
            self._worker.stdin.flush()
        said = self._line()
        seconds = round(time.monotonic() - start, 3)
        if said is None:
            why = f"cuDNN's process ended: {self._said()}"
            self._end()
            self._start()
            return Answer(refused=why, crashed=True, seconds=seconds)
        return Answer(**said, seconds=seconds)

    def _line(self) -> Any:
        assert self._worker.stdout is not None
        line = self._worker.stdout.readline()
        return json.loads(line) if line else None

    def _said(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else f"exit code {self._worker.wait()}"

    def _end(self) -> None:
        for stream in (self._worker.stdin, self._worker.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        self._worker.wait()


def _run(addresses: Sequence[int], workspace: int) -> None:
    """What each plan has to run it."""
    raise RuntimeError("a device that is only described runs no plan of cuDNN")
