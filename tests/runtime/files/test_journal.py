"""The journal of a run that may be killed at any moment."""

from __future__ import annotations

import os
import textwrap
import tracemalloc
from functools import partial

import numpy as np
import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.identity import checksum
from brickrt.runtime.files.journal import (
    PIECE,
    Journal,
    JournalPlace,
    Record,
    journal_path,
    read_journal,
    stored_checksum,
    verify,
)
from brickrt.runtime.files.sink import create_sink
from brickrt.runtime.files.source import open_source
from tests.runtime.files.helpers import odd, values
from tests.support.programs import forks

HEADER = {"model": "1f", "input": "2f", "plan": "3f", "instruction set": "avx2", "format": "1"}
FINISHED = {(0, 0): ("aa", b""), (0, -1): ("bb", b"partial sums"), (2**40, 7): ("", bytes(range(250)) * 4)}


def contents(journal):
    """Checksum and results of each finished unit."""
    return {key: (record.checksum, journal.results(key)) for key, record in journal.finished.items()}


def sizes(units):
    """Checksums, and how many bytes of results there are."""
    return {
        key: (one.checksum, one.nbytes) if isinstance(one, Record) else (one[0], len(one[1]))
        for key, one in units.items()
    }


def made(path):
    journal = Journal.create(JournalPlace(path), HEADER)
    ends = [os.path.getsize(path)]
    for key, unit in FINISHED.items():
        journal.finish(key, *unit)
        ends.append(os.path.getsize(path))
    assert contents(journal) == FINISHED
    journal.close()
    return ends


def test_what_is_finished_is_there_when_a_run_resumes(tmp_path):
    made(tmp_path / "j")
    journal = Journal.resume(tmp_path / "j", HEADER)
    assert contents(journal) == FINISHED
    journal.finish((0, 0), "cc", b"again")
    expected = FINISHED | {(0, 0): ("cc", b"again")}
    assert contents(journal) == expected
    header, units = read_journal(tmp_path / "j")
    assert header == HEADER and sizes(units) == sizes(expected)
    journal.remove()
    assert not list(tmp_path.iterdir())


def test_a_journal_that_is_torn_at_any_byte_keeps_the_whole_records(tmp_path):
    ends = made(tmp_path / "j")
    data = (tmp_path / "j").read_bytes()
    for cut in [*range(ends[2] + 20), *range(ends[2] + 20, ends[3], 97)]:
        path = tmp_path / "torn"
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends) - 1
        if whole < 0:
            with pytest.raises(BrickError, match="is damaged or no journal of this version: leave out --resume"):
                Journal.resume(path, HEADER)
            continue
        journal = Journal.resume(path, HEADER)
        expected = dict(list(FINISHED.items())[:whole])
        assert contents(journal) == expected
        journal.finish((9,), "dd")
        journal.close()
        assert sizes(read_journal(path)[1]) == sizes(expected | {(9,): ("dd", b"")})


def test_results_are_not_held_in_memory(tmp_path):
    """As they are of tensors that are needed whole, which may take half of what a run may have."""
    journal, results = Journal.create(JournalPlace(tmp_path / "j"), HEADER), bytes(5 * PIECE + 7)
    tracemalloc.start()
    for unit in range(4):
        journal.finish((unit,), "", results)
    journal.close()
    journal = Journal.resume(tmp_path / "j", HEADER)
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < PIECE and most < 3 * len(results)
    assert all(journal.results((unit,)) == results for unit in range(4))
    journal.remove()


def test_a_record_of_which_any_byte_changed_is_dropped(tmp_path):
    ends = made(tmp_path / "j")
    data = bytearray((tmp_path / "j").read_bytes())
    for at in range(ends[1], ends[2]):
        data[at] ^= 0x5A
        (tmp_path / "k").write_bytes(data)
        assert read_journal(tmp_path / "k")[1].keys() == {(0, 0)}
        data[at] ^= 0x5A


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (HEADER | {"model": "9"}, "the model is another one than when this run was begun: leave out --resume"),
        (
            HEADER | {"input": "9", "plan": "9"},
            "the input is another one than when this run was begun, and so are plan:",
        ),
        ({**HEADER, "new": "9"}, "the new is another one"),
        ({}, "the model is another one"),
    ],
)
def test_a_changed_header_is_named(tmp_path, now, said):
    made(tmp_path / "j")
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(BrickError, match=said):
        Journal.resume(tmp_path / "j", now)
    assert (tmp_path / "j").read_bytes() == before


