"""Finds plans that were measured before. Small networks start in milliseconds: this loads nothing that measures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from brickrt.graph.ir import Graph
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cache.disk_cache import sources_digest
from brickrt.version import VERSION


@cache
def measured_name() -> str:
    """What plans that were measured on the CPU depend on, beside device, options and the code that plans."""
    return f"measured on the CPU {VERSION} {sources_digest(Path(__file__).parent)}"


@dataclass(frozen=True)
class KnownPlans:
    """See `plan_cache.Tune`: what a tuner of the CPU chose before; it measures nothing."""

    again: bool = False

    @property
    def name(self) -> str:
        """See `plan_cache.Tune`."""
        return measured_name()

    def __call__(self, graph: Graph, plan: Plan) -> tuple[Subgraph, ...] | None:
        """None: nothing is known of this graph."""
        return None
