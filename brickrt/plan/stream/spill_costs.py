"""What the passes of a network cost where some tensors are spilled: modelled seconds, without any schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from brickrt.graph.ir import Graph
from brickrt.plan.cost.arithmetic import arithmetic_us
from brickrt.plan.cost.roofline import overlapped_us
from brickrt.plan.plan import Plan
from brickrt.plan.stream.band_schedule import Network
from brickrt.plan.stream.band_storage import stored_bytes
from brickrt.plan.subgraph import Subgraph


@dataclass(frozen=True)
class DiskSpeed:
    """Bytes a second that are written, with checksums and until they are on the disk, and that are read."""

    write: float
    read: float


@dataclass(frozen=True)
class SweptUnit:
    """A unit whose output is swept, or an input of the graph: the pass that first knows it, the numbers of those that
    it reads, seconds to compute it, and bytes of what it makes. `name` is that tensor's, where it may be spilled."""

    level: int
    nbytes: int
    seconds: float = 0.0
    reads: tuple[int, ...] = ()
    name: str = ""
    is_input: bool = False


@dataclass(frozen=True)
class OnePass:
    """The units that a pass computes, those whose tensors it reads from files, and its seconds."""

    computed: set[int]
    read: set[int]
    seconds: float


@dataclass(frozen=True)
class SpillCosts:
    """The swept units of a network in its order, after the graph's inputs; `targets` are those that each pass is
    for."""

    units: tuple[SweptUnit, ...]
    targets: tuple[tuple[int, ...], ...]
    disk: DiskSpeed

    @staticmethod
    def of(plan: Plan, network: Network, may_spill: Collection[str], disk: DiskSpeed, threads: int) -> SpillCosts:
        """The costs on so many threads."""
        graph, swept = plan.graph, network.swept
        found: list[SweptUnit] = []
        at: dict[str, int] = {}
        for name in (name for name in graph.inputs if name in swept.level):
            at[name] = len(found)
            found.append(SweptUnit(0, graph.types[name].nbytes, is_input=True))
        for unit in network.units:
            output = graph.nodes[unit.nodes[-1]].output
            if output not in swept.level:
                continue
            level, kind = swept.level[output], graph.types[output]
            early = {name for name, known in swept.collected.items() if known < level}
            reads = tuple(dict.fromkeys(at[name] for name in _read(graph, unit) if name in at and name not in early))
            nbytes = stored_bytes(kind, kind.shape, plan.layouts[output], plan.device.lanes)
            seconds = 0.0 if output in network.inplace else _seconds(plan, unit, threads)
            at.update(dict.fromkeys((graph.nodes[k].output for k in unit.members), len(found)))
            found.append(SweptUnit(level, nbytes, seconds, reads, output if output in may_spill else ""))
        ends = [name for name in (*swept.collected, *graph.outputs) if name in swept.level]
        targets = [tuple(at[name] for name in ends if swept.level[name] == number) for number in range(swept.passes)]
        return SpillCosts(tuple(found), tuple(targets), disk)

    def write_s(self, unit: int) -> float:
        """Seconds to write what a unit makes."""
        return self.units[unit].nbytes / self.disk.write

    def read_s(self, unit: int) -> float:
        """Seconds to read it."""
        return self.units[unit].nbytes / self.disk.read

    def one_pass(self, number: int, spilled: Collection[int]) -> OnePass:
        """What a pass does where the tensors of these units are spilled. It reads and writes files while it computes:
        the longer of both counts whole, of the shorter what threads that copy and check take from the others."""
        units, computed, read = self.units, set[int](), set[int]()
        written = [unit for unit in spilled if units[unit].level == number]
        left = [*self.targets[number], *written]
        while left:
            unit = left.pop()
            if unit in computed or unit in read:
                continue
            if units[unit].is_input or (unit in spilled and units[unit].level < number):
                read.add(unit)
            else:
                computed.add(unit)
                left += units[unit].reads
        files = sum(map(self.write_s, written)) + sum(map(self.read_s, read))
        return OnePass(computed, read, overlapped_us(sum(units[unit].seconds for unit in computed), files))

    def passes(self, spilled: Collection[int]) -> list[OnePass]:
        """What all passes do."""
        return [self.one_pass(number, spilled) for number in range(len(self.targets))]

    def room(self, spilled: Collection[int]) -> int:
        """The most bytes that are on the disk at a time: a tensor leaves it after the last pass that reads it."""
        passes = self.passes(spilled)
        last = {unit: max((n for n, one in enumerate(passes) if unit in one.read), default=0) for unit in spilled}
        held = [
            sum(self.units[unit].nbytes for unit in spilled if self.units[unit].level <= number <= last[unit])
            for number in range(len(passes))
        ]
        return max(held, default=0)


def _read(graph: Graph, unit: Subgraph) -> Iterator[str]:
    """What a unit reads of others."""
    inside = {graph.nodes[k].output for k in unit.members}
    for k in unit.members:
        yield from (name for name in graph.nodes[k].inputs if name not in inside)


def _seconds(plan: Plan, unit: Subgraph, threads: int) -> float:
    """Modelled seconds of a unit: its arithmetic, and moving what it reads and makes through the shared cache."""
    graph, device = plan.graph, plan.device
    arithmetic = (
        sum(arithmetic_us(graph, graph.nodes[k], device, plan.options.precision) for k in unit.members) / threads
    )
    moved = {*_read(graph, unit), graph.nodes[unit.nodes[-1]].output} - set(graph.constants)
    traffic = sum(graph.types[name].nbytes for name in moved) / device.bandwidth_at(device.shared[0], threads) / 1e3
    return overlapped_us(arithmetic, traffic) / 1e6