def test_without_a_journal_nothing_is_resumed(tmp_path):
    with pytest.raises(BrickError, match="there is no such journal of a run to go on with: leave out --resume"):
        Journal.resume(tmp_path / "j", HEADER)


def test_a_place_that_is_none_is_told_by_the_name_of_the_output(tmp_path):
    missing, taken = tmp_path / "absent" / "y.npy", tmp_path / "y.npy"
    (tmp_path / ".y.npy.brickrt-journal.brickrt-part").mkdir()
    for output, why in ((missing, f"there is no folder {missing.parent}: create it"), (taken, "Is a directory")):
        with pytest.raises(BrickError) as error:
            JournalPlace(journal_path(output))
        assert str(error.value).startswith(f"{output}: {why}")


def test_two_runs_do_not_write_one_output(tmp_path):
    """Neither once the first has a journal nor before, while it makes the output; nothing is left of the second."""
    path, others = tmp_path / "j", (JournalPlace, partial(Journal.resume, header=HEADER))
    with JournalPlace(path) as place:
        _refused(path, JournalPlace)
        first = Journal.create(place, HEADER)
        for second in others:
            _refused(path, second)
    for second in others:
        _refused(path, second)
    first.close()
    with JournalPlace(path):
        _refused(path, others[1])
    assert os.listdir(tmp_path) == ["j"]
    Journal.create(JournalPlace(path), HEADER).close()


def _refused(path, second):
    with pytest.raises(BrickError, match="another run writes this output: wait for it, or give another path"):
        second(path)


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    journal = Journal.create(JournalPlace(tmp_path / "j"), HEADER)
    journal.finish((1,), "aa")
    pwrite = os.pwrite
    room = [10]

    def full(fd, data, at):
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        part, room[0] = data[: room[0]], 0
        return pwrite(fd, part, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(BrickError, match=r"j: the disk is full: free space"):
            journal.finish((2,), "bb")
    assert contents(journal) == {(1,): ("aa", b"")}
    journal.finish((3,), "cc")
    assert list(read_journal(tmp_path / "j")[1]) == [(1,), (3,)]


@pytest.mark.parametrize("kind", range(3))
def test_checksums_are_of_elements_in_row_major_order(tmp_path, kind):
    want = values((3, 7, 5), "f4")
    array = odd(want.shape, want.dtype, kind)
    array[...] = want
    assert checksum(array) == checksum(want) != checksum(want + 1)
    sink = create_sink(tmp_path / "a.npy", want.shape, "f4", axis=1)
    sink.write((0, 0, 0), array)
    assert stored_checksum(sink, sink.dtype, (1, 2, 0), (2, 5, 3)) == checksum(want[1:3, 2:7, :3])
    sink.abandon()


@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.tif", "a.h5"])
def test_units_whose_bytes_are_not_there_are_done_again(tmp_path, name):
    """One of four bands was written with other values, one not at all."""
    want = values((1, 2, 64, 40), "f4")
    sink = create_sink(tmp_path / name, want.shape, "f4", chunks=(1, 1, 16, 40) if "zarr" in name else None)
    journal = Journal.create(JournalPlace(journal_path(tmp_path / name)), HEADER)
    for band in range(4):
        part = want[:, :, 16 * band : 16 * band + 16]
        if band != 2:
            sink.write((0, 0, 16 * band, 0), part + (band == 1))
        sink.sync()
        journal.finish((band,), checksum(part))
    journal.finish((9,), "", b"a unit that wrote nothing")
    sink.abandon(keep=True)
    journal.close()
    sink = create_sink(
        tmp_path / name, want.shape, "f4", resume=True, chunks=(1, 1, 16, 40) if "zarr" in name else None
    )
    journal = Journal.resume(journal_path(tmp_path / name), HEADER)

    def box(key):
        return ((0, 0, 16 * key[0], 0), (1, 2, 16, 40)) if key[0] < 4 else None

    assert sink.resumed and sorted(verify(journal, sink, sink.dtype, box)) == [(1,), (2,)]
    assert sorted(journal.finished) == [(0,), (3,), (9,)]
    sink.abandon()


def test_a_chunk_that_cannot_be_decoded_is_done_again(tmp_path):
    sink = create_sink(tmp_path / "a.zarr", (32, 16), "u4", axis=0, chunks=(16, 16))
    want = values((32, 16), "u4")
    sink.write((0, 0), want)
    sink.sync()
    journal = Journal.create(JournalPlace(tmp_path / "j"), HEADER)
    for band in range(2):
        journal.finish((band,), checksum(want[16 * band : 16 * band + 16]))
    chunk = tmp_path / ".a.zarr.brickrt-part" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-5])
    assert verify(journal, sink, sink.dtype, lambda key: ((16 * key[0], 0), (16, 16))) == [(1,)]


