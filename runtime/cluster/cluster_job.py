"""What every worker is told of a run: the files, the options, and the plan that it must come to as well."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from brickrt.graph.errors import BrickError, InputError
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.plan import Plan
from brickrt.plan.stream.stream_plan import AXIS, StreamPlan, StreamPlanner
from brickrt.runtime.cache.plan_cache import model_digest
from brickrt.runtime.files.formats.file_formats import is_zarr
from brickrt.runtime.files.identity import FilesRead
from brickrt.runtime.files.model_inputs import Pixels, as_input
from brickrt.runtime.files.source import open_source
from brickrt.runtime.files.tensors import TensorSink, TensorSource, as_file, if_float
from brickrt.runtime.lowering.arena import view_aliases
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices


@dataclass(frozen=True)
class ClusterInput:
    """A file that all workers can read. Values become (value × scale − mean) / std where one of them is given; `dtype`
    and `shape` are for raw files. With `images`, whole numbers of TIFF files become 0 to 1 where no scale is given."""

    path: str
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    images: bool = False

    def open(self, name: str, info: TensorInfo) -> TensorSource:
        """The file as the model's input. Raises InputError where it does not fit."""
        if info.dtype is None or info.shape is None:
            raise InputError(f"input '{name}' of the model has no shape: it is not read from a file")
        pixels = Pixels(self.scale, self.mean, self.std, images=self.images)
        source = open_source(self.path, dtype=self.dtype, shape=self.shape)
        try:
            return as_input(source, info, pixels)
        except BaseException:
            source.close()
            raise


def cluster_inputs(
    inputs: Mapping[str, str | Path | ClusterInput], outputs: Mapping[str, str | Path]
) -> dict[str, ClusterInput]:
    """The files under names that do not depend on the folder a worker was started in. Raises BrickError where one of
    the outputs is one of them."""
    files = {name: _with_whole_path(one) for name, one in inputs.items()}
    read = FilesRead(one.path for one in files.values())
    for name, path in outputs.items():
        read.check(f"output '{name}'", path)
    return files


def _with_whole_path(one: str | Path | ClusterInput) -> ClusterInput:
    found = one if isinstance(one, ClusterInput) else ClusterInput(str(one))
    return found if "://" in found.path else replace(found, path=str(Path(found.path).absolute()))


@dataclass(frozen=True)
class ClusterOutput:
    """A Zarr array that all workers write to; `stored` and `scale` are those of `as_file`."""

    path: str
    chunks: Shape
    stored: str | None = None
    scale: float | None = None

    def open(self, kind: TensorType, resume: bool) -> TensorSink:
        """The array as the model's output."""
        if not is_zarr(self.path):
            raise BrickError(f"{self.path}: workers of a cluster write Zarr together: give a name that ends in .zarr")
        stored, scale = if_float(kind.dtype, self.stored, self.scale)
        return as_file(
            self.path,
            kind.shape,
            kind.dtype,
            stored=stored,
            scale=scale,
            axis=min(AXIS, kind.rank - 1),
            resume=resume,
            chunks=self.chunks,
        )


@dataclass(frozen=True)
class ClusterJob:
    """One run: its number `run`, the folder of its records, the files, how the plan is cut and the plan's digest; the
    tensors that are `spilled` into files in the folder `scratch`; of how many bands a worker has tables at a time, of
    all where `held` is None."""

    run: str
    folder: str
    model: str
    inputs: Mapping[str, ClusterInput]
    outputs: Mapping[str, ClusterOutput]
    rows: int
    strips: tuple[int, ...]
    spilled: tuple[str, ...]
    scratch: str
    header: Mapping[str, str]
    isa: str
    threads: int
    held: int | None = None


def input_types(inputs: Mapping[str, TensorSource]) -> dict[str, TensorType]:
    """Shapes and types of files that are open."""
    return {name: TensorType(one.shape, one.dtype) for name, one in inputs.items()}


def cut_plan(plan: Plan, rows: int, strips: tuple[int, ...], spilled: tuple[str, ...] = ()) -> StreamPlan:
    """The plan in bands of `rows` rows and so many strips, of which these tensors are spilled."""
    planner = StreamPlanner.of(plan, find_inplace_slices(plan), view_aliases(plan))
    return with_usual_rows(planner.spilling(spilled).stream_plan(rows, strips))


def with_usual_rows(stream: StreamPlan) -> StreamPlan:
    """The plan, if blocks can be cut of it. Raises BrickError where an input or output has its rows along another axis
    than the third."""
    graph, swept = stream.plan.graph, stream.swept
    for name in (*graph.inputs, *graph.outputs):
        if name in swept.level and swept.axes.of(name) != AXIS:
            raise BrickError(
                f"'{name}' {graph.types[name]} has its rows along axis {swept.axes.of(name)}: workers of a cluster "
                f"cut along axis {AXIS}: run it on one machine, or transpose it in the model"
            )
    return stream


def job_header(
    graph: Graph, stream: StreamPlan, inputs: Mapping[str, TensorSource], outputs: Mapping[str, ClusterOutput]
) -> dict[str, str]:
    """Digests of what a run is of: coordinator and workers, and a run that goes on, must have the same."""
    plan = stream.plan
    return {
        "model": model_digest(graph, plan.device, plan.options, graph.constants),
        "input": " ".join(f"{name}:{one.identity()}" for name, one in sorted(inputs.items())),
        "plan": stream_digest(stream),
        "instruction set": plan.device.isa,
        "output": " ".join(f"{Path(one.path).name} {one.stored} {one.scale}" for one in outputs.values()),
    }


def stream_digest(stream: StreamPlan) -> str:
    """A digest of all boxes that the bands of all sweeps compute."""
    digest = hashlib.sha256(f"{stream.rows} {stream.strips} {stream.spilled} {stream.plan.algorithms}".encode())
    for unit in stream.units:
        digest.update(f"{unit.members} {unit.strategy} {unit.brick} {unit.band} {unit.node_bricks}".encode())
    for one in stream.sweeps:
        digest.update(f"{one.number} {one.schedule.units} {one.schedule.targets}".encode())
        for name, rows in one.schedule.rows.items():
            across = one.schedule.across[name]
            digest.update(name.encode() + b"".join(a.tobytes() for a in (rows.keep, rows.lo, rows.hi)))
            digest.update(across.lo.tobytes() + across.hi.tobytes())
    return digest.hexdigest()[:32]
