"""Which tensors a sweep computes band by band, which it needs whole, and in which pass each is known.

A tensor is *swept* where a band of its rows needs only some rows of what it is computed from. A node that needs all
rows of a swept tensor at once (a global pool) ends a pass: that tensor is *collected*, whole, while the pass goes on,
and what is computed from it alone is *resident*: small, and computed between two passes.

    pass 0   x → conv → partial sums (collected)          between   partial sums → scale (resident)
    pass 1   x → conv → · scale → y
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.stitch import LARGE_IMAGE_BYTES
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.sampling.deformed_columns import ReadsPoints
from brickrt.plan.stream.row_axes import RowAxes
from brickrt.plan.stream.units.reshape_chains import reshape_chain
from brickrt.plan.subgraph import Subgraph

ANY_SIZE = MatMul | ReadsPoints  # they need what they read whole, whatever that takes
COLLECTED_BYTES = LARGE_IMAGE_BYTES  # a tensor that another operator needs whole may have so many,
COLLECTED_SHARE = 2**-10  # or this share of the inputs', such as sums of the rows of a large image,
LARGEST_SHARE = 1 / 4  # or this one of the largest tensor's, which no run in bands ever holds


@dataclass
class SweptTensors:
    """`level` of a swept tensor is the pass in which it is first known; `resident` tensors are known before the pass
    that they are mapped to; `collected` are the swept tensors that are stored whole. `chains` are reshapes and
    transposes that are swept together."""

    axes: RowAxes
    level: dict[str, int] = field(default_factory=dict)
    resident: dict[str, int] = field(default_factory=dict)
    collected: dict[str, int] = field(default_factory=dict)
    chains: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def chained(self) -> frozenset[int]:
        """The nodes of all chains."""
        return frozenset(k for chain in self.chains for k in chain)

    @property
    def passes(self) -> int:
        """How many sweeps there are."""
        return 1 + max(self.level.values(), default=0)


def find_swept_tensors(
    graph: Graph, units: Sequence[Subgraph], axes: RowAxes, inside: Collection[str] = ()
) -> SweptTensors:
    """Raises BrickError naming the node where rows cannot be swept. `inside` are slices that are never stored: what
    they are part of is collected in their place."""
    found = SweptTensors(axes)
    for name in graph.inputs:
        (found.level if name in axes.axes else found.resident)[name] = 0
    done: set[int] = set()
    alone = {unit.nodes[0] for unit in units if len(unit.members) == 1}
    for unit in units:
        for k in (k for k in unit.members if k not in done):
            chain = _chain(found, graph, k, alone)
            if chain:
                found.chains.append(chain)
                done.update(chain)
                found.level[graph.nodes[chain[-1]].output] = found.level[graph.nodes[k].inputs[0]]
            else:
                _note(found, graph, graph.nodes[k], inside)
    return found


def _chain(found: SweptTensors, graph: Graph, k: int, alone: Collection[int]) -> tuple[int, ...]:
    """The chain that begins with a node which reshapes or transposes swept rows."""
    node, axes = graph.nodes[k], found.axes
    if k not in alone or node.inputs[0] not in found.level or axes.of(node.inputs[0]) != axes.usual:
        return ()
    turned = isinstance(node.op, Transpose) and node.op.perm[axes.usual] != axes.usual
    if not turned and not isinstance(node.op, View):
        return ()
    chain = reshape_chain(graph, k, axes.usual, alone)
    whole = len(chain) > 1 and axes.axes.get(graph.nodes[chain[-1]].output) == axes.usual
    return chain if whole else ()


def _note(found: SweptTensors, graph: Graph, node: Node, inside: Collection[str]) -> None:
    """Finds out what a node's output is."""
    ready, swept = 0, []
    for i, name in enumerate(node.inputs):
        if name in graph.constants:
            continue
        if name in found.resident:
            ready = max(ready, found.resident[name])
        elif found.axes.needs_all(graph, node, i):
            ready = max(ready, found.level[name] + 1)
            while name in inside:
                name = graph.nodes[graph.producers[name]].inputs[0]
            found.collected[name] = _collected(found, graph, node, name)
        else:
            swept.append(name)
    if node.output not in found.axes.axes:
        found.resident[node.output] = ready
        return
    found.level[node.output] = max([ready, *(found.level[name] for name in swept)])


