"""Blocks write every row once and whole chunks only; strips share no chunk."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import tifffile

from brickrt import load
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.cluster.blocks import EFFICIENCY, SECONDS, block_chunks, block_lengths, cut_blocks, sweep_flops
from brickrt.runtime.cluster.cluster_job import ClusterInput, cut_plan
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_planning import whole_graph
from tests.runtime.cluster.helpers import make_case


@cache
def stream_of(name: str, rows: int, strips: tuple[int, ...] = ()) -> StreamPlan:
    with TemporaryDirectory() as folder:
        case = make_case(Path(folder), name)
        array = np.load(case.input)
        graph = whole_graph(load(case.model), {"x": TensorType(array.shape, array.dtype)}, host_device())
    return cut_plan(Pipeline(choose_engine("cpu")).plan(graph), rows, strips)


@pytest.mark.parametrize("name", ["unet", "nafnet", "uneven"])
@pytest.mark.parametrize("rows", [7, 16, 64])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("chunk", [5, 16, 50])
def test_every_row_is_written_once_in_whole_chunks(name: str, rows: int, length: int, chunk: int):
    stream = stream_of(name, rows)
    (output,) = stream.plan.graph.outputs
    extent = stream.plan.graph.types[output].shape[2]
    blocks = cut_blocks(stream, [length] * len(stream.sweeps), {output: chunk})
    for number, cut in enumerate(blocks):
        schedule = stream.sweeps[number].schedule
        assert [block.wanted for block in cut] == [0, *(block.end for block in cut[:-1])]
        assert cut[-1].end == schedule.bands
    written = [block.owned[output] for block in blocks[-1]]
    assert [lo for lo, _ in written] == [0, *(hi for _, hi in written[:-1])]
    assert written[-1][1] == extent
    assert all(hi % chunk == 0 or hi == extent for _, hi in written[:-1])
    for block in blocks[-1]:  # the bands that run give all rows that are written
        lo, hi = block.owned[output]
        rows_of = stream.sweeps[block.sweep].schedule.rows[output]
        assert lo == hi or (rows_of.lo[block.wanted] <= lo and rows_of.hi[block.reach - 1] >= hi)


def test_numbers_are_those_of_all_passes():
    stream = stream_of("pooled", 16)
    blocks = cut_blocks(stream, [4], {"y": 1})
    assert [block.number for cut in blocks for block in cut] == list(range(len(blocks[0]) + 1))
    assert blocks[-1][0].end == 0


def test_strips_share_no_chunk():
    stream = stream_of("unet", 16, (3,))
    columns = block_chunks(stream, "y")[3]
    begins = {int(one.schedule.across["y"].lo[0, 3]) for one in stream.sweeps}
    assert len(begins) == 3 and all(begin % columns == 0 for begin in begins)


def test_blocks_are_as_long_as_the_model_of_time_says():
    """Slow workers take a few bands at a time, but twice as many as run again before them; fast ones share a sweep."""
    stream = stream_of("uneven", 2)
    schedule = stream.sweeps[0].schedule
    bands, middle = schedule.bands - schedule.ahead, schedule.ahead + 30
    again = middle - stream.bands(0, middle).first
    seconds = sweep_flops(stream, 0) / (EFFICIENCY * 1e9)
    assert 0 < 2 * again < bands // 4
    assert block_lengths(stream, 2, 1e6) == (bands // 4,)
    assert block_lengths(stream, 2, seconds / (bands / 10.5 * SECONDS)) == (10,)
    assert block_lengths(stream, 2, seconds / (1e6 * SECONDS)) == (2 * again,)


def test_few_bands_are_shared_by_all_workers():
    """Though what runs again is then as much as what is new."""
    stream = stream_of("unet", 8)
    schedule = stream.sweeps[0].schedule
    assert block_lengths(stream, schedule.bands - schedule.ahead, 1e6) == (1,)


def test_workers_read_pictures_as_one_process_does(tmp_path):
    """Whole numbers of TIFF files become 0 to 1 on the command line."""
    tifffile.imwrite(tmp_path / "x.tif", np.full((8, 9, 3), 51, np.uint8))
    info, out = TensorInfo(np.dtype(np.float32), (1, 3, None, None)), np.empty((1, 3, 8, 9), np.float32)
    for images, value in ((True, 0.2), (False, 51)):
        source = ClusterInput(str(tmp_path / "x.tif"), images=images).open("x", info)
        source.read((0, 0, 0, 0), out)
        source.close()
        np.testing.assert_allclose(out, value)
