"""Compiled kernels are kept for one run of the tests, unless BRICKRT_CACHE_DIR names a folder to keep them in.

Plans are made with the table's speeds, not with measured ones, so that they are the same in every run. Tests that take
long go first, so that no worker ends with one of them while the others have nothing left to take.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

LONG = (
    "tests/bench/test_gpu_kernels.py",
    "tests/runtime/cuda/schedule/test_order_of_blocks.py",
    "tests/docs/test_docs.py",
    "tests/ops/cuda/test_alignment.py",
    "tests/runtime/cuda/test_networks.py",
    "tests/runtime/cuda/test_program.py",
    "tests/runtime/cuda/test_tune.py",
)
FEW = (1 << 16) + 1  # odd, so that filters of a layer differ
_made: list[str] = []
# how long an example takes says nothing of the code where others have the cores
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="module", autouse=True)
def _compiles_in_this_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """The workers of the tests have all cores busy: helper processes, of which each loads LLVM first, take longer than
    they save. Their own tests have them all the same."""
    with pytest.MonkeyPatch.context() as patch:
        if "tests/runtime/cpu/compile/" not in request.node.nodeid:
            patch.setattr("brickrt.runtime.cpu.compile.compile_pool.KERNELS_PER_HELPER", 1 << 30)
        yield


@pytest.fixture(scope="package", autouse=True)
def _weights_repeat(request: pytest.FixtureRequest) -> Iterator[None]:
    """Weights of the zoo are drawn from a few random numbers; to draw each takes as long as many a test."""
    from brickrt.zoo import weights

    few = np.random.default_rng(0).standard_normal(FEW, dtype=np.float32)

    def normal(rng: np.random.Generator, shape: tuple[int, ...], std: float, mean: float = 0.0) -> np.ndarray:
        return np.resize(np.roll(few, -int(rng.integers(FEW))) * np.float32(std) + np.float32(mean), shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "normal", normal)
        yield


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # while tests are collected, which leaves little garbage
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # two workers with two threads each wait for each other
    os.environ["BRICKRT_CALIBRATE"] = "0"
    os.environ["BRICKRT_DEVICE"] = "cpu"
    if "BRICKRT_CACHE_DIR" not in os.environ:
        _made.append(tempfile.mkdtemp(prefix="brickrt-tests-"))
        os.environ["BRICKRT_CACHE_DIR"] = _made[0]
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and os.environ.get("PYTEST_XDIST_WORKER", "") == "gw1":
        _import_from_the_end(Path(__file__).parent)


def _import_from_the_end(folder: Path) -> None:
    """Imports all modules of tests, the last one first. Python compiles what it imports for the first time: two workers
    that go through the modules in the same order compile each of them twice, two that meet in the middle once."""
    for path in sorted(folder.rglob("test_*.py"), reverse=True):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # what fails, the collection says
            importlib.import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {path: k for k, path in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))


def pytest_collection_finish() -> None:
    """Ten thousand collected tests are not looked through again by each collection of garbage, and modules of LLVM,
    which hold many cycles while they are made, start fewer of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000_000, 20, 50)
    gc.enable()


def pytest_unconfigure() -> None:
    gc.freeze()  # what ends with a worker, millions of objects, is not looked through by pytest or Python any more
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