RUN = textwrap.dedent("""
    import os, signal, sys
    import numpy as np
    import zarr  # once, not in each child
    from pathlib import Path
    from brickrt.runtime.files.identity import checksum
    from brickrt.runtime.files.journal import Journal, JournalPlace, journal_path, verify
    from brickrt.runtime.files.sink import create_sink

    fsync, pwrite, replace, unlink, rename = os.fsync, os.pwrite, os.replace, os.unlink, os.rename
    calls, kill_at = 0, 0

    def step():
        global calls
        calls += 1
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def in_halves(fd, data, at):
        half = len(data) // 2
        step()
        pwrite(fd, data[:half], at)
        step()
        return half + pwrite(fd, data[half:], at + half)

    os.fsync = lambda fd: (step(), fsync(fd))
    os.pwrite = in_halves
    os.replace = lambda a, b: (step(), replace(a, b))
    os.unlink = lambda *a, **k: (step(), unlink(*a, **k))
    os.rename = lambda a, b: (step(), rename(a, b))

    def box(key):
        return (0, 0, 8 * key[0], 0), (1, 2, 8, 20)

    def run(output):
        path = journal_path(output)
        resume = path.exists()
        sink = create_sink(output, (1, 2, 24, 20), "f4", resume=resume)
        journal = Journal.resume(path, {"model": "m"}) if resume else Journal.create(JournalPlace(path), {"model": "m"})
        verify(journal, sink, sink.dtype, box)
        for band in range(3):
            if (band,) not in journal.finished:
                part = np.arange(320, dtype=np.float32).reshape(1, 2, 8, 20) + 1000 * band
                sink.write(box((band,))[0], part)
                sink.sync()
                journal.finish((band,), checksum(part))
        sink.close()
        journal.remove()

    def in_a_child(output, when):
        global kill_at
        kill_at = when
        child = os.fork()
        if child == 0:
            run(output)
            os._exit(0)
        return os.waitpid(child, 0)[1]

    folder, name, apart = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for when in range(1, 500, apart):
        output = folder / str(when) / name
        output.parent.mkdir()
        status = in_a_child(output, when)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL and in_a_child(output, 0) == 0
    print(when)
""")


@pytest.mark.parametrize(("name", "apart"), [("a.npy", 1), ("a.tif", 1), ("a.zarr", 7)])
def test_a_run_that_is_killed_at_any_moment_goes_on(tmp_path, name, apart):
    """Moments are before each call that changes the disk, and where it is a write, when half of it was done; for Zarr,
    which makes many, every seventh."""
    ended = forks.run(["-c", RUN, tmp_path, name, apart])
    assert ended.returncode == 0, ended.stderr
    moments = int(ended.stdout)
    assert moments > 20 and len(list(tmp_path.iterdir())) == len(range(1, moments + 1, apart))
    want = np.concatenate([np.arange(320, dtype=np.float32).reshape(1, 2, 8, 20) + 1000 * k for k in range(3)], 2)
    for folder in tmp_path.iterdir():
        assert [path.name for path in folder.iterdir()] == [name]
        source = open_source(folder / name)
        out = np.zeros(want.shape, np.float32)
        source.read((0, 0, 0, 0), out)
        source.close()
        np.testing.assert_array_equal(out, want)
