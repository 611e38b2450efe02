"""Imports what programs of tests import, most of brickrt among it: for the server whose forks they are (forks.py)."""

from __future__ import annotations

import contextlib
import gc
import pkgutil
from importlib import import_module

import brickrt

ELSEWHERE = ("brickrt.compare", "brickrt.ops.cuda", "brickrt.runtime.cuda")  # what their modules import takes long
OTHERS = (
    "distributed",
    "h5py",
    "llvmlite.binding",
    "nibabel",
    "PIL.Image",
    "tests.fuzz.case_runner",
    "tifffile",
    "zarr",
)

for module in pkgutil.walk_packages(brickrt.__path__, "brickrt."):
    if not module.name.startswith(ELSEWHERE) and not module.name.endswith("__main__"):
        import_module(module.name)
for name in OTHERS:
    with contextlib.suppress(ImportError):  # an extra that is not there
        import_module(name)
gc.freeze()  # forks share these pages as long as nobody writes to them
