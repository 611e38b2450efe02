"""Images with their channels innermost, for compiled functions that read all of a pixel at once."""

from __future__ import annotations

import numpy as np

from brickrt.graph.host.helpers import run_items
from brickrt.ops.cpu.fixed_function import item_loop
from brickrt.ops.cpu.host_loops import CHANNELS_LAST_WORDS, LANES, in_order


def channels_last(x: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
    """The pixels in these rows and columns of float32 images [images, channels, height, width], which are in row-major
    order: [images, rows, columns, channels], columns and channels in whole vectors, whose ends may hold anything."""
    x = np.ascontiguousarray(x)
    images, channels = x.shape[:2]
    height, width = rows.stop - rows.start, columns.stop - columns.start
    out = np.empty((images, height, whole(width), whole(channels)), np.float32)
    image_step, channel_step, row_step = (s // x.itemsize for s in x.strides[:3])
    function = item_loop("sampling.channels_last", "emit_channels_last")
    assert function is not None
    first = x.ctypes.data + rows.start * x.strides[2] + columns.start * x.strides[3]
    words = in_order(
        CHANNELS_LAST_WORDS, source=first, out=out.ctypes.data, rows=height, columns=width, channels=channels,
        image_step=image_step, channel_step=channel_step, row_step=row_step,
    )  # fmt: skip
    run_items(function, images * height, words)
    return out


def whole(count: int) -> int:
    """So many elements in whole vectors."""
    return -(-count // LANES) * LANES
