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

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.move import View
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.halo import whole_blocks
from brickrt.plan.geometry.row_bands import with_rows
from brickrt.plan.stream.row_axes import RowAxes
from brickrt.plan.stream.swept_tensors import SweptTensors
from brickrt.plan.subgraph import Subgraph

MOST_AHEAD = 256  # bands before the first output row
JUMPS = 2  # times the usual rows: what a band computes at most where few rows of a tensor are read, far apart
FAR = 8  # times the usual rows that would be computed at once, where rows of a tensor are read that far apart
_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SweptRows:
    """Rows of one tensor, int64 [bands]: a band computes [lo, hi), and holds [keep, hi) while it runs. Of a tensor that
    is known whole, from a pass before, it computes none: all three are the first row that is still read."""

    keep: np.ndarray
    lo: np.ndarray
    hi: np.ndarray

    @property
    def kept_after(self) -> np.ndarray:
        """First row that is held for the next band, [bands]; `hi` after the last."""
        return np.minimum(np.concatenate([self.keep[1:], self.hi[-1:]]), self.hi)

    @property
    def fresh(self) -> int:
        """Most rows that a band computes."""
        return int((self.hi - self.lo).max(initial=0))

    @property
    def kept(self) -> int:
        """Most rows that one band leaves to the next."""
        return int((self.hi - self.kept_after).max(initial=0))

    @property
    def window(self) -> int:
        """Most rows held at a time."""
        return int((self.hi - self.keep).max(initial=0))


class Columns:
    """Keeps arrays of numbers by band, each once: many tensors, and strips, have the same rows."""

    def __init__(self) -> None:
        self.known: dict[bytes, np.ndarray] = {}

    def kept(self, values: np.ndarray) -> np.ndarray:
        """The values, [bands], or one where all are the same."""
        if not len(values) or bool((values == values[0]).all()):
            return values[:1].copy()
        values = np.ascontiguousarray(values)
        key = hashlib.blake2b(values.tobytes(), digest_size=16).digest()
        return self.known.setdefault(key, values)

    def rows(self, rows: SweptRows) -> SweptRows:
        """The same rows, kept."""
        shape = rows.lo.shape
        return SweptRows(*(np.broadcast_to(self.kept(ends), shape) for ends in (rows.keep, rows.lo, rows.hi)))


@dataclass(frozen=True)
class BandBoxes:
    """A box of each of so many `bands`, an array for each axis and end."""

    bands: int
    lo: tuple[np.ndarray, ...]
    hi: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, boxes: Boxes, columns: Columns) -> BandBoxes:
        """The boxes, kept."""
        ends = [tuple(columns.kept(end[:, axis]) for axis in range(boxes.rank)) for end in (boxes.lo, boxes.hi)]
        return cls(len(boxes), *ends)

    def all(self) -> Boxes:
        """All boxes."""
        lo, hi = (np.empty((self.bands, len(self.lo)), np.int64) for _ in "lh")
        for axis, (begin, end) in enumerate(zip(self.lo, self.hi, strict=True)):
            lo[:, axis], hi[:, axis] = begin, end
        return Boxes(lo, hi)


@dataclass(frozen=True)
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

    def box(self, name: str, band: int, held: bool = False) -> Boxes:
        """The box of a tensor that a band computes, or holds."""
        rows, across = self.rows[name], self.across[name]
        lo = (rows.keep if held else rows.lo)[band]
        return with_rows(across, lo[None], rows.hi[band][None], self.axes.of(name))


@dataclass(frozen=True)
class Network:
    """What schedules are made of: the graph in units, its swept tensors, tensors that are read inside of others, the
    channels of a block of the blocked ones, and the tensors that are spilled."""

    graph: Graph
    units: Sequence[Subgraph]
    swept: SweptTensors
    inplace: Collection[str]
    blocks: Mapping[str, int]
    spilled: tuple[str, ...] = ()
    columns: Columns = field(default_factory=Columns, repr=False, compare=False)


def schedule_pass(
    network: Network, number: int, rows: int, part: Mapping[str, Boxes] | None = None, most: int | None = None
) -> BandSchedule:
    """The schedule of pass `number`, in bands of `rows` rows of the tallest input or output.

    `part` are boxes of graph outputs where only some columns of them are computed; `most` bands are planned.
    """
    ahead = 0
    while True:
        scheduler = _Scheduler(network, number, rows, ahead, part or {}, most)
        found = scheduler.run()
        if not scheduler.late or ahead >= MOST_AHEAD:
            return found
        ahead = min(ahead + scheduler.late, MOST_AHEAD)


