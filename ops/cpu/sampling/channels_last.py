"""Images with their channels innermost, in whole vectors: what lies at a pixel is then read at once."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.item_loop import ItemLoop
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.host_loops import CHANNELS_LAST_WORDS, LANES
from brickrt.ops.cpu.moves.square_tiles import turn

FLOAT32 = np.dtype(np.float32)


def emit_channels_last(module: ir.Module, name: str) -> None:
    """An item is a row of an image. `source` is the address of the first pixel that is read; `rows` and `columns` are
    those of each of the images, `channels` their channels, the steps are in elements of the source. `out` is float32
    [images, rows, columns, channels], the columns and channels in whole vectors: beyond the source's, anything."""
    f = ItemLoop(module, name, CHANNELS_LAST_WORDS)
    source, out = f.pointed("source"), f.pointed("out")
    rows, columns, channels = f.word("rows"), f.word("columns"), f.word("channels")
    image_step, channel_step, row_step = f.word("image_step"), f.word("channel_step"), f.word("row_step")
    width, depth = _whole(f, columns), _whole(f, channels)
    with f.items() as item:
        image = f.b.sdiv(item, rows)
        row = f.sub(item, f.mul(image, rows))
        first = f.add(f.mul(image, image_step), f.mul(row, row_step))
        with f.loop(0, columns, LANES) as x, f.loop(0, channels, LANES) as c:
            mask = f.tail_mask(f.sub(columns, x), LANES)
            last = f.sub(channels, 1)
            lines = []
            for k in range(LANES):
                channel = f.minimum(f.add(c, k), last)
                lines.append(f.load(source, f.add(first, f.mul(channel, channel_step), x), FLOAT32, LANES, mask))
            for k, pixel in enumerate(turn(f, lines)):
                at = f.add(f.mul(f.add(f.mul(item, width), x, k), depth), c)
                f.store(pixel, out, at, FLOAT32, LANES)
    f.finish()


def _whole(f: ItemLoop, count: ir.Value) -> Index:
    """`count` rounded up to whole vectors."""
    return f.mul(f.div(f.add(count, LANES - 1), LANES), LANES)
