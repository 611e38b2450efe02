"""Models in fused bricks on a driver of the host, compared with their definitions.

`python -m tests.support.cuda.fused_runs` does so for the networks of the zoo, in every precision: for an hour with
the race checker, a quarter of one with fibers (`--arch none`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import numpy as np
import onnx
import pytest

from brickrt import zoo
from brickrt.graph.onnx_import.source import load
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.host_driver import HostDriver
from tests.support.cuda.zoo_runs import network
from tests.support.graphs.by_definition import run_model

FUSED_TOLERANCE = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}  # of the largest value
LARGE = ("deepcam", "resnet34-3d")  # bricks of 4 would mostly compute the halos of many layers


def check_fused(monkeypatch: pytest.MonkeyPatch, driver: HostDriver, model: onnx.ModelProto, precision: str) -> None:
    """Runs a model of one input x in fused bricks of 4, twice with the same bits."""
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = fused_error(monkeypatch, driver, model, x, run_model(load(model), {"x": x})["y"], precision)
    assert found["error"] <= FUSED_TOLERANCE[precision] and found["same"] and found["fused"]


def fused_error(
    monkeypatch: pytest.MonkeyPatch,
    driver: HostDriver,
    model: onnx.ModelProto,
    x: np.ndarray,
    want: np.ndarray,
    precision: str,
    brick: int = 4,
) -> dict[str, Any]:
    """The largest error relative to the largest value, whether two runs have the same bits, and how many subgraphs of
    how many nodes were fused."""
    how = {"precision": precision, "strategy": "fused", "brick": brick}
    runtime = runtime_on(monkeypatch, driver, model, "graph", **how)  # type: ignore[arg-type]
    first = runtime.execute({"x": x})["y"]
    again = runtime.execute({"x": x})["y"]
    driver.check()
    fused = [s for p in runtime.plan.programs for s in p.tasks.plan.subgraphs if s.strategy == "fused"]
    assert first.shape == want.shape
    error = float(np.abs(first.astype(np.float64) - want).max() / np.abs(want).max())
    nodes = sum(len(s.nodes) for s in fused)
    return {"error": error, "same": first.tobytes() == again.tobytes(), "fused": len(fused), "nodes": nodes}


def processor_seconds() -> float:
    """What this process has taken, and compilers that it has run."""
    return sum(os.times()[:4])


def main() -> int:
    """A line of JSON per network and precision; 1 where one is wrong."""
    from tests.support.ptx.driver import PtxDriver

    parser = argparse.ArgumentParser(prog="python -m tests.support.cuda.fused_runs", description=__doc__)
    parser.add_argument("--networks", default=",".join(zoo.names()))
    parser.add_argument("--precisions", default=",".join(FUSED_TOLERANCE))
    parser.add_argument("--arch", default="sm_90", help="what PTX is made for; none: fibers, without the race checker")
    asked, wrong = parser.parse_args(), 0
    for name in asked.networks.split(","):
        for precision in asked.precisions.split(","):
            began, driver = processor_seconds(), HostDriver() if asked.arch == "none" else PtxDriver(arch=asked.arch)
            with pytest.MonkeyPatch.context() as patch:
                model, feeds, want = network(name)
                found = fused_error(patch, driver, model, feeds["x"], want, precision, 8 if name in LARGE else 4)
            good = found["error"] <= FUSED_TOLERANCE[precision] and found["same"]
            wrong += not good
            row = {"network": name, "precision": precision, "arch": asked.arch, "good": good, **found}
            print(json.dumps(row | {"processor_s": round(processor_seconds() - began, 1)}), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
