"""A network of a lazy array: each chunk of the result depends on the input chunks that it needs, and no others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError, InputError
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.check_inputs import check_input_types
from brickrt.graph.onnx_import.source import Model, SourceGraph, load
from brickrt.ops.types import Boxes, Shape, TensorType
from brickrt.plan.options import PlanOptions
from brickrt.plan.stream.stream_plan import AXIS, StreamPlan
from brickrt.runtime.cache.saved_plan import plan_file_text
from brickrt.runtime.cluster.cluster_job import cut_plan
from brickrt.runtime.cluster.lazy_task import LazyJob, Piece, run_chunk
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.files.extras import needed
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_planning import whole_graph


@dataclass(frozen=True)
class LazyChunk:
    """A chunk of the result: where it is in the grid of chunks, its sweep and band, its box and the input's region."""

    at: tuple[int, ...]
    sweep: int
    band: int
    lo: Shape
    region: Boxes


def lazy(model: Model | SourceGraph, array: Any, *, exact: bool = False) -> Any:
    """What a model computes of a Dask array, or of an xarray DataArray of one, as another that nothing is computed of
    yet.

    Its chunks are about as many rows and columns as the input's; each depends on the chunks that its region of the
    input lies in. For models of one input and one output in which no node needs all rows, such as a global pool: those
    are run by `run_on_cluster`. Results are those of `execute` within 1e-5, with `exact` the same bits. Of a DataArray,
    coordinates of axes that stay as long are kept, but for channels. Raises BrickError where the model is none of
    these, and InputError where the array does not fit."""
    if hasattr(array, "dims") and hasattr(array, "coords"):
        return _labelled(array, lazy(model, array.data, exact=exact))
    core = _dask_array(array)
    source = model if isinstance(model, SourceGraph) else load(model)
    if len(source.inputs) != 1 or len(source.outputs) != 1:
        raise BrickError(f"the model has {len(source.inputs)} inputs and {len(source.outputs)} outputs: use one each")
    job, stream = _planned(source, array, exact)
    output = stream.plan.graph.outputs[0]
    kind = stream.plan.graph.types[output]
    chunks = list(_chunks(stream, output))
    name = f"brickrt-{array.name}-{job.digest[:16]}"
    layer: dict[Any, Any] = {f"{name}-job": _data_node(f"{name}-job", job)}
    for chunk in chunks:
        key = (name, *chunk.at)
        layer[key] = _task(key, f"{name}-job", chunk, array)
    graph = needed("dask.highlevelgraph", "a lazy array", "dask").HighLevelGraph.from_collections(
        name, layer, dependencies=[array]
    )
    return core.Array(graph, name, _grid(chunks, kind), dtype=kind.dtype)


def _dask_array(array: Any) -> Any:
    """The package dask.array. Raises InputError where `array` is none of its arrays."""
    needed("dask", "a lazy array", "dask")
    core = needed("dask.array", "a lazy array", "dask")
    if not isinstance(array, core.Array):
        raise InputError(f"{type(array).__name__}: is no Dask array: use dask.array.from_array, or from_zarr")
    if any(extent != extent for extent in array.shape):
        raise InputError("the array's shape is not known: call its compute_chunk_sizes first")
    return core


