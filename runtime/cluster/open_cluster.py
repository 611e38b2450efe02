"""A client of a cluster by its address, or of one that is started on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.runtime.cluster.cluster_workers import RESOURCE
from brickrt.runtime.files.extras import needed
from brickrt.runtime.thread_count import thread_count

TIMEOUT = 10  # seconds for which a scheduler is waited for
MOST_WORKERS = 256


@contextmanager
def open_cluster(address: str, threads: int | None = None) -> Iterator[Any]:
    """A client for `tcp://host:port`, or for `local:N`: N worker processes of this machine, which share its cores or
    have so many `threads` each. Raises BrickError for another address, where nobody answers, and where Dask is missing.
    """
    distributed = needed("distributed", f"--dask {address}", "dask")
    local = re.fullmatch(r"local:(\d{1,4})", address)
    if local is None and "://" not in address:
        raise BrickError(f"--dask {address}: is no address: give tcp://HOST:PORT, or local:4 for 4 workers here")
    if local is None:
        try:
            with distributed.Client(address, timeout=TIMEOUT) as client:
                yield client
        except (OSError, ValueError) as e:  # TimeoutError is an OSError
            raise BrickError(f"--dask {address}: no scheduler answers ({e}): start one, or give local:4") from None
        return
    count = int(local[1])
    if not 1 <= count <= MOST_WORKERS:
        raise BrickError(f"--dask {address}: give from local:1 to local:{MOST_WORKERS}")
    each = threads or max(1, thread_count(None) // count)
    with (
        distributed.LocalCluster(
            n_workers=count, threads_per_worker=each, resources={RESOURCE: 1}, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
