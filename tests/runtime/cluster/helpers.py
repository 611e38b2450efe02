"""Tiny networks on files, what one process makes of them, and workers that die when they are told to."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import zarr
from distributed import WorkerPlugin
from onnx import TensorProto, helper

from brickrt import load, zoo
from brickrt.runtime.cluster import block_task
from brickrt.runtime.cluster.cluster_job import ClusterInput, cut_plan
from brickrt.runtime.cluster.record_folder import BlockRecord, RecordFolder
from brickrt.runtime.cluster.run_on_cluster import ClusterOptions, ClusterReport, run_on_cluster
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_job import StreamJob, StreamOptions

ROWS = 16  # of a band


@dataclass(frozen=True)
class Case:
    """A model and an input in a folder; `length` bands are a block."""

    folder: Path
    name: str
    output: str
    length: int = 3

    @property
    def model(self) -> Path:
        return self.folder / f"{self.name}.onnx"

    @property
    def input(self) -> Path:
        return self.folder / f"{self.name}.npy"

    def local(self) -> str:
        """The digest of what one process writes, in bands as high as on the cluster."""
        source = load(self.model)
        opened = ClusterInput(str(self.input)).open("x", source.inputs["x"])
        job = StreamJob(Pipeline(choose_engine("cpu"), threads=1), source, {"x": opened}, StreamOptions(2**36))
        job.candidate = replace(job.candidate, plan=cut_plan(job.plan, ROWS, ()))  # nothing is spilled
        target = self.folder / f"{self.name}-local.zarr"
        job.run({self.output: target})
        return digest(target)

    def run(self, client, target: Path, **options) -> ClusterReport:
        asked = ClusterOptions(rows=ROWS, length=self.length, **options)
        return run_on_cluster(client, self.model, {"x": self.input}, {self.output: target}, asked)


def interrupted(case: Case, client, target: Path, block: int, mark: Path) -> list[int]:
    """A run that fails at a block; returns the blocks that have records once no worker is busy with it any more."""
    client.register_plugin(Fails("before", block, mark))
    try:
        with pytest.raises(OSError, match="the disk is gone"):
            case.run(client, target)
        while any(client.run(busy).values()):
            time.sleep(0.02)
    finally:
        client.unregister_worker_plugin("dies")
    folder = RecordFolder.beside(target)
    return [int(path.name.split("-")[1]) for path in sorted(folder.path.glob("block-*")) if path.suffix != ".part"]


def busy() -> bool:
    return block_task._lock.locked()


def digest(path: Path) -> str:
    return hashlib.sha256(np.ascontiguousarray(zarr.open(str(path))[:]).tobytes()).hexdigest()


def make_case(folder: Path, name: str) -> Case:
    """unet: one pass. nafnet: three, of two global pools. uneven: bands that end inside of chunks. pooled: an output
    that is known after all sweeps."""
    makers: dict[str, Callable[[], onnx.ModelProto]] = {
        "unet": lambda: zoo.build("unet", size=(192, 48), width=4, levels=2),
        "nafnet": lambda: zoo.build("nafnet", size=(192, 48), width=4, blocks=2),
        "uneven": lambda: small_network(pooled=False),
        "pooled": lambda: small_network(pooled=True),
    }
    model = makers[name]()
    onnx.save(model, folder / f"{name}.onnx")
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    np.save(folder / f"{name}.npy", np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    return Case(folder, name, model.graph.output[0].name)


def small_network(pooled: bool) -> onnx.ModelProto:
    """x → conv → relu → conv without padding → y, or → pool → y."""
    rng = np.random.default_rng(1)
    weights = {
        "a": rng.standard_normal((4, 2, 3, 3)).astype(np.float32),
        "b": rng.standard_normal((3, 4, 5, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["d" if pooled else "y"]),
    ]
    if pooled:
        nodes.append(helper.make_node("GlobalAveragePool", ["d"], ["y"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 150, 40])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, *((1, 1) if pooled else (146, 36))])]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


class Dies(WorkerPlugin):
    """A worker kills itself at a block, once: before or after its record is written, or when it is begun. `mark` is
    there from then on."""

    name = "dies"

    def __init__(self, when: str, block: int, mark: Path) -> None:
        self.when, self.block, self.mark = when, block, mark

    def setup(self, worker) -> None:
        self.finish, self.log = RecordFolder.finish, RecordFolder.log

        def finish(folder: RecordFolder, number: int, record: BlockRecord) -> None:
            self.die("before", number)
            self.finish(folder, number, record)
            self.die("after", number)

        def log(folder: RecordFolder, number: int, what: str) -> None:
            self.log(folder, number, what)
            self.die(what, number)

        RecordFolder.finish, RecordFolder.log = finish, log  # type: ignore[method-assign]

    def teardown(self, worker) -> None:
        RecordFolder.finish, RecordFolder.log = self.finish, self.log  # type: ignore[method-assign]

    def die(self, when: str, number: int) -> None:
        if (when, number) == (self.when, self.block) and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Fails(Dies):
    """A block fails instead, and workers take their time, so that others are under way."""

    def die(self, when: str, number: int) -> None:
        if when == "before":
            time.sleep(0.05)
        if (when, number) == (self.when, self.block) and not self.mark.exists():
            self.mark.touch()
            raise OSError("the disk is gone")
