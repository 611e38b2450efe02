"""Lazy arrays have the bits of the whole network, and depend on the chunks that they need."""

from __future__ import annotations

import math
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import xarray

import brickrt
from brickrt import BrickError, Runtime, lazy, zoo
from brickrt.ops.types import Boxes, TensorType
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cluster.lazy_array import input_region
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_planning import whole_graph
from tests.runtime.cluster.helpers import make_case, small_network


def parts(result: da.Array, at: tuple[int, ...], array: da.Array) -> set[tuple[int, ...]]:
    """The input's chunks that a chunk of the result depends on."""
    graph = result.__dask_graph__().cull({(result.name, *at)})
    return {key[1:] for key in graph if isinstance(key, tuple) and key[0] == array.name}


def some(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_the_whole_and_a_part_have_the_bits_of_the_network():
    model = zoo.build("unet", size=(64, 128), width=2, levels=1)
    x = (
        some((1, 3, 64, 128))
        if model.graph.input[0].type.tensor_type.shape.dim[1].dim_value == 3
        else some((1, 1, 96, 160))
    )
    expected = Runtime(model, exact=True).execute({"x": x})["y"]
    result = lazy(model, da.from_array(x, chunks=(1, -1, 16, 64)), exact=True)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    assert result.numblocks[2] == 4 and result.numblocks[3] > 1
    assert (result.compute() == expected).all()
    assert (result[:, :, 30:40, 100:].compute() == expected[:, :, 30:40, 100:]).all()


def test_a_chunk_depends_on_its_region(tmp_path: Path):
    """Chunks of 10 rows; 3×3 and 5×5 layers read one row above and five below."""
    x = da.from_array(some((1, 2, 150, 40)), chunks=(1, 2, 10, 40))
    result = lazy(small_network(pooled=False), x, exact=True)
    rows = np.cumsum([0, *result.chunks[2]])
    for k in range(result.numblocks[2]):
        first, end = max(0, rows[k] - 1), min(150, rows[k + 1] + 5)
        expected = {(0, 0, row, 0) for row in range(first // 10, -(-end // 10))}
        assert parts(result, (0, 0, k, 0), x) == expected


def test_chunks_that_are_not_needed_are_not_computed():
    """Those that hold NaN are never asked for."""
    read: list[int] = []

    def block(block_info=None) -> np.ndarray:
        read.append(block_info[None]["chunk-location"][2])
        return np.ones(block_info[None]["chunk-shape"], np.float32)

    x = da.map_blocks(block, chunks=((1,), (2,), (10,) * 15, (40,)), dtype=np.float32, meta=np.ones(0, np.float32))
    with dask.config.set(scheduler="synchronous"):
        lazy(small_network(pooled=False), x, exact=True)[:, :, 61:69].compute()
    assert sorted(read) == [5, 6, 7]


def test_regions_are_exact():
    """A change of any pixel inside changes the box, and of none outside: on a network without padding to hide it."""
    model = small_network(pooled=False)
    x = some((1, 2, 150, 40))
    graph = whole_graph(brickrt.load(model), {"x": TensorType(x.shape, x.dtype)}, host_device())
    plan = Pipeline(choose_engine("cpu")).plan(graph)
    region = input_region(plan.graph, "y", Boxes.one((0, 0, 20, 8), (1, 3, 24, 12)))
    assert region.lo[0].tolist() == [0, 0, 19, 7]
    assert region.hi[0].tolist() == [1, 2, 29, 17]


def test_workers_compute_it(client):
    model = small_network(pooled=False)
    x = some((1, 2, 150, 40))
    expected = Runtime(model, exact=True).execute({"x": x})["y"]
    result = lazy(model, da.from_array(x, chunks=(1, 2, 40, 40)), exact=True)
    assert (client.compute(result).result() == expected).all()


def test_labelled_arrays_keep_what_stays():
    model = small_network(pooled=False)
    x = da.from_array(some((1, 2, 150, 40)), chunks=(1, 2, 50, 40))
    array = xarray.DataArray(
        x, dims=("time", "band", "y", "x"), coords={"time": [2020], "band": ["red", "green"], "y": np.arange(150)}
    )
    result = lazy(model, array)
    assert isinstance(result, xarray.DataArray) and result.dims == array.dims
    assert list(result.coords) == ["time"]
    assert result.shape == (1, 3, 146, 36)


def test_refusals(tmp_path: Path):
    case = make_case(tmp_path, "nafnet")
    shape = np.load(case.input).shape
    with pytest.raises(BrickError, match="needs all rows at once: run it from files to files, by run_on_cluster"):
        lazy(case.model, da.zeros(shape, dtype=np.float32, chunks=(1, -1, 64, -1)))
    small = small_network(pooled=False)
    with pytest.raises(BrickError, match="ndarray: is no Dask array"):
        lazy(small, np.zeros((1, 2, 150, 40), np.float32))
    with pytest.raises(BrickError, match="float64"):
        lazy(small, da.zeros((1, 2, 150, 40), chunks=50))
    unknown = da.zeros((1, 2, 150, 40), dtype=np.float32, chunks=50)
    unknown._chunks = (*unknown.chunks[:2], (math.nan,), unknown.chunks[3])
    with pytest.raises(BrickError, match="compute_chunk_sizes"):
        lazy(small, unknown)
