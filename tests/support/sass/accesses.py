"""How wide a loop's accesses to global memory are."""

from __future__ import annotations

import networkx as nx

from tests.support.sass.loops import MachineLoop

LOADS, STORES = ("LDG", "LD", "LDGSTS"), ("STG", "ST")
WIDTHS = (16, 8, 4, 2, 1)


def widest(found: list[MachineLoop]) -> int:
    """Bytes of the narrowest access in the iteration that has the widest ones; 0 where no loop loads and stores.

    Elements at the edge of a box are loaded and stored one by one, in branches of their own. Loops over tasks do not
    count: those read records, as constants.
    """
    own = [loop for loop in found if not any("CONSTANT" in one.opcode for one in loop.code)]
    return next((w for w in WIDTHS if any(_goes(loop, w) for loop in own)), 0)


def _goes(loop: MachineLoop, width: int) -> bool:
    """Whether an iteration may load, then store, and have no access of fewer bytes."""
    narrow = [one.at for one in loop.code if one.family in LOADS + STORES and one.bytes < width]
    ways = loop.flow.copy()
    ways.remove_nodes_from(narrow)
    if loop.head in narrow:
        return False
    back = list(ways.predecessors(loop.head))
    ways.remove_edges_from([(at, loop.head) for at in back])
    loaded = _through(ways, {loop.head}, loop, LOADS)
    stored = _through(ways, loaded, loop, STORES)
    return any(at in stored or nx.ancestors(ways, at) & stored for at in back)


def _through(ways: nx.DiGraph, starts: set[int], loop: MachineLoop, families: tuple[str, ...]) -> set[int]:
    """The instructions of some families that are reached."""
    reached = set(starts).union(*(nx.descendants(ways, at) for at in starts))
    return {one.at for one in loop.code if one.family in families and one.at in reached}
