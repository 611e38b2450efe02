"""What a cluster writes has the bits of one process, whoever dies; no block that is finished is begun again."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import zarr
from distributed import Client, LocalCluster, WorkerPlugin

from brickrt import BrickError, Runtime, load
from brickrt.plan.device import machine
from brickrt.runtime.cluster import block_task, cluster_workers
from brickrt.runtime.cluster.cluster_workers import RESOURCE
from brickrt.runtime.cluster.record_folder import RecordFolder
from brickrt.runtime.cluster.run_on_cluster import ClusterReport, run_on_cluster, wait_for_blocks
from brickrt.runtime.stream import spill_planning
from tests.runtime.cluster.helpers import Case, Dies, digest, interrupted, make_case
from tests.support.graphs.attention import attention_network


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Case, str]]:
    """All cases, with the digest of what one process writes."""
    folder = tmp_path_factory.mktemp("cases")
    found = [make_case(folder, name) for name in ("unet", "nafnet", "uneven", "pooled")]
    return {case.name: (case, case.local()) for case in found}


def check_once(report: ClusterReport, died: int = 0) -> None:
    """Each block was finished once, and none was begun after it was, but for those of workers that died."""
    assert Counter(report.finished) == Counter(range(report.blocks))
    assert len(report.begun) <= report.blocks + died


@pytest.mark.parametrize("name", ["unet", "nafnet", "uneven", "pooled"])
def test_two_workers_write_what_one_process_does(cases, client, tmp_path: Path, name: str):
    case, local = cases[name]
    report = case.run(client, tmp_path / "y.zarr")
    assert digest(tmp_path / "y.zarr") == local
    assert report.blocks > 2 and report.workers == 2
    check_once(report)
    assert [path.name for path in tmp_path.iterdir()] == ["y.zarr"]


@pytest.mark.parametrize(("when", "name", "block"), [("after", "uneven", 1), ("begun", "nafnet", 5)])
def test_a_worker_dies(cases, client, tmp_path: Path, when: str, name: str, block: int):
    """After a write, and in the middle of a task of a later pass: rows that it had found are in the records."""
    case, local = cases[name]
    plugin = Dies(when, block, tmp_path / "died")
    client.register_plugin(plugin)
    try:
        report = case.run(client, tmp_path / "y.zarr")
    finally:
        client.unregister_worker_plugin("dies")
    assert (tmp_path / "died").exists()
    assert digest(tmp_path / "y.zarr") == local
    # a worker that dies after its record has not logged that it is finished
    expected = Counter(range(report.blocks)) - Counter([block] if when == "after" else [])
    assert Counter(report.finished) == expected
    begun = Counter(report.begun)
    assert begun[block] == (1 if when == "after" else 2)
    assert all(times == 1 for number, times in begun.items() if number != block)


@pytest.mark.parametrize("status", ["lost", "pending"])
def test_a_block_that_is_lost_once_done_is_waited_for(client, status: str):
    """Its worker dies after Dask said that it is finished and before we ask; then it is run again."""
    future = client.submit(int, 1, pure=False)
    future.result()
    told: list[int] = []

    def tell(done: int, total: int) -> None:
        told.append(done)
        if not done:
            client.sync(lose)

    async def lose() -> None:
        await asyncio.sleep(0.05)  # Dask's iterator has it as done, nobody asked yet
        (future._state.lose if status == "lost" else future._state.retry)()
        asyncio.get_running_loop().call_later(0.2, future._state.finish)

    wait_for_blocks([future], tell)
    assert told == [0, 1]
    assert future.status == "finished"


def test_another_cluster_goes_on(cases, client, tmp_path: Path):
    """A run fails; a cluster of one worker, with a scheduler of its own, finishes it."""
    case, local = cases["nafnet"]
    target = tmp_path / "y.zarr"
    there = interrupted(case, client, target, 6, tmp_path / "failed")
    assert 4 <= len(there) < 12
    assert not target.exists()
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, resources={RESOURCE: 1}, memory_limit="2GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as other,
    ):
        report = case.run(other, target, resume=True)
    assert digest(target) == local
    assert report.workers == 1
    assert Counter(report.finished) == Counter(range(report.blocks))
    begun = Counter(report.begun)
    assert all(begun[number] == 1 for number in there)


def test_what_was_changed_is_written_again(cases, client, tmp_path: Path):
    """A chunk is spoilt, a record is torn: the two blocks are run again."""
    case, local = cases["unet"]
    target = tmp_path / "y.zarr"
    there = sorted(interrupted(case, client, target, 3, tmp_path / "failed"))
    folder = RecordFolder.beside(target)
    assert len(there) >= 2
    box = folder.record(there[0]).boxes[0]  # type: ignore[union-attr]
    chunk = tmp_path / ".y.zarr.brickrt-part" / "c" / "0" / "0" / str(box.lo[2] // box.extents[2]) / "0"
    chunk.write_bytes(bytes(chunk.stat().st_size))
    record = folder.path / f"block-{there[1]}"
    record.write_bytes(record.read_bytes()[:-1])
    report = case.run(client, target, resume=True)
    assert digest(target) == local
    begun = Counter(report.begun)
    assert [begun[number] for number in there] == [2, 2, *[1] * (len(there) - 2)]


def test_an_input_that_was_changed_is_refused(cases, client, tmp_path: Path):
    case = make_case(tmp_path, "unet")
    interrupted(case, client, tmp_path / "y.zarr", 1, tmp_path / "failed")
    np.save(case.input, np.load(case.input) + 1)
    with pytest.raises(BrickError, match="the input is another one than when this run was begun"):
        case.run(client, tmp_path / "y.zarr", resume=True)
    report = case.run(client, tmp_path / "y.zarr")  # from the beginning
    check_once(report)


def test_refusals(cases, client, tmp_path: Path):
    case, _ = cases["unet"]
    with pytest.raises(BrickError, match=r"workers of a cluster write Zarr together: give a name that ends in \.zarr"):
        case.run(client, tmp_path / "y.npy")
    (tmp_path / "there.zarr").mkdir()
    with pytest.raises(BrickError, match="is there, and there is no run of it to go on with"):
        case.run(client, tmp_path / "there.zarr", resume=True)
    (tmp_path / "there.zarr").rmdir()
    with pytest.raises(BrickError, match="more than a worker may have before it is paused, 1556 MiB"):
        case.run(client, tmp_path / "y.zarr", max_memory=2**31)
    with pytest.raises(BrickError, match="memory are not enough: the least that would do is"):
        case.run(client, tmp_path / "y.zarr", max_memory=2**20)
    folder = RecordFolder.beside(tmp_path / "y.zarr")
    with folder.locked(resume=False), pytest.raises(BrickError, match="another run writes this output"):
        case.run(client, tmp_path / "y.zarr")
    with pytest.raises(BrickError, match=r"client is a str: give a dask\.distributed\.Client"):
        case.run("local:4", tmp_path / "y.zarr")
    with pytest.raises(BrickError, match=r"outputs are a str: give them by name, as \{'y': file\}"):
        run_on_cluster(client, b"", {"x": "x.zarr"}, "y.zarr")
    assert not list(tmp_path.iterdir())


class _OtherSet(WorkerPlugin):
    name = "other"

    def __init__(self, address: str) -> None:
        self.address = address

    def setup(self, worker) -> None:
        if worker.address == self.address:
            cluster_workers.instruction_set = lambda: "avx2 of old"  # type: ignore[assignment]

    def teardown(self, worker) -> None:
        cluster_workers.instruction_set = machine.instruction_set


def test_mixed_instruction_sets_are_refused(cases, client, tmp_path: Path):
    case, _ = cases["unet"]
    one = next(iter(client.scheduler_info()["workers"]))
    client.register_plugin(_OtherSet(one))
    try:
        with pytest.raises(BrickError, match="several instruction sets") as caught:
            case.run(client, tmp_path / "y.zarr")
    finally:
        client.unregister_worker_plugin("other")
    assert f"1 × {machine.instruction_set()}" in str(caught.value)
    client.run(block_task.forget_job)


def test_workers_without_the_resource_are_refused(cases, tmp_path: Path):
    case, _ = cases["unet"]
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        pytest.raises(BrickError, match="none of 1 workers declares the resource brickrt: start workers with"),
    ):
        case.run(client, tmp_path / "y.zarr")


def test_a_runtime_with_a_client(cases, client, tmp_path: Path):
    """Its `stream` is the cluster's, of files alone; its figures are those of the workers."""
    case, _ = cases["uneven"]
    with Runtime(case.model, device="cpu", client=client) as runtime:
        report = runtime.stream(case.input, tmp_path / "y.zarr", max_memory=2**30)
        assert isinstance(report, ClusterReport) and report.workers == 2
        x, y = np.load(case.input), zarr.open(str(tmp_path / "y.zarr"))
        assert report.bytes_written == y.nbytes and report.bytes_read >= x.nbytes and 0 < report.peak <= report.limit
        assert report.bands == report.all_bands == report.to_dict()["bands_run"]
        np.testing.assert_allclose(y[:], runtime.execute({"x": x})[case.output], atol=1e-4)  # here
        with pytest.raises(BrickError, match="input 'x' is a ndarray: give a path"):
            runtime.stream(x, tmp_path / "z.zarr")
        with pytest.raises(BrickError, match="window is of no use on a cluster"):
            runtime.stream(case.input, tmp_path / "z.zarr", window=64)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [({"isa": "avx2"}, "isa is of no use"), ({"device": "reference"}, "device is of no use")],
)
def test_options_that_workers_do_not_take(cases, client, wrong: dict, why: str):
    with pytest.raises(BrickError, match=why):
        Runtime(cases["uneven"][0].model, client=client, **wrong)


