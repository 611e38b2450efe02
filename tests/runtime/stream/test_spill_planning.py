"""When tensors are spilled: by the disk's speed, its room, the memory, and what is asked for."""

from __future__ import annotations

import os

import numpy as np
import pytest

import brickrt
from brickrt import zoo
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.plan.stream.choose_bands import MIB
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.files.scratch import ScratchFolder, scratch_path
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream import spill_planning, stream_planning
from brickrt.runtime.stream.stream_planning import plan_stream
from brickrt.runtime.stream.stream_report import StreamCut
from tests.runtime.stream.helpers import PLENTY, pixels, pools, two_layers

QUICK, SLOW = (1e13, 1e13), (1e3, 1e3)


@pytest.fixture
def disk(monkeypatch):
    """Says how quick the disk is, and how much room it has."""

    def says(speeds=QUICK, free=2**40):
        monkeypatch.setattr(spill_planning, "disk_speed", lambda folder: speeds)
        monkeypatch.setattr(spill_planning, "free_bytes", lambda folder: free)

    return says


def stream(out, model=None, **options):
    runtime = brickrt.Runtime(model or pools(), device="cpu", threads=2, exact=True)
    return runtime.stream(pixels(), out, **{"max_memory": PLENTY, **options})


def test_a_quick_disk_is_spilled_to_and_a_slow_one_is_not(disk, tmp_path):
    """The bits are those of a run in core; the report says what was spilled, and nothing of it stays."""
    wanted = brickrt.Runtime(pools(), device="cpu", threads=2, exact=True).execute({"x": pixels()})["y"]
    for number, (speeds, spill, some) in enumerate(
        ((QUICK, "auto", True), (QUICK, "never", False), (SLOW, "auto", False))
    ):
        disk(speeds)
        report = stream(tmp_path / f"{number}.npy", spill=spill)
        told = report.to_dict()["spilled"]
        assert bool(told) == bool(report.plan.spilled) == some
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), wanted)
        for one in told:
            kind = report.plan.plan.graph.types[one["tensor"]]
            assert one["bytes"] >= kind.nbytes and one["written_in"] == 1 + report.plan.swept.level[one["tensor"]]
            assert one["read_in"] and min(one["read_in"]) > one["written_in"]
        assert (report.to_dict()["disk"] is None) == (spill == "never")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.npy", "1.npy", "2.npy"]


def test_where_there_is_no_room_that_is_said(disk, tmp_path):
    disk(free=10**4)
    report = stream(tmp_path / "y.npy")
    assert not report.plan.spilled and "GiB beside the output's" in report.spilling.why
    disk()
    report = stream(tmp_path / "y.npy")
    assert report.plan.spilled and not report.spilling.why


def test_a_disk_that_cannot_be_written(monkeypatch, tmp_path):
    def broken(folder):
        raise BrickError(f"{folder}: Permission denied: check the path and the permissions")

    monkeypatch.setattr(spill_planning, "disk_speed", broken)
    report = stream(tmp_path / "y.npy")
    assert not report.plan.spilled and "Permission denied" in report.spilling.why


def test_networks_of_one_pass_measure_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(spill_planning, "disk_speed", None)
    report = stream(tmp_path / "y.npy", two_layers())
    assert report.spilling is None


def test_without_spills_where_those_take_too_much(disk, monkeypatch, tmp_path):
    """Plans without spills are tried as well, and of two refusals the lesser one is told."""
    disk()
    least = {}
    for spill in ("auto", "never"):
        with pytest.raises(BrickError, match="the least that would do is") as refused:
            stream(tmp_path / "y.npy", spill=spill, max_memory=1)
        least[spill] = refused.value.least.memory
    assert least["auto"].total <= least["never"].total
    monkeypatch.setattr(stream_planning, "SCRATCH_BUFFERS", 2**40)  # as if spilling took that
    report = stream(tmp_path / "y.npy", max_memory=PLENTY)
    assert not report.plan.spilled and report.spilling.why == "takes more memory than is allowed"


