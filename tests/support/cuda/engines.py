"""The CUDA engine on the host, as a device of the runtime."""

from __future__ import annotations

from typing import Any

import pytest

from brickrt.runtime.cuda.blueprint import CudaOptions
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.engines import Engine, choose_engine
from brickrt.runtime.session import runtime
from brickrt.runtime.session.runtime import Runtime
from tests.support.cuda.host_driver import HostDriver


def engine_on(driver: HostDriver, launch: str = "auto", group: int | None = None) -> Engine:
    def build(tasks: Any, constants: Any, threads: int, progress: Any) -> CudaProgram:
        return CudaProgram(tasks, driver, CudaOptions(launch, group), progress, constants)  # type: ignore[arg-type]

    return Engine("cuda", driver.spec, build, driver)


def runtime_on(
    monkeypatch: pytest.MonkeyPatch,
    driver: HostDriver,
    model: Any,
    launch: str = "auto",
    group: int | None = None,
    **options: Any,
) -> Runtime:
    """A runtime whose device "cuda" is the driver."""
    engine = engine_on(driver, launch, group)

    def choose(name: str, *rest: Any) -> Engine:
        return engine if name == "cuda" else choose_engine(name, *rest)

    monkeypatch.setattr(runtime, "choose_engine", choose)
    return Runtime(model, device="cuda", **options)
