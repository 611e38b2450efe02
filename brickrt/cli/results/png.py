"""PNG files, row by row and on several threads: packing a large picture on one takes longer than many networks do."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import numpy as np

from brickrt.cli.results.huffman import Packer, deflated, packer

Rows = Callable[[int, int], np.ndarray]
"""The rows from one number to another, whole numbers [rows, width, channels] of 8 or 16 bits."""

COLOURS = {1: 0, 3: 2, 4: 6}  # channels: the format's number
STRIP = 1 << 20  # bytes that are filtered and packed at a time
NONE, LEFT, UP, AVERAGE = 0, 1, 2, 3  # the format's filters that are tried
LEVEL = 1  # of zlib: higher ones take several times as long for a few percent
SAMPLE = 1 << 14  # bytes of a strip that are packed in each way, to choose
LLVM = "llvmlite"
QUICK_SIZE_FACTOR = 1.05  # over that with all repeats, small enough: looking for them takes most of the time
LARGE_PICTURE_BYTES = 1 << 25  # for which a packer is compiled, where LLVM is imported already


def write_png(file: IO[bytes], shape: tuple[int, int, int], dtype: np.dtype, rows: Rows, threads: int) -> None:
    """Writes a picture [height, width, channels] of uint8 or uint16, whose rows are asked for from several threads."""
    height, width, channels = shape
    header = struct.pack(">IIBBBBB", width, height, 8 * dtype.itemsize, COLOURS[channels], 0, 0, 0)
    file.write(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header))
    check, start = 1, b"\x78\x01"
    for plain, packed in _packed(shape, dtype, rows, threads):
        check = zlib.adler32(plain, check)
        file.write(_chunk(b"IDAT", start + packed))
        start = b""
    file.write(_chunk(b"IDAT", struct.pack(">I", check)) + _chunk(b"IEND", b""))


def _packed(shape: tuple[int, int, int], dtype: np.dtype, rows: Rows, threads: int) -> Iterator[tuple[bytes, bytes]]:
    """The filtered bytes of each strip of rows, and the same packed, from the top."""
    height, width, channels = shape
    step = max(1, STRIP // (width * channels * dtype.itemsize))

    large = height * width * channels * dtype.itemsize >= LARGE_PICTURE_BYTES
    coder = packer() if large and LLVM in sys.modules else None

    def pack(top: int) -> tuple[bytes, bytes]:
        end, above = min(top + step, height), max(top - 1, 0)
        plain = _filtered(rows(above, end), top - above, channels * dtype.itemsize)
        return plain, _deflated(plain, end == height, coder)

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(pack, range(0, height, step))


def _deflated(plain: bytes, last: bool, coder: Packer | None) -> bytes:
    """A strip as blocks of deflate: in the quickest way that is nearly as good as looking for all repeats, which in
    photographs single bytes are, and runs of one byte in drawings."""
    begin = max(0, (len(plain) - SAMPLE) // 2)
    ways = (zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_DEFAULT_STRATEGY)
    sizes = [len(_by_zlib(plain[begin : begin + SAMPLE], way, True)) for way in ways]
    way = next(way for way, size in zip(ways, sizes) if size <= QUICK_SIZE_FACTOR * min(sizes))
    return deflated(plain, last, coder) if coder and way == zlib.Z_HUFFMAN_ONLY else _by_zlib(plain, way, last)


def _by_zlib(plain: bytes, way: int, last: bool) -> bytes:
    made = zlib.compressobj(LEVEL, zlib.DEFLATED, -15, strategy=way)
    return made.compress(plain) + made.flush(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH)


def _filtered(rows: np.ndarray, begin: int, pixel: int) -> bytes:
    """The rows from `begin` on, 0 or 1, each behind the number of its filter: the one with the least differences in
    this strip. `pixel` is the bytes of a pixel."""
    lines = rows.astype(rows.dtype.newbyteorder(">")).reshape(len(rows), -1).view(np.uint8)
    before = lines[:-1] if begin else np.concatenate([np.zeros_like(lines[:1]), lines[:-1]])
    own = lines[begin:]
    made = np.empty((len(own), 1 + own.shape[1]), np.uint8)
    made[:, 0] = kind = _best(own, before, pixel)
    made[:, 1:] = own
    if kind == LEFT:
        made[:, 1 + pixel :] -= own[:, :-pixel]
    elif kind == UP:
        made[:, 1:] -= before
    elif kind == AVERAGE:
        made[:, 1 : 1 + pixel] -= before[:, :pixel] >> 1
        made[:, 1 + pixel :] -= _means(own[:, :-pixel], before[:, pixel:])
    return made.tobytes()


def _best(own: np.ndarray, before: np.ndarray, pixel: int) -> int:
    """The filter whose bytes are the smallest, by every eighth row."""
    own, before = own[::8], before[::8]
    left = own[:, :-pixel]
    tried = {NONE: own, LEFT: own[:, pixel:] - left, UP: own - before}
    tried[AVERAGE] = own[:, pixel:] - _means(left, before[:, pixel:])
    return min(tried, key=lambda kind: int(np.abs(tried[kind].view(np.int8).astype(np.int16)).sum()))


def _means(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The means of bytes, rounded down."""
    return (one & other) + ((one ^ other) >> 1)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))
