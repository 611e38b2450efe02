"""The demo's engines, each measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from brickrt.compare.peers import lacking

ENGINES = ("bricks", "layerwise", "onnxruntime")


@dataclass(frozen=True)
class EngineFigures:
    """What was measured of one engine: milliseconds (median, least, most) of its timed runs, growth of resident memory
    in bytes (None where the system does not tell), PSNR of its result in dB."""

    ms: dict[str, float]
    runs: int
    peak_bytes: int | None
    psnr: float


@dataclass(frozen=True)
class DemoPictures:
    """The pictures that all engines get, as bytes [height, width, 3], and how they are run: at most `runs` times."""

    clean: np.ndarray
    noisy: np.ndarray
    threads: int
    runs: int


def measure(engine: str, subject: DemoPictures) -> EngineFigures | str:
    """The engine's figures, or why there are none."""
    reason = lacking(engine) if engine == "onnxruntime" else None
    if reason is not None:
        return reason
    with tempfile.TemporaryDirectory(prefix="brickrt-demo-") as folder:
        np.save(Path(folder, "clean.npy"), subject.clean)
        np.save(Path(folder, "noisy.npy"), subject.noisy)
        words = [engine, folder, str(subject.threads), str(subject.runs)]
        # -P: what lies in the current folder is not imported
        child = [sys.executable, "-P", "-m", "brickrt.demo.child", *words]
        ended = subprocess.run(child, capture_output=True, text=True)
    if ended.returncode:
        return _failure(ended)
    found = json.loads(ended.stdout)
    ms = found["ms"]
    return EngineFigures(
        {"median": median(ms), "min": min(ms), "max": max(ms)}, len(ms), found["peak_bytes"], found["psnr"]
    )


def _failure(ended: subprocess.CompletedProcess[str]) -> str:
    """Why a process failed: the last line that it wrote, or the signal that ended it."""
    if ended.returncode < 0:
        return f"ended by signal {-ended.returncode}: there may not be memory enough: use a smaller --size"
    return "failed: " + (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