def test_workers_load_the_model_themselves(cases, client):
    with pytest.raises(BrickError, match="give its path, or its bytes"):
        Runtime(load(cases["uneven"][0].model), device="cpu", client=client)


def test_attention_over_a_whole_image(client, tmp_path: Path):
    """Keys and values of all blocks reach all blocks of the next pass."""
    onnx.save(attention_network("tokens", (48, 20)), tmp_path / "attention.onnx")
    np.save(tmp_path / "attention.npy", np.random.default_rng(0).standard_normal((1, 3, 48, 20)).astype(np.float32))
    case = Case(tmp_path, "attention", "y", length=1)
    report = case.run(client, tmp_path / "y.zarr")
    assert report.blocks > 4 and digest(tmp_path / "y.zarr") == case.local()


@pytest.fixture
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that may save time is spilled."""
    monkeypatch.setattr(spill_planning, "disk_speed", lambda folder: (1e13, 1e13))


def test_spilled_tensors_are_files_that_all_workers_see(cases, client, tmp_path: Path, fast_disk):
    case, local = cases["nafnet"]
    (tmp_path / "scratch").mkdir()
    report = case.run(client, tmp_path / "y.zarr", scratch=tmp_path / "scratch")
    assert len(report.plan.spilled) > 1
    assert digest(tmp_path / "y.zarr") == local
    check_once(report)
    assert [*(tmp_path / "scratch").iterdir()] == []
    assert not case.run(client, tmp_path / "z.zarr", spill="never").plan.spilled


def test_a_run_with_spills_goes_on(cases, client, tmp_path: Path, fast_disk, monkeypatch):
    """It reads what an earlier one spilled; what is torn, and nothing else, is done again."""
    case, local = cases["nafnet"]
    found = interrupted(case, client, tmp_path / "y.zarr", 6, tmp_path / "mark")
    monkeypatch.undo()  # a run that goes on measures no disk
    (scratch,) = tmp_path.glob("*.brickrt-scratch")
    largest = max(scratch.iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[100] ^= 1
    largest.write_bytes(data)
    report = case.run(client, tmp_path / "y.zarr", resume=True)
    assert report.plan.spilled and digest(tmp_path / "y.zarr") == local
    again = Counter(report.begun) - Counter(range(report.blocks))
    assert sum(again[number] for number in found) == 1
    assert not scratch.exists()
