"""Cuts sweeps into blocks: the bands of one task, which writes whole chunks of the outputs.

Bands need not end where chunks do. A block writes the chunks that begin in its own bands, and runs on until the last of
them is whole; the bands are those of the whole sweep, so the bits are the same whichever block writes them.

    bands      |  0  |  1  |  2  |  3  |
    chunks     |   0    |   1    |  2  |
    blocks     own bands 0 1, write chunks 0 1, run bands 0 1 2; own bands 2 3, write chunk 2
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.ops.types import Shape
from brickrt.plan.stream.stream_plan import AXIS, StreamPlan

SECONDS = 20.0  # that a task should take, about
EFFICIENCY = 0.35  # of a processor's peak that bands run at, about
BLOCKS_PER_WORKER = 2  # at least, so that a worker that is late has others take over
OWN_BANDS_PER_REPEATED = 2  # of a block, at least, over those that run again before them
COLUMNS = 1024  # of a chunk, at most
FEW_COLUMNS = 16  # of a chunk, at least, where there are strips


@dataclass(frozen=True)
class Block:
    """The bands [wanted, end) of a sweep; bands up to `reach` run. `owned` has the rows of each output that it writes.
    What is computed of whole tensors after all sweeps is a block of no bands."""

    number: int
    sweep: int
    wanted: int
    end: int
    reach: int
    owned: Mapping[str, tuple[int, int]]


def block_chunks(stream: StreamPlan, name: str) -> Shape:
    """The chunks of an output: as many rows as a band gives, and columns that no two strips share. Raises BrickError
    where strips have no such columns."""
    shape = stream.plan.graph.types[name].shape
    schedules = [one.schedule for one in stream.sweeps if name in one.schedule.targets]
    if not schedules:
        return shape
    rows = max(1, max(schedule.rows[name].fresh for schedule in schedules))
    boxes = [schedule.across[name] for schedule in schedules]
    behind = []
    for axis in range(AXIS + 1, len(shape)):
        common = math.gcd(*(int(box.lo[0, axis]) for box in boxes)) or shape[axis]
        if common < min(FEW_COLUMNS, shape[axis]):
            raise BrickError(f"output '{name}' {list(shape)} is cut unevenly: raise the memory, or use fewer strips")
        behind.append(_divisor(common) if common < shape[axis] else min(COLUMNS, common))
    return (*shape[:AXIS], rows, *behind)


def _divisor(extent: int) -> int:
    """The largest divisor that is no longer than a chunk may be."""
    return next(extent // parts for parts in range(1, extent + 1) if extent % parts == 0 and extent // parts <= COLUMNS)


def block_lengths(stream: StreamPlan, workers: int, gflops: float) -> tuple[int, ...]:
    """Bands of a block, sweep by sweep, on so many workers of so many GFLOP/s each."""
    return tuple(_length(stream, number, workers, gflops) for number in range(len(stream.sweeps)))


def _length(stream: StreamPlan, number: int, workers: int, gflops: float) -> int:
    one = stream.sweeps[number]
    bands = one.schedule.bands - one.schedule.ahead
    beside = sum(1 for other in stream.sweeps if other.number == one.number)
    seconds = sweep_flops(stream, number) / (EFFICIENCY * gflops * 1e9)
    count = max(seconds / SECONDS, workers * BLOCKS_PER_WORKER / beside, 1.0)
    middle = one.schedule.ahead + bands // 2
    again = middle - stream.bands(number, middle).first if middle > one.schedule.ahead else 0
    return max(
        1, min(bands, max(int(bands / count), min(OWN_BANDS_PER_REPEATED * again, -(-bands * beside // workers))))
    )


def sweep_flops(stream: StreamPlan, number: int) -> float:
    """Arithmetic of a sweep, with what merged layers compute again."""
    graph, computed = stream.plan.graph, dict[int, int]()
    for read in stream.sweeps[number].schedule.reads:
        computed[read.k] = max(computed.get(read.k, 0), int(read.boxes.volumes.sum()))
    return sum(
        graph.flops([graph.nodes[k]]) * volume / max(1, graph.out(graph.nodes[k]).size)
        for k, volume in computed.items()
    )


def cut_blocks(stream: StreamPlan, lengths: Sequence[int], chunk_rows: Mapping[str, int]) -> list[list[Block]]:
    """The blocks of each pass; of what comes after all sweeps, if anything does, as a pass of its own."""
    passes: list[list[Block]] = [[] for _ in range(max(one.number for one in stream.sweeps) + 1)]
    number = 0
    for sweep, (one, length) in enumerate(zip(stream.sweeps, lengths, strict=True)):
        schedule = one.schedule
        starts = [0, *range(schedule.ahead + length, schedule.bands, length)]
        for wanted, end in zip(starts, [*starts[1:], schedule.bands], strict=True):
            passes[one.number].append(_block(stream, number, sweep, (wanted, end), chunk_rows))
            number += 1
    if any(name in stream.swept.resident for name in stream.plan.graph.outputs):
        passes.append([Block(number, len(stream.sweeps), 0, 0, 0, {})])
    return passes


def _block(stream: StreamPlan, number: int, sweep: int, bands: tuple[int, int], chunk_rows: Mapping[str, int]) -> Block:
    schedule, (wanted, end) = stream.sweeps[sweep].schedule, bands
    owned, reach = dict[str, tuple[int, int]](), end
    for name in stream.plan.graph.outputs:
        if name not in schedule.targets:
            continue
        rows = schedule.rows[name]
        starts = [int(rows.lo[band]) if band < schedule.bands else int(rows.hi[-1]) for band in bands]
        lo, hi = (min(-(-row // chunk_rows[name]) * chunk_rows[name], int(rows.hi[-1])) for row in starts)
        owned[name] = lo, hi
        if lo < hi:
            reach = max(reach, int(np.searchsorted(rows.hi, hi)) + 1)
    return Block(number, sweep, wanted, end, reach, owned)
