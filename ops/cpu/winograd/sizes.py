"""How many tiles a Winograd kernel works on at a time: pure figures, which the planner's cost model shares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from brickrt.ops.cpu.isa import FEW_REGISTERS

NEAR_WEIGHT_BYTES = 1 << 20  # that transformed weights may take to stay close to a core
WHOLE_WEIGHT_BYTES = 5 << 20  # the same where a kernel transforms all at once: they stay in a cache that cores share
STORED, ANEW, ONCE = range(3)  # where weights are transformed: before the run, for each group of tiles, for each box
ROW_TILES = 112  # in all planes together, that share weights which are transformed for a group of tiles
PAIRED = 3  # before the run, for products with paired channels (`paired/products.py`)
PAIRED_ONCE = 4  # for each box, for such products
INTEGERS = 5  # for each group of tiles, in integers (`integers/products.py`)
HELD = 6  # once for all boxes of a layer that a worker computes one after the other
HELD_BYTES = 40 << 20  # that transformed weights may take of a worker's scratch, from where all boxes read them
ALL_HELD_BYTES = 160 << 20  # the same of all workers' together
MOST_BLOCKS = 4  # register tiles between two sweeps of the weights
FEWER_TILES = (16, 14, 12, 10, 9, 8, 7, 6, 4)  # of a register tile, where it is not full
LATENCY = 8  # multiply-adds that must be under way at a time
STEP_CYCLES = 0.25  # of a step of a register tile beside its multiply-adds, for a block of channels
WEIGHTS_CYCLES = 9.0  # until a vector of weights has come from memory
UNHIDDEN_SHARE = 0.2  # of the shorter of both, which the longer does not hide
SHARED_TILES = 24  # tiles in all planes together that make a sweep over weights further away worth while


@dataclass(frozen=True)
class Sizes:
    """`t` tiles of a register tile, `group` tiles of a plane and `run` planes of the output between two sweeps of the
    weights."""

    t: int
    group: int
    run: int


def is_near(weight_bytes: int, registers: int) -> bool:
    """Whether transformed weights stay so close to a core that each register tile reads them anew. Tiles of few
    registers read them so often that a group shares them, whatever they are."""
    return weight_bytes <= NEAR_WEIGHT_BYTES and registers > FEW_REGISTERS


def most_blocks(registers: int) -> int:
    """Register tiles between two sweeps of the weights, at most: of few registers, more that are smaller."""
    return MOST_BLOCKS if registers > FEW_REGISTERS else 2 * MOST_BLOCKS


def transforms_once(weight_bytes: int, paced: bool) -> bool:
    """Whether a kernel that transforms weights while it runs does so once for a box, not for each group of tiles. On
    processors that ask for weights at an even pace, caches that cores share are too slow to keep them."""
    return weight_bytes <= (NEAR_WEIGHT_BYTES if paced else WHOLE_WEIGHT_BYTES)


def choose_sizes(
    tiles: int,
    planes: int,
    ob: int,
    registers: int,
    weight_bytes: int,
    raw: bool = False,
    paired: bool = False,
    paced: bool = False,
) -> Sizes:
    """For boxes of so many tiles in so many planes, in register tiles of `ob` blocks of channels, perhaps `paired`.

    One register tile while the weights stay in L2 beside it, else a few; many where weights are `raw`, and transformed
    anew for each group. Where weights are asked for at an even pace (`paced`), what takes least.
    """
    near = is_near(weight_bytes, registers)
    if paced and not (raw or paired or near):
        return _paced_sizes(tiles, planes, ob, registers)
    t = register_tile(tiles, ob, registers, paired)
    blocks = -(-tiles // t)
    if raw:
        group = t * -(-blocks // -(-blocks // (ROW_TILES // t)))
        return Sizes(t, group, min(planes, max(1, ROW_TILES // group)))
    if near:
        return Sizes(t, t, 1)
    group = t * (blocks if blocks <= MOST_BLOCKS else 2 if weight_bytes <= 4 * NEAR_WEIGHT_BYTES else 3)
    return Sizes(t, group, min(planes, max(1, SHARED_TILES // group)))


@lru_cache(maxsize=1 << 12)
def _paced_sizes(tiles: int, planes: int, ob: int, registers: int) -> Sizes:
    """The sizes of least time: products of a group, and weights that come in the meantime, which are not all hidden."""
    counts = register_tiles(ob, registers)
    tries: list[tuple[float, int, Sizes]] = []
    for t in counts:
        blocks, most = -(-tiles // t), most_blocks(registers) * counts[0] // t
        each = -(-blocks // -(-blocks // most))
        run = min(planes, max(1, SHARED_TILES // (t * each)))
        step = run * (max(t * ob, LATENCY) / (2 * ob) + STEP_CYCLES)
        cycles = blocks // each * _beside_weights(each * step)
        cycles += _beside_weights(blocks % each * step) if blocks % each else 0.0
        tries.append((cycles / run, -t, Sizes(t, t * each, run)))
    return min(tries)[-1]


def _beside_weights(products: float) -> float:
    """Cycles of a group's products while its weights come."""
    return max(products, WEIGHTS_CYCLES) + UNHIDDEN_SHARE * min(products, WEIGHTS_CYCLES)


def register_tiles(ob: int, registers: int, paired: bool = False) -> list[int]:
    """How many tiles a register tile may have: as many as registers allow, or one of a few lesser numbers. Code has
    products of each."""
    most = registers // 2 if paired else min((registers - ob - 2) // ob, 24)
    return [most, *(t for t in FEWER_TILES if t < most)]


@lru_cache(maxsize=1 << 12)
def register_tile(tiles: int, ob: int, registers: int, paired: bool = False) -> int:
    """As many tiles as registers allow, but not much padding."""
    padded = {t: -(-tiles // t) * t for t in register_tiles(ob, registers, paired)}
    return next(t for t in padded if padded[t] <= 1.05 * min(padded.values()))
