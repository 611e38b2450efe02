"""Images with their channels innermost, in whole vectors: what lies at a pixel is then read at once."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.item_loop import OWN, ItemLoop
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.moves.square_tiles import turn

LANES = 16
FLOAT32 = np.dtype(np.float32)
SOURCE, OUT, ROWS, COLUMNS, CHANNELS, IMAGE_STEP, CHANNEL_STEP, ROW_STEP = range(OWN, OWN + 8)


def emit_channels_last(module: ir.Module, name: str) -> None:
    """An item is a row of an image. SOURCE is the address of the first pixel that is read; ROWS and COLUMNS are those
    of each of the images, CHANNELS their channels, the steps are in elements of the source. OUT is float32 [images,
    rows, columns, channels], the columns and channels in whole vectors: beyond the source's, anything."""
    f = ItemLoop(module, name)
    source, out = f.pointed(SOURCE), f.pointed(OUT)
    rows, columns, channels = f.word(ROWS), f.word(COLUMNS), f.word(CHANNELS)
    image_step, channel_step, row_step = f.word(IMAGE_STEP), f.word(CHANNEL_STEP), f.word(ROW_STEP)
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
