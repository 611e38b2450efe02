"""Runs that end early: killed, out of disk, with torn chunks; and what may not be gone on with."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
from errno import ENOSPC

import numpy as np
import pytest

from bench.stream_kills import digest
from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.journal import journal_path, read_journal
from brickrt.runtime.files.scratch import ScratchFile, scratch_path
from tests.runtime.stream.helpers import PLENTY, child, may_spill, pixels, pools, run, two_layers
from tests.support.cpu.described import plan_for

MANY = 1 << 30  # writes, more than a run makes


@pytest.mark.parametrize(
    ("model", "kills", "name", "spill"),
    [(two_layers, 1, "y.zarr", "never"), (pools, 2, "y.npy", "all")],
)
def test_killed_at_random_moments_and_gone_on_with(model, kills, name, spill, tmp_path):
    """SIGKILL a while after some band, of NAFNet's in any of its passes. The files are those of a run in one go."""
    rng, out = random.Random(7), tmp_path / name
    (tmp_path / "m.onnx").write_bytes(model())
    np.save(tmp_path / "x.npy", pixels())
    words = [tmp_path / "m.onnx", "--input", tmp_path / "x.npy", "--limit", PLENTY]
    spilled = may_spill(model()) if spill == "all" else ()
    whole = run(model(), pixels(), tmp_path / f"whole-{name}", rows=4, spilled=spilled)
    for k in range(kills):
        begin = ["--resume"] if k else ["--rows", 4, "--spill", spill]
        moment = ["--kill-band", max(1, whole.all_bands // (kills + 1) - 2), "--delay", rng.uniform(0, 0.004)]
        code, _, err = child(*words, "--output", out, *begin, *moment, check=False)
        assert code == -signal.SIGKILL, err
        assert journal_path(out).exists() and not out.exists()
    _, told, _ = child(*words, "--output", out, "--resume")
    assert told["bands_run"] < whole.all_bands
    assert digest(out) == digest(tmp_path / f"whole-{name}")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["m.onnx", "x.npy", name, f"whole-{name}"])


def test_a_full_disk(tmp_path, monkeypatch):
    """One line; nothing is lost, and the run goes on where there is room again."""
    plan_for(monkeypatch, cores=2)
    model, out, real, left = two_layers(), tmp_path / "y.npy", os.pwrite, [MANY]

    def full(fd, data, offset):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(ENOSPC, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    whole = run(model, pixels(), tmp_path / "whole.npy")
    left[0] = (MANY - left[0]) * 2 // 3  # of what is written in all
    with pytest.raises(BrickError, match=r"^\S+: the disk is full: .*--resume goes on with it$") as error:
        run(model, pixels(), out)
    assert "\n" not in str(error.value) and not out.exists()
    monkeypatch.setattr(os, "pwrite", real)
    assert read_journal(journal_path(out))[1]
    assert 0 < run(model, pixels(), out, resume=True).bands < whole.all_bands
    assert digest(out) == digest(tmp_path / "whole.npy")


def test_a_chunk_that_does_not_fit_the_disk(tmp_path):
    """Zarr's chunks are files of their own: the limit on a file's size is below that of a chunk."""
    model, out = two_layers(size=256), tmp_path / "y.zarr"
    given = pixels(256)
    run(model, given, tmp_path / "whole.zarr", rows=64)
    heard, before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        with pytest.raises(BrickError, match=r"a file may not grow as large: .*, or its disk's$") as error:
            run(model, given, out, rows=64)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["whole.zarr"]  # no band was finished: nothing is kept


@pytest.mark.parametrize(
    ("how", "share"),
    [("torn", 0.9), ("cut off", 0.6), ("missing", 0.9), ("as it was", 0.3)],
)
def test_scratch_that_is_torn_or_missing_is_done_again(how, share, tmp_path):
    """What the rest of the run reads of it; scratch that is whole is read where it is."""
    model, out, whole = pools(), tmp_path / "y.npy", tmp_path / "whole.npy"
    spilled = may_spill(model)
    bands = run(model, pixels(), whole, spilled=spilled).all_bands
    _ended_after(round(share * bands), model, out, spilled)
    scratch = scratch_path(out)
    largest = max(scratch.iterdir(), key=lambda path: path.stat().st_size)  # others were read for the last time
    with largest.open("r+b") as file:
        if how == "torn":
            file.seek(1000)
            file.write(bytes(64))
        elif how == "cut off":
            file.truncate(largest.stat().st_size // 2)
    if how == "missing":
        shutil.rmtree(scratch)
    report = run(model, pixels(), out, resume=True)
    assert digest(out) == digest(whole) and report.plan.spilled == spilled
    left = bands - round(share * bands)
    assert report.bands <= left + 8 if how == "as it was" else report.bands > left
    assert sorted(path.name for path in tmp_path.iterdir()) == ["whole.npy", "y.npy"]


def test_a_full_disk_while_spilling(tmp_path, monkeypatch):
    model, out, real, left = pools(), tmp_path / "y.npy", ScratchFile.write, [7]
    spilled = may_spill(model)

    def full(file, lo, array):
        left[0] -= 1
        if left[0] < 0:
            raise BrickError(f"{file.name}: the disk is full: free space, or write to another disk")
        real(file, lo, array)

    whole = run(model, pixels(), tmp_path / "whole.npy", spilled=spilled)
    monkeypatch.setattr(ScratchFile, "write", full)
    with pytest.raises(BrickError, match=r"rows: the disk is full: .*--resume goes on with it$"):
        run(model, pixels(), out, spilled=spilled)
    monkeypatch.undo()
    assert 0 < run(model, pixels(), out, resume=True).bands < whole.all_bands
    assert digest(out) == digest(tmp_path / "whole.npy")


@pytest.mark.parametrize("name", ["y.npy", "y.zarr"])
def test_a_torn_chunk_is_done_again(name, tmp_path):
    """A kill leaves none where the disk does what it says; what is there is read again all the same."""
    model, out = two_layers(), tmp_path / name
    run(model, pixels(), tmp_path / f"whole-{name}")
    _ended_after(4, model, out)
    part = next(path for path in tmp_path.iterdir() if path.name.endswith("brickrt-part"))
    if part.is_dir():
        chunk = sorted(path for path in (part / "c").rglob("*") if path.is_file())[0]
        chunk.write_bytes(chunk.read_bytes()[:-100])
    else:
        with part.open("r+b") as file:
            file.seek(128 + 4 * 64 * 9)  # in the second band
            file.write(b"\xff" * 8)
    told = run(model, pixels(), out, resume=True)
    assert told.bands >= told.all_bands - 2
    assert digest(out) == digest(tmp_path / f"whole-{name}")


def test_what_changed_meanwhile_is_not_gone_on_with(tmp_path):
    model, out = two_layers(), tmp_path / "y.npy"
    _ended_after(3, model, out)
    for refused, words in {
        "the input is another one": (model, pixels(seed=9), {}),
        "the model is another one": (two_layers(seed=6), pixels(), {}),
        "the output is another one": (model, pixels(), {"scale": 2.0}),
    }.items():
        given, array, options = words
        with pytest.raises(BrickError, match=refused) as error:
            run(given, array, out, resume=True, **options)
        assert "\n" not in str(error.value)
    run(model, pixels(), tmp_path / "whole.npy")
    run(model, pixels(), out, resume=True)  # nothing of it was lost
    assert digest(out) == digest(tmp_path / "whole.npy")


def test_nothing_to_go_on_with(tmp_path):
    with pytest.raises(BrickError, match="there is no such journal of a run to go on with: leave out --resume"):
        run(two_layers(), pixels(), tmp_path / "y.npy", resume=True)
    assert not list(tmp_path.iterdir())


class Damaged:
    """An array that cannot be read from some row on. Single rows, which its digest is made of, can."""

    def __init__(self, from_row):
        self.array, self.from_row = pixels(), from_row
        self.shape, self.dtype = self.array.shape, self.array.dtype

    def __getitem__(self, box):
        if box[2].stop - box[2].start > 1 and box[2].stop > self.from_row:
            raise InputError("x: is cut off at 9 bytes: copy or write it again")
        return self.array[box]


@pytest.mark.parametrize("model", [two_layers(), pools()], ids=["layers", "pools"])
def test_an_input_that_cannot_be_read(model, tmp_path):
    """Nothing stays where no band is finished; else it is of use to who reads the same input again."""
    out, spilled = tmp_path / "y.npy", may_spill(model)
    with pytest.raises(InputError, match=r"copy or write it again$"):
        run(model, Damaged(1), out, spilled=spilled)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="kept, for --resume if the input can be read as it was: one that is written"):
        run(model, Damaged(40), out, spilled=spilled)
    assert read_journal(journal_path(out))[1]


def test_the_bands_of_the_first_run_are_kept(tmp_path):
    """Another limit would cut another way; where it is too low for the bands that there are, that is said."""
    model, out = two_layers(), tmp_path / "y.npy"
    _ended_after(3, model, out)
    with pytest.raises(BrickError, match=r"not enough for the bands that this run was begun with: raise --max-memory"):
        run(model, pixels(), out, resume=True, max_memory=2**27)
    told = run(model, pixels(), out, resume=True, max_memory=None)
    assert told.plan.rows == 8


class Enough(Exception):
    """A run is left on purpose."""


def _ended_after(bands, model, out, spilled=()):
    def watch(progress):
        if progress.bands >= bands:
            raise Enough

    with pytest.raises(Enough):
        run(model, pixels(), out, watch=watch, spilled=spilled)
    assert journal_path(out).exists()


@pytest.mark.parametrize("model", [two_layers(), pools()], ids=["layers", "pools"])
def test_programs_that_are_made_as_bands_come(model, tmp_path, monkeypatch):
    """The files are those of a run whose programs are all made before it, and so they are of one that goes on."""
    whole = run(model, pixels(), tmp_path / "whole.npy")
    for name, few in {"MANY_TABLES": 0, "LEAST_HELD": 2, "MAKING_FACTOR": 0}.items():
        monkeypatch.setattr(f"brickrt.plan.stream.stream_memory.{name}", few)
    out = tmp_path / "y.npy"
    _ended_after(whole.all_bands // 2, model, out)
    report = run(model, pixels(), out, resume=True)
    assert whole.memory.held is None and report.memory.held >= 2
    assert 0 < report.bands < whole.all_bands and digest(out) == digest(tmp_path / "whole.npy")


def test_a_run_that_was_ended_after_its_last_band(tmp_path):
    """Nothing is left to compute: the output gets its name."""

    model = two_layers()
    bands = run(model, pixels(), tmp_path / "whole.npy").all_bands
    _ended_after(bands, model, tmp_path / "y.npy")
    report = run(model, pixels(), tmp_path / "y.npy", resume=True)
    assert report.bands == 0 and digest(tmp_path / "y.npy") == digest(tmp_path / "whole.npy")


@pytest.mark.parametrize("name", ["y.npy", "y.zarr"])
def test_a_second_run_leaves_the_work_of_the_first_alone(name, tmp_path):
    """It is refused, begun anew or gone on with, before it opens the output that the first one writes."""
    model, out, asked = two_layers(), tmp_path / name, []

    def watch(told):
        if told.bands == told.all_bands - 1:
            for resume in (False, True):
                with pytest.raises(BrickError, match="another run writes this output: wait for it"):
                    run(model, pixels(), out, resume=resume)
                asked.append(resume)

    run(model, pixels(), out, watch=watch)
    run(model, pixels(), tmp_path / f"whole-{name}")
    assert len(asked) == 2 and digest(out) == digest(tmp_path / f"whole-{name}")
