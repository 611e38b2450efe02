"""Which tensors a sweep computes band by band, which it needs whole, and in which pass each is known.

A tensor is *swept* where a band of its rows needs only some rows of what it is computed from. A node that needs all
rows of a swept tensor at once (a global pool) ends a pass: that tensor is *collected*, whole, while the pass goes on,
and what is computed from it alone is *resident*: small, and computed between two passes.

    pass 0   x → conv → partial sums (collected)          between   partial sums → scale (resident)
    pass 1   x → conv → · scale → y
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import Boxes
from brickrt.plan.stream.reshape_chains import reshape_chain
from brickrt.plan.subgraph import Subgraph

MANY_ROWS = 32  # of a tensor with fewer, all rows are simply kept
COLLECTED_BYTES = 2**26  # a tensor that is needed whole may have so many
SPREAD_BYTES = 2**18  # a tensor that is computed of resident ones is resident too if it has no more than so many,
SPREAD = 4  # or no more than so many times those that it is computed of


@dataclass
class SweptTensors:
    """`level` of a swept tensor is the pass in which it is first known; `resident` tensors are known before the pass
    that they are mapped to; `collected` are the swept tensors that are stored whole. `chains` are reshapes and
    transposes that are swept together."""

    axis: int
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


def as_units(graph: Graph, subgraphs: Iterable[Subgraph], axis: int) -> list[Subgraph]:
    """The subgraphs that a band runs: memoized ones node by node, and those that a pass ends inside of."""
    units: list[Subgraph] = []
    for s in subgraphs:
        inner = {graph.nodes[k].output for k in s.nodes[:-1]}
        ends = any(
            name in inner and needs_all_rows(graph, graph.nodes[k], i, axis)
            for k in s.nodes
            for i, name in enumerate(graph.nodes[k].inputs)
        )
        parts = _alone(s) if s.strategy == "memoized" or ends else [s]
        units += [one for part in parts for one in _whole_segments(graph, part, axis)]
    return units


def _whole_segments(graph: Graph, s: Subgraph, axis: int) -> list[Subgraph]:
    """Partial reductions along the rows on their own: bands begin in the middle of segments."""
    along = [k for k in s.partial_reductions if graph.out(graph.nodes[k]).rank == axis + 1]
    found = [replace(s, partial_reductions=tuple(k for k in s.partial_reductions if k not in along))]
    for k in along:
        brick = graph.out(graph.nodes[k]).shape
        own = replace(s, nodes=(k,), strategy="layerwise", brick=brick, band=brick, node_bricks=(brick,))
        found.append(replace(own, partial_reductions=()))
    return found


def _alone(s: Subgraph) -> list[Subgraph]:
    """Each node of a subgraph on its own; the last one keeps its partial reductions."""
    return [
        replace(
            s,
            nodes=(k,),
            strategy="layerwise",
            brick=brick,
            band=brick,
            node_bricks=(brick,),
            partial_reductions=s.partial_reductions if k == s.nodes[-1] else (),
        )
        for k, brick in zip(s.nodes, s.node_bricks, strict=True)
    ]


def find_swept_tensors(
    graph: Graph, units: Sequence[Subgraph], axis: int, inside: Collection[str] = ()
) -> SweptTensors:
    """Raises BrickError naming the node where rows cannot be swept. `inside` are slices that are never stored: what
    they are part of is collected in their place."""
    found = SweptTensors(axis)
    for name in graph.inputs:
        shape = graph.types[name].shape
        if len(shape) > axis and shape[axis] > 1:
            found.level[name] = 0
        else:
            found.resident[name] = 0
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
    node = graph.nodes[k]
    moves = isinstance(node.op, View) or (isinstance(node.op, Transpose) and node.op.perm[found.axis] != found.axis)
    if not moves or k not in alone or node.inputs[0] not in found.level:
        return ()
    return reshape_chain(graph, k, found.axis, alone)


def _note(found: SweptTensors, graph: Graph, node: Node, inside: Collection[str]) -> None:
    """Finds out what a node's output is."""
    ready, swept = 0, []
    for i, name in enumerate(node.inputs):
        if name in graph.constants:
            continue
        if name in found.resident:
            ready = max(ready, found.resident[name])
        elif needs_all_rows(graph, node, i, found.axis):
            ready = max(ready, found.level[name] + 1)
            while name in inside:
                name = graph.nodes[graph.producers[name]].inputs[0]
            found.collected[name] = _collected(found, graph, node, name)
        else:
            swept.append(name)
    if not swept and not _spreads(graph, node, found.axis):
        found.resident[node.output] = ready
        return
    if isinstance(node.op, View):
        raise _refusal(graph, node, "gives the elements another shape")
    found.level[node.output] = max([ready, *(found.level[name] for name in swept)])


def _spreads(graph: Graph, node: Node, axis: int) -> bool:
    """Whether a node makes many rows of little, as a pooled pixel is spread over the image: those are swept again."""
    read = sum(graph.types[name].nbytes for name in node.inputs if name not in graph.constants)
    out = graph.out(node)
    many = out.rank > axis and out.shape[axis] >= MANY_ROWS and not isinstance(node.op, View)
    return many and out.nbytes > max(SPREAD * read, SPREAD_BYTES)


def _collected(found: SweptTensors, graph: Graph, node: Node, name: str) -> int:
    kind = graph.types[name]
    if kind.nbytes > COLLECTED_BYTES:
        raise _refusal(graph, node, f"needs all of '{name}' {kind}, {kind.nbytes / 2**30:.2f} GiB, at once")
    return found.level[name]


def _refusal(graph: Graph, node: Node, why: str) -> BrickError:
    names = ", ".join(map(repr, node.origin or (node.name,)))
    return BrickError(f"node {names} ({node.op.name}) {why}: a network with it is not run band by band")


def needs_all_rows(graph: Graph, node: Node, i: int, axis: int) -> bool:
    """Whether a row of the output needs all of the many rows of input `i`."""
    kind, out = graph.types[node.inputs[i]], graph.out(node)
    if node.inputs[i] in graph.constants or kind.rank <= axis or kind.shape[axis] == 1:
        return False
    over_rows = isinstance(node.op, (Reduce, Rowwise)) and axis in node.op.axes
    if out.rank <= axis or out.shape[axis] == 1 or over_rows:
        return True
    row = Boxes.whole(out.shape)
    row.hi[:, axis] = 1
    region = node.op.region(i, row, graph.ins(node), out)
    return kind.shape[axis] >= MANY_ROWS and int(region.extents[0, axis]) == kind.shape[axis]