def computed_nodes(graph: Graph, swept: SweptTensors, spilled: Collection[str], number: int) -> set[int]:
    """The nodes that pass `number` may compute: what its targets are made of, but for what earlier passes leave."""
    known = {name for name, level in swept.collected.items() if level < number} | swept.resident.keys()
    known |= {name for name in spilled if swept.level[name] < number}
    filed = (*graph.outputs, *spilled)
    names = {name for name in (*swept.collected, *filed) if swept.level.get(name) == number}
    found = set[int]()
    for k in reversed(range(len(graph.nodes))):
        node = graph.nodes[k]
        if node.output in names and node.output not in known:
            found.add(k)
            names.update(node.inputs)
    return found


def resident_units(graph: Graph, units: Sequence[Subgraph], swept: SweptTensors, number: int) -> tuple[Subgraph, ...]:
    """The units that compute resident tensors before a pass."""
    return tuple(unit for unit in units if swept.resident.get(graph.nodes[unit.nodes[-1]].output) == number)


def node_times(
    graph: Graph, units: Sequence[Subgraph], swept: SweptTensors, spilled: Collection[str]
) -> dict[int, list[int]]:
    """When each node runs, with all of its unit: 2·pass + 1 in a pass, 2·pass before it or after the last."""
    found: dict[int, list[int]] = {k: [] for unit in units for k in unit.members}
    for number in range(swept.passes):
        computed = computed_nodes(graph, swept, spilled, number)
        for unit in units:
            for k in unit.members if not computed.isdisjoint(unit.members) else ():
                found[k].append(2 * number + 1)
    for unit in units:
        made = graph.nodes[unit.nodes[-1]].output
        for k in unit.members if made in swept.resident else ():
            found[k].append(2 * min(swept.resident[made], swept.passes))
    return found


def check_resident_units(graph: Graph, units: Sequence[Subgraph], swept: SweptTensors, inside: Collection[str]) -> None:
    """Raises BrickError naming a node that runs between passes and reads a tensor of which rows are gone by then; the
    rules above leave none. `inside` as above."""
    for unit in units:
        if graph.nodes[unit.nodes[-1]].output not in swept.resident:
            continue
        inner = {graph.nodes[k].output for k in unit.nodes}
        for node in (graph.nodes[k] for k in unit.nodes):
            for name in node.inputs:
                while name in inside:
                    name = graph.nodes[graph.producers[name]].inputs[0]
                if name in swept.level and name not in swept.collected and name not in inner:
                    raise _refusal(node, f"needs all of '{name}' {graph.types[name]} at once, which is kept by rows")


def _collected(found: SweptTensors, graph: Graph, node: Node, name: str) -> int:
    kind = graph.types[name]
    rolled = name in found.axes.rolls
    if not isinstance(node.op, ANY_SIZE) and not rolled and _is_too_large(graph, kind.nbytes):
        while found.axes.of(name) != found.axes.usual and name in graph.producers:  # name what turned the rows
            node = graph.nodes[graph.producers[name]]
            name = next(other for other in node.inputs if other in found.axes.axes)
        raise _refusal(node, f"needs all of '{name}' {kind}, {kind.nbytes / 2**30:.2f} GiB, at once")
    return found.level[name]


def _is_too_large(graph: Graph, nbytes: int) -> bool:
    """Whether a tensor of so many bytes may not be needed whole."""
    if nbytes <= COLLECTED_BYTES:
        return False
    inputs = sum(graph.types[name].nbytes for name in graph.inputs)
    largest = max((graph.out(node).nbytes for node in graph.nodes), default=0)
    return nbytes > max(COLLECTED_SHARE * inputs, LARGEST_SHARE * largest)


def _refusal(node: Node, why: str) -> BrickError:
    names = ", ".join(map(repr, node.origin or (node.name,)))
    return BrickError(f"node {names} ({node.op.name}) {why}: a network with it is not run band by band")