class _Scheduler:
    """Goes through the units backwards, from what the pass is for."""

    def __init__(
        self, network: Network, number: int, rows: int, ahead: int, part: Mapping[str, Boxes], most: int | None
    ) -> None:
        self.network, self.graph, self.axes = network, network.graph, network.swept.axes
        self.ahead, self.late = ahead, 0
        swept, graph = network.swept, network.graph
        self.filed = filed = (*graph.outputs, *network.spilled)
        self.targets = tuple(dict.fromkeys(n for n in (*swept.collected, *filed) if swept.level.get(n) == number))
        self.spilled = [name for name in network.spilled if swept.level[name] < number]
        self.known = {n for n, level in swept.collected.items() if level < number} | self._resident()
        ends = [n for n in (*graph.inputs, *graph.outputs) if n in swept.level] or list(swept.level)
        tall = max((graph.types[n].shape[self.axes.of(n)] for n in ends), default=1)
        self.all_bands = max(1, -(-tall // rows))
        self.bands = ahead + (self.all_bands if most is None else min(self.all_bands, most))
        self.needed: dict[str, Boxes] = {}
        self.read: dict[str, Boxes] = {}  # of what is known
        for name in self.targets:
            self.needed[name] = self._target(name, rows / tall, part.get(name))
        sinks = tuple(name for name in self.targets if name in filed)
        self.found = BandSchedule(graph, (), self.targets, self.axes, self.bands, ahead, rows, (), sinks, swept.chained)

    def _resident(self) -> set[str]:
        """Tensors that have rows and are known before the pass, but for those that lie in others."""
        graph, names = self.graph, self.network.swept.resident
        views = {node.output for node in graph.nodes if isinstance(node.op, View)}
        tall = {name for name in names if (*graph.types[name].shape, 1, 1, 1)[self.axes.usual] > 1}
        return tall - views - set(self.network.inplace)

    def _target(self, name: str, share: float, part: Boxes | None) -> Boxes:
        """The bands of a target: of each the same share of its rows; of last rows all in the last band. A row of a file
        begins with its share, one that is collected may end with it."""
        whole = part or Boxes.whole(self.graph.types[name].shape)
        axis = self.axes.of(name)
        extent = self.graph.types[name].shape[axis]
        ends = np.arange(self.bands - self.ahead + 1) * share * extent
        ends = (np.ceil(ends - 1e-9) if name in self.filed else np.floor(ends + 1e-9)).astype(np.int64)
        ends[-1] = max(ends[-1], extent if self.bands - self.ahead == self.all_bands else 0)
        if name in self.axes.rolls.ends:
            ends[:-1] = 0
        ends = np.concatenate([np.zeros(self.ahead, np.int64), np.minimum(ends, extent)])
        each = Boxes(np.repeat(whole.lo, self.bands, axis=0), np.repeat(whole.hi, self.bands, axis=0))
        return with_rows(each, ends[:-1], ends[1:], axis)

    def run(self) -> BandSchedule:
        """The whole schedule."""
        units = []
        for number in reversed(range(len(self.network.units))):
            if self._unit(self.network.units[number]):
                units.append(number)
        self.found.sources = tuple(name for name in (*self.graph.inputs, *self.spilled) if name in self.needed)
        for name in self.found.sources:
            self._compute(name)
        for name, region in self.read.items():
            self._follow(name, region)
        self.found.units = tuple(reversed(units))
        return self.found

    def _unit(self, unit: Subgraph) -> bool:
        """Adds what a unit reads; whether the pass needs it."""
        graph, output = self.graph, self.graph.nodes[unit.nodes[-1]].output
        partials = [graph.nodes[k] for k in unit.partial_reductions if graph.nodes[k].output in self.needed]
        for node in partials:
            self._need(output, node.op.region(0, self.needed[node.output], graph.ins(node), graph.out(node)))
        if output not in self.needed or output in self.spilled:
            return False
        boxes = self.needed[output] if output in self.network.inplace else self._compute(output)
        for node in partials:
            assert isinstance(node.op, Segmented)
            self._note(node.output, self.needed[node.output], node.op.made_of(boxes))
        self._inside(unit, boxes)
        return True

    def _inside(self, unit: Subgraph, boxes: Boxes) -> None:
        """What the nodes of a unit read to compute boxes of its output."""
        inner, columns = {self.graph.nodes[k].output for k in unit.nodes[:-1]}, self.network.columns
        local = {self.graph.nodes[unit.nodes[-1]].output: boxes}
        for k in reversed(unit.nodes):
            node = self.graph.nodes[k]
            for i, name in enumerate(node.inputs):
                if name in self.graph.constants or node.output not in local:
                    continue
                region = self._region(node, i, local[node.output])
                ends = (BandBoxes.of(boxes, columns) for boxes in (local[node.output], region))
                self.found.reads.append(Read(k, i, *ends))
                if name in self.axes.rolls.starts:
                    region = self._from_the_first(name, region, local[node.output])
                if name in inner:
                    local[name] = region.union(local[name]) if name in local else region
                elif name in self.known:
                    self.read[name] = region.union(self.read[name]) if name in self.read else region
                elif name in self.network.swept.level:
                    self._need(name, region)

    def _region(self, node: Node, i: int, boxes: Boxes) -> Boxes:
        """What a node reads of an input; nothing for boxes that are empty."""
        name, ins = node.inputs[i], self.graph.ins(node)
        region = node.op.region(i, boxes, ins, self.graph.out(node))
        region = Boxes(region.lo, np.where(boxes.empty[:, None], region.lo, region.hi))
        blocks = self.network.blocks
        return whole_blocks(region, blocks[name], ins[i].shape) if name in blocks else region

    def _from_the_first(self, name: str, region: Boxes, boxes: Boxes) -> Boxes:
        """All rows of a part that is joined last, from the band on that joins the first, or gives the first results:
        they are computed with what lies beside them, and kept."""
        across, bands = self._across(region), np.arange(self.bands)
        joined = np.logical_or.accumulate(~boxes.empty | (bands >= self.ahead)) & ~across.empty[0]
        lo, hi = (np.repeat(ends, self.bands, axis=0) for ends in (across.lo, across.hi))
        return Boxes(lo, np.where(joined[:, None], hi, lo))

    def _need(self, name: str, region: Boxes) -> None:
        self.needed[name] = region.union(self.needed[name]) if name in self.needed else region

    def _compute(self, name: str) -> Boxes:
        """The boxes that bands compute of a tensor all of whose readers are known: never many more rows than usual."""
        needed = self.needed[name]
        reach, first = self._reached(name, needed)
        lo = np.concatenate([np.full(1, first), reach[:-1]])
        across = self._across(needed)
        boxes = with_rows(
            Boxes(np.repeat(across.lo, self.bands, axis=0), np.repeat(across.hi, self.bands, axis=0)),
            lo,
            reach,
            self.axes.of(name),
        )
        return self._note(name, needed, boxes)

    def _note(self, name: str, needed: Boxes, computed: Boxes) -> Boxes:
        """Keeps the rows of a tensor of which `needed` is read, and `computed` made."""
        axis = self.axes.of(name)
        lo, hi = (ends[:, axis] for ends in (computed.lo, computed.hi))
        read = np.where(needed.empty, _FAR, needed.lo[:, axis])
        keep = np.minimum(np.minimum.accumulate(read[::-1])[::-1], lo)
        self.found.rows[name] = self.network.columns.rows(SweptRows(keep, lo, hi))
        self.found.across[name] = self._across(computed)
        return computed

    def _follow(self, name: str, region: Boxes) -> None:
        """Counts rows of a tensor that is known whole from the first that is still read: so bands are alike."""
        read = np.where(region.empty, _FAR, region.lo[:, self.axes.of(name)])
        first = np.minimum.accumulate(read[::-1])[::-1]
        first = np.minimum(first, first[first < _FAR].max(initial=0))
        self.found.rows[name] = self.network.columns.rows(SweptRows(first, first, first))
        self.found.across[name] = self._across(region)

    def _reached(self, name: str, needed: Boxes) -> tuple[np.ndarray, int]:
        """End of the rows that are computed by the end of each band, and the first row of all."""
        some, axis = ~needed.empty, self.axes.of(name)
        if not some.any():
            return np.zeros(self.bands, np.int64), 0
        first = int(needed.lo[some, axis].min())
        reach = np.maximum(np.maximum.accumulate(np.where(some, needed.hi[:, axis], 0)), first)
        start = int(some.argmax())
        share = -(-(int(reach[-1]) - first) // (self.bands - self.ahead))
        usual = max(share, int(np.diff(reach[start:]).max(initial=0)))
        if name in self.axes.rolls.starts:
            usual = int(reach[-1]) - first
        elif usual > (JUMPS if self.axes.rolls.starts else FAR) * share:  # rows between its ends are not read
            start, usual = self.bands - 1, JUMPS * share
        for band in range(start, 0, -1):
            reach[band - 1] = max(first, reach[band] - usual, reach[band - 1])
        self.late = max(self.late, -(-(int(reach[0]) - first) // max(1, usual)) - 1)
        return reach, first

    def _across(self, boxes: Boxes) -> Boxes:
        """The smallest box around all, [1]."""
        some = ~boxes.empty
        if not some.any():
            return Boxes(boxes.lo[:1], boxes.lo[:1])
        return Boxes(boxes.lo[some].min(axis=0, keepdims=True), boxes.hi[some].max(axis=0, keepdims=True))
