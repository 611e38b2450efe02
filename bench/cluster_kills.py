"""Runs a network on a local Dask cluster while workers, and the scheduler with all of them, are killed at random.

    python bench/cluster_kills.py --network unet --size 1024 --workers 2 --rounds 20

Every round must end with the bits of a run that nobody disturbed, and no block that was finished may begin again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import onnx
import zarr
from distributed import Client, LocalCluster

from brickrt import zoo
from brickrt.runtime.cluster.cluster_workers import RESOURCE
from brickrt.runtime.cluster.record_folder import RecordFolder
from brickrt.runtime.cluster.run_on_cluster import ClusterOptions, ClusterReport, run_on_cluster


def main() -> None:
    asked = options()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if asked.child:
        print(json.dumps(one_run(asked, Path(asked.child), resume=asked.resume)), flush=True)
        return
    random.seed(asked.seed)
    folder = Path(asked.folder or tempfile.mkdtemp(prefix="cluster-kills-"))
    files(folder, asked)
    print(f"{asked.network} {asked.size}², {asked.workers} workers, {folder}")
    one_run(asked, folder, resume=False)  # compiles
    began = time.perf_counter()
    usual = one_run(asked, folder, resume=False)
    took = time.perf_counter() - began
    print(
        f"undisturbed: {usual['blocks']} blocks, {usual['run_s']:.1f} s, {usual['peak'] >> 20} MiB a worker, "
        f"projected {usual['projected'] >> 20}, limit {usual['limit'] >> 20} MiB, {usual['digest'][:16]}"
    )
    for workers in {1, 2, 4} - {asked.workers}:
        other = one_run(argparse.Namespace(**{**vars(asked), "workers": workers}), folder, resume=False)
        assert other["digest"] == usual["digest"]
        print(f"{workers} workers: {other['run_s']:.1f} s, the same digest", flush=True)
    again = 0
    for number in range(asked.rounds):
        way: Callable[..., dict] = killed_workers if number % 2 == 0 else killed_cluster
        found = way(asked, folder, usual["run_s"], took)
        assert found["digest"] == usual["digest"], f"round {number}: {found['digest']}"
        again += found["again"]
        print(
            f"{number:3} {way.__name__:15} {found['kills']} kills, {found['run_s']:5.1f} s, begun {found['begun']} "
            f"of {found['blocks']}, finished ones begun again: {found['again']}"
        )
    assert not again
    print(f"{asked.rounds} rounds: the same digest, no finished block was begun again")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="unet")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="1500MiB", help="of a worker")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--length", type=int, help="bands of a block")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def files(folder: Path, asked: argparse.Namespace) -> None:
    """Model and input."""
    folder.mkdir(exist_ok=True)
    model = zoo.build(asked.network, size=asked.size, width=asked.width)
    onnx.save(model, folder / "model.onnx")
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    np.save(folder / "x.npy", np.random.default_rng(0).standard_normal(shape, np.float32))


@contextmanager
def cluster(asked: argparse.Namespace) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=asked.workers,
            threads_per_worker=1,
            resources={RESOURCE: 1},
            memory_limit=asked.memory,
            dashboard_address=":0",
        ) as there,
        Client(there) as client,
    ):
        yield client


def run(client: Client, asked: argparse.Namespace, folder: Path, resume: bool) -> ClusterReport:
    wanted = ClusterOptions(rows=asked.rows, length=asked.length, resume=resume)
    return run_on_cluster(client, folder / "model.onnx", {"x": folder / "x.npy"}, {"y": folder / "y.zarr"}, wanted)


def one_run(asked: argparse.Namespace, folder: Path, resume: bool) -> dict:
    """On a cluster of its own, to the end."""
    with cluster(asked) as client:
        report = run(client, asked, folder, resume)
        peak = max(client.run(peak_of_this).values())
    return facts(report, folder, 0) | {"peak": peak}


def peak_of_this() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def facts(report: ClusterReport, folder: Path, kills: int) -> dict:
    content = zarr.open(str(folder / "y.zarr"))[:]
    finished = Counter(report.finished)
    return {
        "digest": hashlib.sha256(np.ascontiguousarray(content).tobytes()).hexdigest(),
        "blocks": report.blocks,
        "begun": len(report.begun),
        "again": sum(times - 1 for times in finished.values()),
        "run_s": report.run_s,
        "limit": report.limit,
        "projected": report.memory.total,
        "kills": kills,
    }


def killed_workers(asked: argparse.Namespace, folder: Path, usual_s: float, took: float) -> dict:
    """Workers are killed at random, while Dask starts others in their place."""
    with cluster(asked) as client:
        ended, kills = threading.Event(), [0]

        def kill() -> None:
            while not ended.wait(random.uniform(0.1, 0.6) * usual_s) and kills[0] < 3:
                with suppress(Exception):  # a worker may just be starting
                    pid = random.choice(list(client.run(os.getpid).values()))
                    os.kill(pid, signal.SIGKILL)
                    kills[0] += 1

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            report = run(client, asked, folder, resume=False)
        finally:
            ended.set()
            killer.join()
    return facts(report, folder, kills[0])


def killed_cluster(asked: argparse.Namespace, folder: Path, usual_s: float, took: float) -> dict:
    """Coordinator, scheduler and workers die at once; another cluster goes on."""
    kills, resume = 0, False
    while True:
        child = start_child(folder, resume)
        try:
            said, _ = child.communicate(timeout=took - usual_s * random.uniform(0.1, 1.0) if kills < 3 else None)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.communicate()
            kills += 1
            resume = RecordFolder.beside(folder / "y.zarr").is_begun
            continue
        assert child.returncode == 0
        return json.loads(said.splitlines()[-1]) | {"kills": kills}


def start_child(folder: Path, resume: bool) -> subprocess.Popen:
    command = [sys.executable, *sys.argv, "--child", str(folder), *(["--resume"] if resume else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main()
