"""What the workers of a cluster are: asked before anything is planned, refused where they do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.plan.device.machine import instruction_set
from brickrt.runtime.cluster.block_task import forget_job
from brickrt.runtime.files.extras import needed
from brickrt.runtime.stream.resident import resident_bytes
from brickrt.version import VERSION

RESOURCE = "brickrt"
BELOW_PAUSE = 0.95  # of what a worker may have before it is paused
USUAL_LIMIT = 4 * 2**30  # where neither worker nor user says how much memory there is
HOW = "start workers with --resources 'brickrt=1', or LocalCluster(resources={'brickrt': 1})"


@dataclass(frozen=True)
class ClusterWorker:
    """One worker: threads, bytes that it may have (None is any number), bytes that it has."""

    isa: str
    version: str
    threads: int
    slots: float
    budget: int | None
    resident: int


@dataclass(frozen=True)
class ClusterWorkers:
    """All workers that take blocks; what is planned fits each of them."""

    count: int
    isa: str
    threads: int
    budget: int | None
    resident: int


def check_client(client: Any) -> None:
    """Raises BrickError where the package is missing, or `client` is no client of Dask's."""
    distributed = needed("distributed", "a Dask cluster", "dask")
    if not isinstance(client, distributed.Client):
        raise BrickError(f"client is a {type(client).__name__}: give a dask.distributed.Client")


def ask_workers(client: Any) -> ClusterWorkers:
    """Asks all workers. Raises BrickError where there is none, none declares the resource, or they differ in their
    instruction sets: bits would depend on which of them took a block."""
    check_client(client)
    found: Mapping[str, ClusterWorker] = client.run(_tell)
    if not found:
        raise BrickError("the cluster has no workers: start some")
    workers = {name: one for name, one in found.items() if one.slots >= 1}
    if not workers:
        raise BrickError(f"none of {len(found)} workers declares the resource {RESOURCE}: {HOW}")
    for what in ("isa", "version"):
        kinds: dict[str, int] = {}
        for one in workers.values():
            kinds[getattr(one, what)] = kinds.get(getattr(one, what), 0) + 1
        if len(kinds) > 1:
            told = ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))
            word = "instruction sets" if what == "isa" else "versions of brickrt"
            raise BrickError(f"the workers have several {word} ({told}): use equal ones, or give only those brickrt=1")
    budgets = [one.budget for one in workers.values() if one.budget]
    first = next(iter(workers.values()))
    return ClusterWorkers(
        count=len(workers),
        isa=first.isa,
        threads=min(one.threads for one in workers.values()),
        budget=min(budgets, default=None),
        resident=max(one.resident for one in workers.values()),
    )


def _tell(dask_worker: Any) -> ClusterWorker:
    """Runs in a worker. What the last run left there is given up."""
    forget_job()
    memory, state = dask_worker.memory_manager, dask_worker.state
    share = memory.memory_pause_fraction or 1.0
    return ClusterWorker(
        isa=instruction_set(),
        version=VERSION,
        threads=state.nthreads,
        slots=state.total_resources.get(RESOURCE, 0),
        budget=int(BELOW_PAUSE * share * memory.memory_limit) if memory.memory_limit else None,
        resident=resident_bytes(),
    )