def _planned(source: SourceGraph, array: Any, exact: bool) -> tuple[LazyJob, StreamPlan]:
    """The plan whose bands and strips are about the array's chunks."""
    name = next(iter(source.inputs))
    kind = TensorType(tuple(map(int, array.shape)), np.dtype(array.dtype))
    check_input_types(source, {name: kind})
    engine = choose_engine("cpu")
    pipeline = Pipeline(engine, PlanOptions(exact=exact))
    graph = pipeline.as_planned(whole_graph(source, {name: kind}, engine.spec))
    if kind.rank <= AXIS or graph.types[graph.outputs[0]].rank <= AXIS:
        raise BrickError("the model's input or output has no rows: compute it whole")
    plan = pipeline.plan(graph, measured=False)
    tall = max(graph.types[n].shape[AXIS] for n in (*graph.inputs, *graph.outputs))
    rows = max(1, max(array.chunks[AXIS]) * tall // kind.shape[AXIS])
    strips = tuple(len(parts) for parts in array.chunks[AXIS + 1 :])
    stream = cut_plan(plan, rows, strips)
    if stream.swept.passes > 1 or stream.swept.collected or stream.plan.graph.outputs[0] not in stream.swept.level:
        raise BrickError("a node of the model needs all rows at once: run it from files to files, by run_on_cluster")
    text = plan_file_text(graph, plan)
    digest = hashlib.sha256(text.encode() + f"{rows} {strips}".encode())
    for constant, values in sorted(graph.constants.items()):
        digest.update(constant.encode() + np.ascontiguousarray(values).tobytes())
    return LazyJob(digest.hexdigest(), source, name, kind, text, rows, strips), stream


def _chunks(stream: StreamPlan, output: str) -> Iterator[LazyChunk]:
    """All chunks of the result: bands of strips that have rows."""
    graph = stream.plan.graph
    begins = [
        sorted({int(one.schedule.across[output].lo[0, axis]) for one in stream.sweeps})
        for axis in range(AXIS + 1, graph.types[output].rank)
    ]
    for sweep, one in enumerate(stream.sweeps):
        schedule = one.schedule
        column = [begin.index(int(lo)) for begin, lo in zip(begins, schedule.across[output].lo[0, AXIS + 1 :])]
        bands = [band for band in range(schedule.bands) if schedule.box(output, band).volumes[0]]
        for row, band in enumerate(bands):
            box = schedule.box(output, band)
            region = input_region(graph, output, box)
            yield LazyChunk((*(0,) * AXIS, row, *column), sweep, band, tuple(box.extents[0].tolist()), region)


def input_region(graph: Graph, output: str, box: Boxes) -> Boxes:
    """The region of the graph's only input that a box of its output needs."""
    found = {output: box}
    for node in reversed(graph.nodes):
        for i, name in enumerate(node.inputs if node.output in found else ()):
            if name not in graph.constants:
                region = node.op.region(i, found[node.output], graph.ins(node), graph.out(node))
                found[name] = region.union(found[name]) if name in found else region
    whole = graph.types[graph.inputs[0]].shape
    return found[graph.inputs[0]].clip(whole)


def _task(key: tuple[Any, ...], job: str, chunk: LazyChunk, array: Any) -> Any:
    """The task of a chunk, which depends on the chunks that its region lies in."""
    spec = needed("dask._task_spec", "a lazy array", "dask")
    ranges = []
    for parts, lo, hi in zip(array.chunks, chunk.region.lo[0].tolist(), chunk.region.hi[0].tolist(), strict=True):
        ends = np.cumsum(parts).tolist()
        starts = [0, *ends[:-1]]
        ranges.append([(k, a) for k, (a, b) in enumerate(zip(starts, ends)) if a < hi and b > lo])
    pieces = [
        spec.Task(None, Piece, tuple(a for _, a in at), spec.TaskRef((array.name, *(k for k, _ in at))))
        for at in product(*ranges)
    ]
    return spec.Task(key, run_chunk, spec.TaskRef(job), chunk.sweep, chunk.band, spec.List(*pieces))


def _data_node(key: str, job: LazyJob) -> Any:
    return needed("dask._task_spec", "a lazy array", "dask").DataNode(key, job)


def _grid(chunks: list[LazyChunk], kind: TensorType) -> tuple[tuple[int, ...], ...]:
    """The extents of chunks along each axis."""
    found: list[dict[int, int]] = [{} for _ in kind.shape]
    for chunk in chunks:
        for axis, (at, extent) in enumerate(zip(chunk.at, chunk.lo, strict=True)):
            found[axis][at] = extent
    return tuple(tuple(extents[at] for at in sorted(extents)) for extents in found)


def _labelled(array: Any, result: Any) -> Any:
    """The result with the names of the axes, and the coordinates of those that stay as long."""
    if len(result.shape) != len(array.dims):
        return result
    pairs = enumerate(zip(array.dims, array.shape, result.shape))
    same = {dim for axis, (dim, before, after) in pairs if before == after and axis != 1}
    coords = {name: one for name, one in array.coords.items() if set(one.dims) <= same}
    return type(array)(result, dims=array.dims, coords=coords, name=array.name)
