"""The cases of nodes of ONNX's backend suite, by part: a module of the suite, which makes them when it is imported.

That takes many seconds for all of them; what one process of a run of the tests has made is kept for the others.
"""

from __future__ import annotations

import os
import pickle
import pkgutil
import tempfile
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase

NODES = f"{node.__name__}."
MODULES = [found.name.removeprefix(NODES) for found in pkgutil.walk_packages(node.__path__, NODES) if not found.ispkg]
PARTS = [name for name in MODULES if not name.startswith("_")]
# read here, since tests change BRICKRT_CACHE_DIR
CACHE = Path(os.environ.get("BRICKRT_CACHE_DIR") or tempfile.mkdtemp(prefix="brickrt-onnx-"))
FOLDER = CACHE / f"tests-onnx-cases-{onnx.__version__}-{np.__version__}"


@cache
def cases_of(part: str) -> list[TestCase]:
    """Cases of one of `PARTS`."""
    kept = FOLDER / f"{part}.pickle"
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    made = _made(part)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:  # several may make it at once
        whole = Path(folder, "whole")
        whole.write_bytes(pickle.dumps(made))
        whole.replace(kept)
    return made


def _made(part: str) -> list[TestCase]:
    before = len(node._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module(NODES + part)
    made = node._NodeTestCases[before:]
    assert made, f"{part} makes no cases, or something else has imported it"
    return made
