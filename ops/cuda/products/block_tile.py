"""The tiles in which a block computes a product of matrices, and which of them suits the largest box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from brickrt.ops.cuda.kernel import BLOCKS, THREADS
from brickrt.ops.cuda.operand import VECTOR
from brickrt.ops.cuda.printing.types import ctype, is_half
from brickrt.ops.cuda.shared_memory import LEAST_BLOCK_BYTES, room

TWO_BUFFERS = 48 << 10  # bytes that a tile with two buffers may take: one block of any device has them
MOST_BUFFERS = 4  # with three buffers on their way, two blocks of any tile ask for more than memory gives meanwhile
ROW_BYTES = 16  # of a tile's table of rows, per row
COPY_PRODUCTS = 24  # that cost as much as bringing one element of an operand to shared memory
TILE_PRODUCTS = 1 << 15  # that cost as much as beginning and ending a tile


@dataclass(frozen=True)
class BlockTile:
    """`m` x `n` outputs, `k` words of the depth per buffer; `split` groups of threads sum parts of the depth.

    On tensor cores `down` x `across` warps share the outputs; else each thread has `down` x `across` of them.
    """

    m: int
    n: int
    k: int
    split: int
    down: int
    across: int

    def buffer_words(self, either: bool, in_place: bool = False) -> int:
        """Words of a buffer; `either`: columns of B may lie in it as rows of A do, of which `in_place` none are
        there."""
        across, along = self.k * (self.n + 8), self.n * (self.k + 4)
        return (0 if in_place else self.m * (self.k + 4)) + (max(across, along) if either else across)

    def cost(self, m: int, n: int, depth: int) -> int:
        """What a box of m x n outputs costs, in multiplications; `depth` in words."""
        tiles = -(-m // self.m) * -(-n // self.n)
        swept = -(-depth // self.k) * self.k
        return tiles * (swept * (self.m * self.n + COPY_PRODUCTS * (self.m + self.n)) + TILE_PRODUCTS)


WARP_TILES = (
    BlockTile(128, 128, 16, 1, 2, 4),
    BlockTile(128, 64, 16, 1, 4, 2),
    BlockTile(64, 128, 16, 1, 2, 4),
    BlockTile(64, 64, 32, 2, 2, 2),
    BlockTile(128, 32, 16, 1, 4, 2),
    BlockTile(64, 32, 32, 2, 2, 2),
    BlockTile(128, 16, 16, 1, 8, 1),
    BlockTile(128, 8, 16, 1, 8, 1),
    BlockTile(32, 64, 32, 4, 1, 2),
    BlockTile(32, 32, 32, 4, 1, 2),
    BlockTile(16, 128, 16, 2, 1, 4),
    BlockTile(16, 64, 32, 4, 1, 2),
)
# Threads with 8 x 8 sums need more registers than two blocks on a multiprocessor leave them.
LANE_TILES = (
    BlockTile(128, 64, 16, 1, 8, 4),
    BlockTile(64, 128, 16, 1, 8, 4),
    BlockTile(64, 64, 16, 2, 8, 4),
    BlockTile(128, 32, 16, 2, 8, 4),
    BlockTile(64, 32, 16, 4, 8, 4),
    BlockTile(128, 16, 16, 4, 8, 4),
    BlockTile(128, 8, 32, 8, 8, 4),
    BlockTile(32, 64, 16, 4, 4, 8),
    BlockTile(32, 32, 16, 4, 4, 4),
    BlockTile(16, 128, 16, 4, 4, 8),
    BlockTile(16, 64, 32, 8, 4, 8),
)


@dataclass(frozen=True)
class Core:
    """A tile and the type of its operands; `warps` tells whether it runs on tensor cores.

    One of its `buffers` in shared memory is multiplied while the others are being filled. A lies in shared memory
    already where it is read `in_place`.
    """

    tile: BlockTile
    dtype: np.dtype
    warps: bool
    buffers: int = 2
    in_place: bool = False

    @property
    def word(self) -> int:
        """Bytes of a word of the tile."""
        return 4 if self.warps else self.dtype.itemsize

    @property
    def per_word(self) -> int:
        """Elements of a word: two of a half type on tensor cores, else one."""
        return self.word // self.dtype.itemsize

    @property
    def together(self) -> int:
        """Elements along the depth that are neighbours in packed operands: on tensor cores, what one copy takes."""
        return VECTOR // self.dtype.itemsize if self.warps else 1

    @property
    def buffer_bytes(self) -> int:
        """Bytes of a buffer in shared memory."""
        return self.tile.buffer_words(self.warps, self.in_place) * self.word

    @property
    def fixed_bytes(self) -> int:
        """Bytes of the table of rows, and of zeros that stand for rows of A that are not there."""
        return self.tile.m * ROW_BYTES + self.in_place * self.tile.k * self.word

    @property
    def shared(self) -> int:
        """Bytes of shared memory: the table of rows and the buffers."""
        return self.fixed_bytes + self.buffers * self.buffer_bytes

    def round_bytes(self, copied: bool) -> int:
        """Bytes of shared memory that a buffer of both factors costs, written and read, of a first factor that is
        `copied` from there; 0 on CUDA cores, whose threads share what they load."""
        t = self.tile
        left = 0 if self.in_place else 1 + copied
        return t.k * self.word * (t.m * (left + t.across) + t.n * (1 + t.down)) if self.warps else 0

    @property
    def sum_bytes(self) -> int:
        """The same of a tile's sums."""
        return 2 * self.tile.m * self.tile.n * self.tile.split * (4 if self.warps else self.word)

    def buffered(self, most: int) -> Core:
        """With as many buffers as BLOCKS blocks have room for on a device that gives a block at most `most` bytes."""
        fitting = (room(most, BLOCKS) - self.fixed_bytes) // self.buffer_bytes
        return replace(self, buffers=max(2, min(fitting, MOST_BUFFERS)))

    def pack(self, b: np.ndarray) -> np.ndarray:
        """[…, depth, columns] → […, depth / together, columns, together], zeros beyond the depth."""
        deep = -(-b.shape[-2] // self.together)
        full = np.zeros((*b.shape[:-2], deep * self.together, b.shape[-1]), b.dtype)
        full[..., : b.shape[-2], :] = b
        words = full.reshape(*b.shape[:-2], deep, self.together, b.shape[-1]).swapaxes(-1, -2)
        return as_tf32(words) if self.warps and b.dtype == np.float32 else np.ascontiguousarray(words)

    def text(self) -> str:
        """The C++ type in cores.cuh."""
        t = self.tile
        either, buffered = ("true" if flag else "false" for flag in (self.warps, not self.in_place))
        shape = f"brick::Tile<{THREADS}, {t.m}, {t.n}, {t.k}, {self.buffers}, {t.split}, {either}, {buffered}>"
        return f"brick::{'Warps' if self.warps else 'Lanes'}<{ctype(self.dtype)}, {shape}, {t.down}, {t.across}>"


def as_tf32(values: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest value that tensor cores distinguish, ties away from zero; a contiguous copy."""
    words = np.ascontiguousarray(values).view(np.uint32)
    rounded = (words + np.uint32(1 << 12)) & ~np.uint32((1 << 13) - 1)
    return np.where(np.isnan(values), values, rounded.view(np.float32))


def on_warps(dtype: np.dtype, precision: str) -> bool:
    """Whether products are computed on tensor cores."""
    return is_half(dtype) or (dtype == np.float32 and precision == "tf32")


def cores(dtype: np.dtype, precision: str, most: int = LEAST_BLOCK_BYTES, together: int = 0) -> Iterator[Core]:
    """All tiles for a type, the largest first, with the buffers that suit a device (`Core.buffered`).

    The tiles are the same for all devices, and with them the order in which products are summed. With `together` they
    read A in place, of which so many elements follow one another: those whose buffers begin at one of these.
    """
    warps, in_place = on_warps(dtype, precision), together > 0
    found = (Core(t, dtype, warps, in_place=in_place) for t in (WARP_TILES if warps else LANE_TILES))
    fit = (c for c in found if together % (c.tile.k * c.per_word) == 0)
    return (c.buffered(most) for c in fit if c.shared <= min(TWO_BUFFERS, room(most, BLOCKS)))


@cache
def choose_core(
    dtype: np.dtype,
    precision: str,
    m: int,
    n: int,
    depth: int,
    unit: int = 1,
    most: int = LEAST_BLOCK_BYTES,
    together: int = 0,
) -> Core:
    """The cheapest tile for boxes of up to m x n outputs that sum `depth` elements each.

    Its columns are a multiple of `unit`. It has no more buffers than begin to be filled at once. `together` as in
    `cores`.
    """
    fit = (c for c in cores(dtype, precision, most, together) if c.tile.n % unit == 0)
    best = min(fit, key=lambda c: c.tile.cost(m, n, -(-depth // c.per_word)))
    fills = -(-depth // (best.tile.k * best.per_word))
    return replace(best, buffers=max(2, min(best.buffers, fills + 1)))
