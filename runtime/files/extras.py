"""Packages that only some formats need."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import cast

from brickrt.graph.errors import BrickError

GPU_ARRAYS = "cupy"

_left_out: list[str] = []


def needed(package: str, name: str, extra: str = "files") -> ModuleType:
    """The package, imported. Raises BrickError, which says what to install, where it is missing; `name` is the file."""
    if find_spec(package) is None:
        raise BrickError(f'{name}: needs the package {package}: pip install "brickrt[{extra}]"')
    with _hidden([other for other in _left_out if other not in sys.modules]):
        return import_module(package)


def brings_gpu_arrays() -> bool:
    """Whether zarr, once it is imported, brings CuPy along: 170 MiB, which a process should have before it measures
    what it takes."""
    imported = sys.modules.keys() & {"zarr", GPU_ARRAYS}
    return not imported and GPU_ARRAYS not in _left_out and find_spec(GPU_ARRAYS) is not None


@contextmanager
def leaving_out(*packages: str) -> Iterator[None]:
    """While this lasts, what `needed` imports finds none of these packages, unless they are imported already. For
    processes that are all ours: zarr imports CuPy where it is installed, for arrays on GPUs, which takes 170 MiB."""
    _left_out.extend(packages)
    try:
        yield
    finally:
        del _left_out[-len(packages) :]


@contextmanager
def _hidden(packages: Collection[str]) -> Iterator[None]:
    """Imports of the packages fail, since Python finds None where a module would be."""
    modules = cast(dict[str, ModuleType | None], sys.modules)
    modules.update(dict.fromkeys(packages))
    try:
        yield
    finally:
        for package in packages:
            if modules.get(package) is None:
                modules.pop(package, None)
