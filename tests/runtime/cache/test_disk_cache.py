"""Blobs on disk: whom the folder may belong to, and what becomes of damaged, old and contested files."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from brickrt.runtime.cache import disk_cache
from brickrt.runtime.cache.cache_key import MAC_BYTES
from brickrt.runtime.cache.disk_cache import DiskCache, cache_root


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def digest(k: int) -> str:
    """A name as blobs have it."""
    return f"{k:x}".rjust(32, "f")


def test_the_folder_is_the_users_alone(folder):
    store = DiskCache.open("kernels")
    store.put("a", b"code")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert store.get("a") == b"code"
    assert store.get("b") is None
    assert cache_root() == folder.parent


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_write_is_not_used(folder, mode):
    store = DiskCache.open("kernels")
    store.put("a", b"code")
    folder.chmod(mode)
    assert store.get("a") is None
    store.put("b", b"more")
    assert [p.name for p in folder.iterdir()] == ["a"]
    folder.chmod(0o700)
    assert store.get("a") == b"code"


def test_a_folder_of_someone_else_is_not_used(folder, monkeypatch):
    store = DiskCache.open("kernels")
    store.put("a", b"code")
    monkeypatch.setattr(os, "getuid", lambda: os.stat(folder).st_uid + 1)
    assert store.get("a") is None
    store.put("b", b"more")
    assert not (folder / "b").exists()


def test_all_folders_that_are_made_are_the_users_alone(tmp_path):
    folder = tmp_path / "a" / "b" / "kernels"
    mask = os.umask(0)
    try:
        DiskCache(folder).put("a", b"code")
    finally:
        os.umask(mask)
    assert {stat.S_IMODE(made.stat().st_mode) for made in (folder, *folder.parents[:2])} == {0o700}


@pytest.mark.parametrize("home", [RuntimeError("no home"), "~/.cache/brickrt"])
def test_without_a_home_nothing_is_kept(tmp_path, monkeypatch, home):
    """Versions of platformdirs differ in what they say then."""

    def told(_: str) -> str:
        if isinstance(home, str):
            return home
        raise home

    monkeypatch.delenv("BRICKRT_CACHE_DIR", raising=False)
    monkeypatch.setattr(disk_cache.platformdirs, "user_cache_dir", told)
    monkeypatch.chdir(tmp_path)
    store = DiskCache.open("kernels")
    store.put("a", b"code")
    assert store.get("a") is None and not list(tmp_path.iterdir())


def test_files_are_used_where_nothing_can_be_written(folder, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    store = DiskCache.open("kernels")
    store.put("a", b"code")
    for name in ("utime", "mkdir", "replace"):
        monkeypatch.setattr(os, name, refused)
    assert store.get("a") == b"code"


def test_a_link_is_not_followed(folder, tmp_path):
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    folder.parent.mkdir()
    folder.symlink_to(target)
    store = DiskCache.open("kernels")
    store.put("a", b"code")
    assert store.get("a") is None
    assert not list(target.iterdir())


def test_a_file_in_the_way(folder):
    folder.parent.mkdir()
    folder.write_text("not a folder")
    store = DiskCache.open("kernels")
    store.put("a", b"code")
    assert store.get("a") is None
    store.trim()


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:40] + b"?" + b[41:], lambda b: b + b"!"]
)
def test_damaged_files_are_dropped(folder, damage):
    store = DiskCache.open("kernels")
    store.put("a", b"machine code of some length")
    path = folder / "a"
    path.write_bytes(damage(path.read_bytes()))
    assert store.get("a") is None
    assert not path.exists()


def test_the_least_recently_used_go_first(folder):
    store = DiskCache(folder, bound=5 * (1000 + MAC_BYTES))
    for k in range(8):
        store.put(digest(k), bytes(1000))
        os.utime(folder / digest(k), (k, k))
    assert store.get(digest(1)) is not None  # used now: it stays
    store.trim()
    assert sorted(p.name for p in folder.iterdir()) == [digest(k) for k in (1, 4, 5, 6, 7)]


def test_only_blobs_go(folder):
    """The folder of all caches may be one of the user's, with a folder `plans` of other things."""
    store = DiskCache(folder, bound=0)
    store.put(digest(1), b"code")
    for name in ("letter.txt", "cafe", ".new-left"):
        (folder / name).write_bytes(bytes(1000))
    store.trim()
    assert sorted(p.name for p in folder.iterdir()) == ["cafe", "letter.txt"]


def test_some_writes_trim(folder):
    store = DiskCache(folder, bound=2 * (1000 + MAC_BYTES))
    for name in ("1", "2", "3", disk_cache.TRIMMING):
        store.put(f"{name:a<32}", bytes(1000))
        assert len(list(folder.iterdir())) <= 3
    assert len(list(folder.iterdir())) == 2


def test_within_the_bound_nothing_goes(folder):
    store = DiskCache.open("kernels")
    store.put("a", b"code")
    store.trim()
    assert store.get("a") == b"code"


def test_many_writers_of_one_name(folder):
    """Readers see one of the contents, whole; no temporary file stays."""
    store, contents = DiskCache.open("kernels"), [bytes([k]) * 5000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda k: (store.put("a", contents[k % 8]), store.get("a"))[1], range(200)))
    assert set(seen) <= set(contents)
    assert [p.name for p in folder.iterdir()] == ["a"]


def test_a_folder_that_cannot_be_written_costs_only_the_memory(folder, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store = DiskCache.open("kernels")
    store.put("a", b"code")
    assert store.get("a") is None
    assert not list(folder.iterdir()), "what could not be kept is removed"
