"""Neighbouring operators on pixels become one, where tensor cores multiply: what is between them stays in registers.

x ─ Map ─ Conv 1×1 ─┬─ Rowwise ─ Conv 1×1 ─ Conv 1×1 ─ y      x ─ PixelChain ─ y
                    └──────────────────────────┘          →

Only what nobody else reads goes in; the last one's output is the chain's. A GPU then reads and writes memory once for
all of them. Products of float32 that are not rounded to tf32 take longer than memory, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import ml_dtypes
import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.rewriter import origins
from brickrt.ops.operators.chains.pixel_chain import Link, PixelChain, has_pixels, is_pixelwise, keeps_channels
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.rowwise import Rowwise

F32 = np.dtype(np.float32)
HALVES = frozenset({np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)})
MOST_LINKS = 8
MOST_ALIVE = 256
"""Channels whose values are in registers at a time: a lane has half a register of each. A few may be spilled, which
takes less than a chain more."""
LEAST_SAVED = 1 / 3  # of the bytes that a chain moves: those that it saves; else it is in the way of fused bricks
SLICE = 64  # channels, of all parts, of a product at the end, which is stored slice by slice


def pixel_chains(graph: Graph, rounds_float32: bool) -> Graph:
    """An equal graph. `rounds_float32`: products of float32 are rounded to tf32, and so on tensor cores too."""
    search = _ChainSearch(graph, HALVES | {F32} if rounds_float32 else HALVES)
    joined = {members[-1]: members for members in search.chains()}
    if not joined:
        return graph
    inside = {k for members in joined.values() for k in members}
    kept = (k for k in range(len(graph.nodes)) if k not in inside or k in joined)
    nodes = tuple(_chain(graph, joined[k]) if k in joined else graph.nodes[k] for k in kept)
    gone = {graph.nodes[k].output for k in inside - joined.keys()}
    types = {name: kind for name, kind in graph.types.items() if name not in gone}
    return replace(graph, nodes=nodes, types=types)


def _chain(graph: Graph, members: Sequence[int]) -> Node:
    """The node of some nodes. Weights are inputs of their own, as they lie in memory otherwise than other constants."""
    nodes = [graph.nodes[k] for k in members]
    results = {node.output: j for j, node in enumerate(nodes)}
    names: list[str] = []
    reads = []
    for node in nodes:
        found: list[int] = []
        for place, name in enumerate(node.inputs):
            if name in results:
                found.append(-1 - results[name])
                continue
            weights = isinstance(node.op, Conv) and place == 1
            if weights or name not in names:
                names.append(name)
            found.append(len(names) - 1 if weights else names.index(name))
        reads.append(found)
    links = (
        Link(node.op, tuple(k if k >= 0 else len(names) - 1 - k for k in found))
        for node, found in zip(nodes, reads, strict=True)
    )
    last = nodes[-1]
    return Node(last.name, PixelChain(tuple(links), len(names)), tuple(names), last.output, origins(nodes))


@dataclass
class _ChainSearch:
    """Looks for chains of a graph whose products of these types are on tensor cores."""

    graph: Graph
    factors: frozenset[np.dtype]

    @cached_property
    def may_join(self) -> list[bool]:
        """Whether each node may be a link."""
        return [self._may_join(node) for node in self.graph.nodes]

    def _may_join(self, node: Node) -> bool:
        ins, out = self.graph.ins(node), self.graph.out(node)
        known = HALVES | {F32}
        if not out.size or out.dtype not in known or any(t.dtype not in known for t in ins):
            return False
        if not is_pixelwise(node.op, ins, out):
            return False
        if isinstance(node.op, Rowwise):
            return all(step.dtype in known and step.pre.dtype in known for step in node.op.steps)
        if not isinstance(node.op, Conv):
            return True
        constant = all(name in self.graph.constants for name in node.inputs[1 : 2 + node.op.bias])
        return constant and ins[0].dtype == ins[1].dtype and ins[0].dtype in self.factors

    def chains(self) -> list[list[int]]:
        """The members of each chain, ascending; the earliest node that can begin one does."""
        found: list[list[int]] = []
        taken: set[int] = set()
        for k in range(len(self.graph.nodes)):
            if k not in taken and self.may_join[k] and (members := self._grown(k)):
                found.append(members)
                taken.update(members)
        return found

    def _grown(self, first: int) -> list[int]:
        """The longest chain that begins at a node; none where no two nodes with a product are one."""
        members, best = [first], list[int]()
        while len(members) < MOST_LINKS and self._goes_on(members):
            readers = {k for m in members for k in self._readers(m)} - set(members)
            following = min(k for k in readers if k > members[-1])
            if not self.may_join[following] or not self._continues(members, following):
                break
            members.append(following)
            if self._alive(members) > MOST_ALIVE:
                break
            closed = all(set(members).issuperset(self._readers(m)) for m in members[:-1])
            if closed and any(isinstance(self.graph.nodes[k].op, Conv) for k in members) and self._saves(members):
                best = list(members)
        return best

    def _goes_on(self, members: Sequence[int]) -> bool:
        """Whether a later node may follow: all that read a member, but for the last one, may be links."""
        last = members[-1]
        before = [k for m in members[:-1] for k in self._readers(m)]
        inner = all(k >= 0 and self.may_join[k] for k in before)
        after = self._readers(last)
        return inner and any(k > last for k in (*before, *after)) and -1 not in after

    def _readers(self, k: int) -> tuple[int, ...]:
        """The nodes that read one's output; −1 where that is an output of the graph."""
        name = self.graph.nodes[k].output
        return (*self.graph.consumers.get(name, ()), *((-1,) if name in self.graph.outputs else ()))

    def _continues(self, members: Sequence[int], following: int) -> bool:
        """Whether a node has the pixels of the members, and all channels of what it reads of them."""
        graph, node = self.graph, self.graph.nodes[following]
        results = {graph.nodes[k].output: graph.out(graph.nodes[k]) for k in members}
        read = [(place, results[name]) for place, name in enumerate(node.inputs) if name in results]
        out = graph.out(node)
        return has_pixels(next(iter(results.values())), out.shape) and all(
            keeps_channels(node.op, place, kind, out) for place, kind in read
        )

    def _saves(self, members: Sequence[int]) -> bool:
        """Whether what is not written and read again is enough beside what is."""
        nodes = [self.graph.nodes[k] for k in members]
        results = [node.output for node in nodes]
        read = {name for node in nodes for name in node.inputs} - self.graph.constants.keys() - set(results)
        moved = sum(self.graph.types[name].nbytes for name in (*read, results[-1]))
        kept = sum(self.graph.types[r].nbytes * (1 + len(self._readers(k))) for k, r in zip(members, results[:-1]))
        return kept >= LEAST_SAVED * moved

    def _alive(self, members: Sequence[int]) -> int:
        """The most channels whose values are in registers at a time: those of a norm, sums of products, and results
        that later links read. Products take values from memory piece by piece."""
        most = 0
        for place, k in enumerate(members):
            node, readers = self.graph.nodes[k], set(members[place:])
            parts = node.op.gate_parts if isinstance(node.op, Conv) else 0
            kept = {self.graph.nodes[m].output for m in members[:place] if readers.intersection(self._readers(m))}
            read = self._channels(node.inputs[0]) if isinstance(node.op, Rowwise) and node.inputs[0] not in kept else 0
            held = sum(map(self._channels, kept))
            own = max(parts, 1) * self._channels(node.output)
            most = max(most, read + held + (min(own, SLICE) if k == members[-1] and parts else own))
        return most

    def _channels(self, name: str) -> int:
        return self.graph.types[name].shape[1]
