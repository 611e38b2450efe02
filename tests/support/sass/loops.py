"""The loops of a function of machine code, and what their bodies consist of."""

from __future__ import annotations

from dataclasses import dataclass, field

import networkx as nx

from tests.support.sass.read import INSTRUCTION, MachineFunction, MachineInstruction

ENDS = ("EXIT", "RET", "BRA", "BRX", "JMP")  # without a predicate, what follows these is not what comes next
TENSOR = ("HMMA", "IMMA", "DMMA")  # matrices, on tensor cores
PRODUCTS = ("FFMA", "DFMA")
LOCAL = ("LDL", "STL")  # what was spilled, and arrays that are not in registers
DIVISION = ("MUFU",)  # reciprocals; the code holds no other function that needs them in a loop over the depth


@dataclass(frozen=True)
class MachineLoop:
    """Instructions that are repeated, by their addresses; whether no other loop is among them; what may follow what."""

    code: tuple[MachineInstruction, ...]
    innermost: bool
    flow: nx.DiGraph = field(repr=False, compare=False)
    head: int

    def count(self, *families: str) -> int:
        """How many instructions are of these families."""
        return sum(one.family in families for one in self.code)

    def widths(self, *families: str) -> list[int]:
        """Bytes that a thread moves with each instruction of these families."""
        return [one.bytes for one in self.code if one.family in families]


def loops(function: MachineFunction) -> list[MachineLoop]:
    """All natural loops of a function, those with one head as one; the shortest first."""
    graph = _flow(function)
    above = nx.immediate_dominators(graph, 0)
    bodies: dict[int, set[int]] = {}
    for at, head in graph.edges:
        if at >= head and at in above and _dominates(above, head, at):
            bodies.setdefault(head, {head}).update(_leading(graph, head, at))
    ordered = sorted(bodies.items(), key=lambda item: len(item[1]))
    return [_loop(function, graph, head, body, bodies.keys() & body == {head}) for head, body in ordered]


def _loop(function: MachineFunction, graph: nx.DiGraph, head: int, body: set[int], innermost: bool) -> MachineLoop:
    code = tuple(one for one in function.code if one.at in body and not one.never)
    return MachineLoop(code, innermost, graph.subgraph(body), head)


def _flow(function: MachineFunction) -> nx.DiGraph:
    """An edge from each instruction to those that may come next."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(one.at for one in function.code)
    last = function.code[-1].at
    for one in function.code:
        if one.target is not None:
            graph.add_edge(one.at, one.target)
        goes_on = one.family not in ENDS or one.conditional
        if goes_on and one.at < last:
            graph.add_edge(one.at, one.at + INSTRUCTION)
    return graph


def _dominates(above: dict[int, int], head: int, at: int) -> bool:
    """Whether every way to `at` leads through `head`."""
    while at != head and above.get(at, at) not in (at, None):
        at = above[at]
    return at == head


def _leading(graph: nx.DiGraph, head: int, at: int) -> set[int]:
    """What leads to `at` without going through `head`."""
    found, ends = {head, at}, [at] if at != head else []
    while ends:
        fresh = set(graph.predecessors(ends.pop())) - found
        found |= fresh
        ends += fresh
    return found
