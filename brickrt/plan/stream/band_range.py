"""Where each tensor begins when a sweep begins in the middle, to go on with a run or for a part of its rows.

The bands and their boxes are those of the whole sweep. Before the first band that is asked for, others run again, but
only what it needs of them: a tensor begins with the first band of which a row is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.plan.stream.band_schedule import BandSchedule, Read
from brickrt.plan.subgraph import Subgraph


@dataclass(frozen=True)
class BandRange:
    """The bands [first, end) of a sweep. Results are wanted from band `wanted` on; `starts` has the first band of each
    tensor that does not begin with band 0."""

    first: int
    wanted: int
    end: int
    starts: Mapping[str, int]

    def runs(self, name: str, band: int) -> bool:
        """Whether a band computes a tensor, or reads an input."""
        return band >= self.starts.get(name, 0)


def band_range(schedule: BandSchedule, units: tuple[Subgraph, ...], wanted: int, end: int) -> BandRange:
    """The range whose results are those of the bands [wanted, end)."""
    if not wanted:
        return BandRange(0, 0, end, {})
    graph = schedule.graph
    readers = {k: number for number in schedule.units for k in units[number].members}
    reads: dict[int, list[Read]] = {}
    for read in schedule.reads:
        reads.setdefault(readers[read.k], []).append(read)
    starts = dict.fromkeys(schedule.targets, wanted)
    for number in reversed(schedule.units):
        outputs = [graph.nodes[k].output for k in units[number].members]
        start = min((starts[name] for name in outputs if name in starts), default=end)
        for name in outputs:
            starts[name] = start
        for read in reads.get(number, ()):
            name = graph.nodes[read.k].inputs[read.i]
            starts[name] = min(starts.get(name, end), _first_band(schedule, name, read, start))
    known = {name: start for name, start in starts.items() if name in schedule.rows or name in graph.producers}
    return BandRange(min(known.values()), wanted, end, known)


def _first_band(schedule: BandSchedule, name: str, read: Read, start: int) -> int:
    """The first band of a tensor that bands from `start` on read rows of."""
    some = np.flatnonzero(~read.region.empty[start:])
    if name not in schedule.rows or not len(some):
        return start
    row = int(read.region.lo[start + some, schedule.axes.of(name)].min())
    return int(np.searchsorted(schedule.rows[name].hi, row, side="right"))
