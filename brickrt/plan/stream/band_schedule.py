"""The rows of every tensor that each band of a pass computes, and those that it keeps for later bands.

Two 3×3 layers in bands of two rows, a line per band. Before an output row come two bands that only run ahead, so that
no band computes more than two rows of any tensor:

    band 0   input 0 1
    band 1   input 2 3     layer 0 1 (and row 2 next time)
    band 2   input 4 5     layer 2 3     output 0 1
    band 3   input 6 7     layer 4 5     output 2 3

A schedule is that of the whole tensor, wherever a run begins: so the same boxes are computed, and the same bits.

A spilled tensor is for the pass that first knows it what an output of the graph is for another: bands write it to a
file. Later passes read it as they read an input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.move import View
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.halo import whole_blocks
from brickrt.plan.geometry.row_bands import with_rows
from brickrt.plan.stream.row_axes import RowAxes, row_reach
from brickrt.plan.stream.rows.swept_rows import UNREAD, BandBoxes, Columns, SweptRows, box_around, boxes_around, joined
from brickrt.plan.stream.swept_tensors import SweptTensors
from brickrt.plan.subgraph import Subgraph

MOST_AHEAD = 256  # bands before the first output row
SPARE_AHEAD = 4  # more of them than were needed last time
JUMPS = 2  # times the usual rows: what a band computes at most where few rows of a tensor are read, far apart
MOST_TIMES_USUAL_ROWS = 8  # that would be computed at once, where rows of a tensor are read that far apart


@dataclass(frozen=True, slots=True)
class Read:
    """Input `i` of node `k`: the boxes of the output and the regions of the input that they read, [bands] each."""

    k: int
    i: int
    output: BandBoxes
    read: BandBoxes

    @property
    def boxes(self) -> Boxes:
        """The boxes of the output."""
        return self.output.all()

    @property
    def region(self) -> Boxes:
        """The regions of the input."""
        return self.read.all()


@dataclass
class BandSchedule:
    """One pass. `units` are indices of the units that run in it, ascending. `rows` has the stored swept tensors;
    `across` the box of each with the ranges of its other axes, over all of its rows. `reads` is what each node reads,
    nodes inside of padded units included. `ahead` bands come before the first rows of the targets; `height` is that of
    a band in rows of the tallest input or output. `sources` are the swept tensors that bands read from files, `sinks`
    those that they write to files."""

    graph: Graph
    units: tuple[int, ...]
    targets: tuple[str, ...]
    axes: RowAxes
    bands: int
    ahead: int
    height: int
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    chained: frozenset[int] = frozenset()  # nodes inside of which rows lie along other axes
    rows: dict[str, SweptRows] = field(default_factory=dict)
    across: dict[str, Boxes] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)

    def without_first(self, bands: int) -> BandSchedule:
        """The schedule without so many bands at its beginning, which compute nothing."""
        rows = {name: one.after(bands) for name, one in self.rows.items()}
        reads = [Read(one.k, one.i, one.output.after(bands), one.read.after(bands)) for one in self.reads]
        return replace(self, bands=self.bands - bands, ahead=self.ahead - bands, rows=rows, reads=reads)

    def box(self, name: str, band: int, held: bool = False) -> Boxes:
        """The box of a tensor that a band computes, or holds."""
        rows, across = self.rows[name], self.across[name]
        lo = (rows.keep if held else rows.lo)[band]
        return with_rows(across, lo[None], rows.hi[band][None], self.axes.of(name))


@dataclass(frozen=True)
class Network:
    """What schedules are made of: the graph in units, its swept tensors, tensors that are read inside of others, the
    channels of a block of the blocked ones, and the tensors that are spilled. `ahead` has,
    by pass and height, how many bands ran ahead where it was scheduled last."""

    graph: Graph
    units: Sequence[Subgraph]
    swept: SweptTensors
    inplace: Collection[str]
    blocks: Mapping[str, int]
    spilled: tuple[str, ...] = ()
    columns: Columns = field(default_factory=Columns, repr=False, compare=False)
    ahead: dict[tuple[int, int], int] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def tall(self) -> int:
        """Rows of the tallest input or output."""
        graph, swept = self.graph, self.swept
        ends = [n for n in (*graph.inputs, *graph.outputs) if n in swept.level] or list(swept.level)
        return max((graph.types[n].shape[swept.axes.of(n)] for n in ends), default=1)

    def likely_ahead(self, number: int, rows: int) -> int:
        """Bands of `rows` rows that pass `number` may need before the first output row, or some more: those that are
        too many are left out of a schedule, and with too few it is made twice."""
        if (number, rows) in self.ahead:
            return self.ahead[number, rows]
        before = [(other, ahead * height) for (other, height), ahead in self.ahead.items() if other <= number]
        nearest = max((other for other, _ in before), default=0)
        nearby = [image_rows for other, image_rows in before if other == nearest]
        known = max(nearby) if nearby else row_reach(self.graph, self.swept.axes, self.tall)
        return min(-(-known // rows) + SPARE_AHEAD, MOST_AHEAD)

    @cached_property
    def backwards(self) -> list[tuple[int, Subgraph, str, list[Node]]]:
        """Units from the last to the first: number, unit, what it makes, and its partial reductions."""
        nodes = self.graph.nodes
        return [
            (number, unit, nodes[unit.nodes[-1]].output, [nodes[k] for k in unit.partial_reductions])
            for number, unit in reversed(list(enumerate(self.units)))
        ]

    @cached_property
    def resident(self) -> frozenset[str]:
        """Tensors that have rows and are known before a pass, but for those that lie in others."""
        names, usual = self.swept.resident, self.swept.axes.usual
        views = {node.output for node in self.graph.nodes if isinstance(node.op, View)}
        tall = {name for name in names if (*self.graph.types[name].shape, 1, 1, 1)[usual] > 1}
        return frozenset(tall - views - set(self.inplace))


def schedule_pass(
    network: Network, number: int, rows: int, part: Mapping[str, Boxes] | None = None, most: int | None = None
) -> BandSchedule:
    """The schedule of pass `number`, in bands of `rows` rows of the tallest input or output.

    `part` are boxes of graph outputs where only some columns of them are computed; `most` bands are planned.
    """
    return schedule_parts(network, number, rows, [part or {}], most)[0]


def schedule_parts(
    network: Network, number: int, rows: int, parts: Sequence[Mapping[str, Boxes]], most: int | None = None
) -> list[BandSchedule]:
    """A schedule for each of several parts, as `schedule_pass` makes it of one. NumPy takes about as long for the boxes
    of a few bands as for those of many, so that all parts are looked at together."""
    ahead = network.likely_ahead(number, rows)
    while True:
        scheduler = _Scheduler(network, number, rows, ahead, parts, most)
        found = scheduler.run()
        if not scheduler.late or ahead >= MOST_AHEAD:
            network.ahead[number, rows] = max(one.ahead for one in found)
            return found
        ahead = min(max(ahead + scheduler.late, 4 * ahead), MOST_AHEAD)


class _Scheduler:
    """Goes through the units backwards, from what the pass is for. Boxes are those of all bands of the first part, then
    those of the second, and so on: [parts · bands]."""

    def __init__(
        self,
        network: Network,
        number: int,
        rows: int,
        ahead: int,
        parts: Sequence[Mapping[str, Boxes]],
        most: int | None,
    ) -> None:
        self.network, self.graph, self.axes = network, network.graph, network.swept.axes
        self.ahead, self.late = ahead, 0
        swept, graph = network.swept, network.graph
        self.filed = filed = (*graph.outputs, *network.spilled)
        self.targets = tuple(dict.fromkeys(n for n in (*swept.collected, *filed) if swept.level.get(n) == number))
        self.spilled = [n for n in network.spilled if swept.level[n] < number]
        self.known = {n for n, level in swept.collected.items() if level < number} | network.resident
        bands = max(1, -(-network.tall // rows))
        self.sampled = most is not None and most < bands
        self.columns = Columns(least=UNREAD) if self.sampled else network.columns  # a sample is soon given up
        self.bands = ahead + (most if most is not None and most < bands else bands)
        self.idle = np.full(len(parts), ahead)  # bands at the beginning that compute nothing, of each part
        self.needed: dict[str, Boxes] = {}
        self.read: dict[str, Boxes] = {}  # of what is known
        for name in self.targets:
            self.needed[name] = joined([self._target(name, rows, part.get(name)) for part in parts])
        sinks = tuple(name for name in self.targets if name in filed)
        like = graph, (), self.targets, self.axes, self.bands, ahead, rows, (), sinks, swept.chained
        self.found = [BandSchedule(*like) for _ in parts]

    def _target(self, name: str, rows: int, part: Boxes | None) -> Boxes:
        """The bands of a target: of each the same share of its rows; of last rows all in the last band. A row of a file
        begins with its share, one that is collected may end with it."""
        whole = part or Boxes.whole(self.graph.types[name].shape)
        axis, tall = self.axes.of(name), self.network.tall
        extent = self.graph.types[name].shape[axis]
        steps = np.arange(self.bands - self.ahead + 1) * rows
        whole_rows, rest = steps * (extent // tall), steps * (extent % tall)  # in whole numbers, however many rows
        ends = whole_rows - (-rest // tall if name in self.filed else -(rest // tall))
        if name in self.axes.rolls.ends:
            ends[:-1] = 0
        ends = np.concatenate([np.zeros(self.ahead, np.int64), np.minimum(ends, extent)])
        return self._repeated(whole, axis, ends[:-1], ends[1:])

    def run(self) -> list[BandSchedule]:
        """The whole schedule of each part, from the first band on that computes anything."""
        needed = self.needed
        units = [
            number
            for number, unit, output, partials in self.network.backwards
            if (output in needed or any(node.output in needed for node in partials))
            and self._unit(unit, output, partials)
        ]
        sources = tuple(name for name in (*self.graph.inputs, *self.spilled) if name in self.needed)
        for name in sources:
            self._compute(name)
        for found in self.found:
            found.sources, found.units = sources, tuple(reversed(units))
        for name, regions in self.read.items():
            for found, region in zip(self.found, self._parts(regions), strict=True):
                self._follow(found, name, region)
        idle = [0] * len(self.found) if self.late else self.idle.tolist()
        return [found.without_first(n) if n else found for found, n in zip(self.found, idle, strict=True)]

    def _parts(self, boxes: Boxes) -> list[Boxes]:
        """The boxes of each part."""
        ends = [at * self.bands for at in range(len(self.found) + 1)]
        return [boxes] if len(ends) == 2 else [Boxes(boxes.lo[a:b], boxes.hi[a:b]) for a, b in pairwise(ends)]

    def _unit(self, unit: Subgraph, output: str, partials: Sequence[Node]) -> bool:
        """Adds what a unit reads; whether the pass needs it."""
        graph = self.graph
        partials = [node for node in partials if node.output in self.needed]
        for node in partials:
            self._need(output, node.op.region(0, self.needed[node.output], graph.ins(node), graph.out(node)))
        if output not in self.needed or output in self.spilled:
            return False
        boxes = self.needed[output] if output in self.network.inplace else self._compute(output)
        for node in partials:
            assert isinstance(node.op, Segmented)
            self._note(node.output, node.op.made_of(boxes))
        self._inside(unit, boxes)
        del self.needed[output]  # nothing before reads it
        return True

    def _inside(self, unit: Subgraph, boxes: Boxes) -> None:
        """What the nodes of a unit read to compute boxes of its output."""
        inner = {self.graph.nodes[k].output for k in unit.nodes[:-1]}
        local = {self.graph.nodes[unit.nodes[-1]].output: boxes}
        for k in reversed(unit.nodes):
            if self.graph.nodes[k].output in local:
                self._node(k, local, inner)

    def _node(self, k: int, local: dict[str, Boxes], inner: Collection[str]) -> None:
        """What a node reads; of the tensors `inner` to its unit it is `local`."""
        node, columns = self.graph.nodes[k], self.columns
        boxes = local[node.output]
        made = [BandBoxes.of(one, columns) for one in self._parts(boxes)]
        idle = boxes.empty[:, None] if boxes.some_empty else None
        for i, name in enumerate(node.inputs):
            if name in self.graph.constants:
                continue
            region = self._region(node, i, boxes, idle)
            for found, output, one in zip(self.found, made, self._parts(region), strict=True):
                found.reads.append(Read(k, i, output, BandBoxes.of(one, columns)))
            if name in self.axes.rolls.starts:
                region = self._from_the_first(name, region, boxes)
            if name in inner:
                local[name] = region.union(local[name]) if name in local else region
            elif name in self.known:
                self.read[name] = region.union(self.read[name]) if name in self.read else region
            elif name in self.network.swept.level:
                self._need(name, region)

    def _region(self, node: Node, i: int, boxes: Boxes, idle: np.ndarray | None) -> Boxes:
        """What a node reads of an input; no rows for boxes that are empty."""
        name, ins = node.inputs[i], self.graph.ins(node)
        region = node.op.region(i, boxes, ins, self.graph.out(node))
        if idle is not None:
            region = self._without_rows(region, idle, self.axes.of(name))
        blocks = self.network.blocks
        return whole_blocks(region, blocks[name], ins[i].shape) if name in blocks else region

    def _without_rows(self, region: Boxes, idle: np.ndarray, axis: int) -> Boxes:
        """Regions of which those of `idle` bands are empty, with the columns that other bands read: numbers that are
        the same for all bands are kept once."""
        if axis >= region.rank:
            return Boxes(region.lo, np.where(idle, region.lo, region.hi))
        first = self._by_part(~idle).argmax(axis=1) + self.bands * np.arange(len(self.found))
        usual = region.take(first).copies(self.bands)
        found = Boxes(np.where(idle, usual.lo, region.lo), np.where(idle, usual.hi, region.hi))
        found.lo[:, axis] = region.lo[:, axis]
        found.hi[:, axis] = np.where(idle[:, 0], region.lo[:, axis], region.hi[:, axis])
        return found

    def _from_the_first(self, name: str, region: Boxes, boxes: Boxes) -> Boxes:
        """All rows of a part that is joined last, from the band on that joins the first, or gives the first results:
        they are computed with what lies beside them, and kept."""
        across, bands = box_around(region, ~region.empty), np.arange(self.bands)
        joined = np.logical_or.accumulate(~boxes.empty | (bands >= self.ahead)) & ~across.empty[0]
        whole = across.copies(self.bands)
        return Boxes(whole.lo, np.where(joined[:, None], whole.hi, whole.lo))

    def _need(self, name: str, region: Boxes) -> None:
        self.needed[name] = region.union(self.needed[name]) if name in self.needed else region

    def _compute(self, name: str) -> Boxes:
        """The boxes that bands compute of a tensor all of whose readers are known: never many more rows than usual."""
        needed = self.needed[name]
        some = self._by_part(~needed.empty)
        reach, first = self._reached(name, needed, some)
        begins = np.concatenate([first[:, None], reach[:, :-1]], axis=1)
        found = reach[:, -1] > first
        self.idle = np.minimum(self.idle, np.where(found, (reach > first[:, None]).argmax(axis=1), self.bands))
        computed = self._repeated(boxes_around(needed, some), self.axes.of(name), begins.reshape(-1), reach.reshape(-1))
        return self._note(name, computed)

    def _by_part(self, values: np.ndarray) -> np.ndarray:
        """Values of all bands of the first part, then of the second, and so on, as [parts, bands]."""
        return values.reshape(len(self.found), self.bands)

    def _repeated(self, whole: Boxes, axis: int, lo: np.ndarray, hi: np.ndarray) -> Boxes:
        """A box for each band: the box of its part with other ends of its rows."""
        each = whole.copies(len(lo) // len(whole))
        each.lo[:, axis], each.hi[:, axis] = lo, hi
        return each

    def _note(self, name: str, computed: Boxes) -> Boxes:
        """Keeps the rows of a tensor that bands read and make."""
        axis, needed = self.axes.of(name), self.needed[name]
        lo, hi, read = (self._by_part(ends[:, axis]) for ends in (computed.lo, computed.hi, needed.lo))
        read = np.where(self._by_part(needed.empty), UNREAD, read)
        keep = np.minimum(np.minimum.accumulate(read[:, ::-1], axis=1)[:, ::-1], lo)
        across = boxes_around(computed, self._by_part(~computed.empty))
        for at, found in enumerate(self.found):
            found.rows[name] = self.columns.rows(SweptRows(keep[at], lo[at], hi[at]))
            found.across[name] = across[at]
        return computed

    def _follow(self, found: BandSchedule, name: str, region: Boxes) -> None:
        """Counts rows of a tensor that is known whole from the first that is still read: so bands are alike."""
        some = ~region.empty
        read = np.where(some, region.lo[:, self.axes.of(name)], UNREAD)
        first = np.minimum.accumulate(read[::-1])[::-1]
        first = np.minimum(first, first[first < UNREAD].max(initial=0))
        found.rows[name] = self.columns.rows(SweptRows(first, first, first))
        found.across[name] = box_around(region, some)

    def _reached(self, name: str, needed: Boxes, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """End of the rows that are computed by the end of each band, [parts, bands], and the first row of all, [parts];
        `some` are the bands that need any."""
        axis, rolls = self.axes.of(name), self.axes.rolls
        lo, hi = (self._by_part(ends[:, axis]) for ends in (needed.lo, needed.hi))
        first, start = np.where(some, lo, UNREAD).min(axis=1), some.argmax(axis=1)
        first[~some.any(axis=1)] = 0
        reach = np.maximum(np.maximum.accumulate(np.where(some, hi, 0), axis=1), first[:, None])
        share, bands = self._share(reach, first, start), np.arange(self.bands)
        fresh = np.where(bands[1:] > start[:, None], np.diff(reach, axis=1), 0).max(axis=1, initial=0)
        usual = np.maximum(share, fresh)
        if name in rolls.starts:
            usual = reach[:, -1] - first
        else:  # where rows are far apart, those between its ends are not read
            apart = usual > (JUMPS if rolls.starts else MOST_TIMES_USUAL_ROWS) * share
            start, usual = np.where(apart, self.bands - 1, start), np.where(apart, JUMPS * share, usual)
        ramp = bands * usual[:, None]  # going back from the start, no band computes more than the usual rows
        early = np.where(bands <= start[:, None], reach - ramp, -UNREAD)
        early = np.maximum.accumulate(early[:, ::-1], axis=1)[:, ::-1] + ramp
        reach = np.where(bands < start[:, None], np.maximum(early, first[:, None]), reach)
        late = -(-(reach[:, 0] - first) // np.maximum(1, usual)) - 1
        self.late = max(self.late, int(late.max()))
        return reach, first

    def _share(self, reach: np.ndarray, first: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The rows of a band, where all bands that give results have the same, [parts]. Of a sample those from the band
        `start` on count, as what is read before stands beside far more bands than it has."""
        share = -(-(reach[:, -1] - first) // (self.bands - self.ahead))
        if not self.sampled:
            return share
        later = self.bands - 1 - start
        rows = reach[:, -1] - reach[np.arange(len(reach)), start]
        return np.where(later > 0, -(-rows // np.maximum(1, later)), share)
