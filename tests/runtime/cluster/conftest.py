"""One cluster of two worker processes for all tests of a folder."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest
from distributed import Client, LocalCluster

from brickrt.runtime.cluster.cluster_workers import RESOURCE
from tests.support.programs import forks


@pytest.fixture(scope="package", autouse=True)
def _workers_are_forks() -> Iterator[None]:
    """They start sooner so; those that the command line starts, in its own tests, are new interpreters."""
    forks.server()
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.fixture(scope="package")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            resources={RESOURCE: 1},
            memory_limit="2GiB",
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
