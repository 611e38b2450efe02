"""CUDA's libraries and headers where packages and toolkits keep them.

Libraries that others look for by name alone are loaded beforehand: the loader's search path knows nothing of packages,
and takes what is loaded already.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def folders(kind: str) -> Iterator[Path]:
    """Where packages and toolkits keep "lib" or "include"."""
    spec = importlib.util.find_spec("nvidia")
    for package in map(Path, spec.submodule_search_locations or () if spec else ()):
        yield from (package / part / kind for part in ("cu13", "cuda_nvrtc", "cuda_runtime", "cublas", "cudnn"))
    for toolkit in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if toolkit:
            yield from (Path(toolkit) / part for part in (kind, f"{kind}64"))


def load_library(name: str) -> None:
    """Loads the first lib`name` that is found, the newest of a folder; else whoever wants it looks by itself."""
    for folder in folders("lib"):
        for path in sorted(folder.glob(f"lib{name}.so.*"), reverse=True):
            with suppress(OSError):
                ctypes.CDLL(str(path))
                return