def test_the_least_memory_does_not_depend_on_the_disk(disk, tmp_path, monkeypatch):
    """On a slow disk a network is spilled where it would not fit otherwise, and only there."""
    monkeypatch.setattr(stream_planning, "resident_bytes", lambda: 200 * MIB)
    source, size = load(zoo.build("nafnet", size=8192, blocks=4).SerializeToString()), (8192, 8192)
    pipeline, types = Pipeline(choose_engine("cpu"), PlanOptions(), 2), {"x": TensorType((1, 3, *size), np.float32)}

    def planned(limit):
        return plan_stream(pipeline, source, types, limit, spill_into=tmp_path, whole=False).candidate

    least = {}
    for speeds in (QUICK, SLOW):
        disk(speeds)
        with pytest.raises(BrickError, match="the least that would do is") as refused:
            planned(1)
        least[speeds] = refused.value.least.memory.total
        assert refused.value.least.plan.spilled
    assert least[QUICK] == least[SLOW]
    assert planned(least[SLOW]).plan.spilled
    assert not planned(2**30).plan.spilled


def test_scratch_elsewhere(disk, tmp_path, monkeypatch):
    disk()
    (tmp_path / "out").mkdir()
    (tmp_path / "fast").mkdir()
    seen = []

    def remove(folder):
        seen.append((folder.path, len(list(folder.path.iterdir()))))
        real(folder)

    real = ScratchFolder.remove
    monkeypatch.setattr(ScratchFolder, "remove", remove)
    report = stream(tmp_path / "out" / "y.npy", scratch=tmp_path / "fast")
    assert seen == [(scratch_path(tmp_path / "out" / "y.npy", tmp_path / "fast"), len(report.plan.spilled))]
    assert not list((tmp_path / "fast").iterdir()) and len(list((tmp_path / "out").iterdir())) == 1


@pytest.mark.parametrize(
    ("options", "refused"),
    [({"spill": "often"}, "spill 'often' is impossible"), ({"scratch": "/absent"}, "/absent: there is no such folder")],
)
def test_what_makes_no_sense(options, refused, tmp_path):
    with pytest.raises(BrickError, match=refused):
        stream(tmp_path / "y.npy", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "cut", [StreamCut(8, ()), StreamCut(8, (1, 2), ("a b", "c [1]", 'd"é')), StreamCut(4, (), ("x",), 2**40)]
)
def test_cuts_are_read_as_they_were_written(cut):
    assert StreamCut.parse(str(cut)) == cut


def test_twelve_pools(disk, tmp_path):
    """All passes together run fewer layers, and the bits are the same."""
    disk()
    model = zoo.build("nafnet", size=64, width=8, blocks=12).SerializeToString()
    auto, never = stream(tmp_path / "y.npy", model).plan, stream(tmp_path / "z.npy", model, spill="never").plan
    units = [sum(len(one.schedule.units) for one in plan.sweeps) for plan in (auto, never)]
    assert units[0] < units[1] and auto.swept.passes > 5
    assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "z.npy").read_bytes()


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """The folders that were measured, each as quicker than the one before; nothing is known at first."""
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path / "cache"))
    folders = []

    def speed(folder):
        folders.append(folder)
        return 10.0 * len(folders), 20.0 * len(folders)

    monkeypatch.setattr(spill_planning, "measured_speed", speed)
    return folders


def test_what_was_measured_holds_for_all_folders_of_the_disk_for_an_hour(measured, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    assert spill_planning.disk_speed(tmp_path) == spill_planning.disk_speed(tmp_path / "other") == (10.0, 20.0)
    assert measured == [tmp_path]
    now = spill_planning.time.time() + spill_planning.REMEMBERED_SECONDS
    monkeypatch.setattr(spill_planning.time, "time", lambda: now)
    assert spill_planning.disk_speed(tmp_path) == spill_planning.disk_speed(tmp_path) == (20.0, 40.0)


def test_a_folder_in_which_nothing_can_be_written_is_tried(measured, tmp_path, monkeypatch):
    spill_planning.disk_speed(tmp_path)
    monkeypatch.setattr(os, "access", lambda *words: False)
    assert spill_planning.disk_speed(tmp_path) == (20.0, 40.0)
    with pytest.raises(BrickError, match="absent"):
        spill_planning.disk_speed(tmp_path / "absent")
