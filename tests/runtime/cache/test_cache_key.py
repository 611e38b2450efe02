"""The secret of the caches: made once for all processes, made anew where it is none, and needed for every file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brickrt.runtime.cache import cache_key
from brickrt.runtime.cache.cache_key import SECRET, SECRET_BYTES, mac_of, make_key, read_key
from brickrt.runtime.cache.disk_cache import DiskCache
from tests.runtime.cache import attacks

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system's files have no owners and modes")
PROCESSES = 4


@pytest.fixture
def store(tmp_path) -> DiskCache:
    """A cache that has one blob."""
    store = DiskCache(tmp_path / "cache" / "kernels")
    store.put("a", b"code")
    return store


def test_it_is_a_file_for_this_user_alone(store):
    info = (store.root / SECRET).stat()
    assert (info.st_mode & 0o777, info.st_size) == (0o600, SECRET_BYTES)
    key = read_key(store.root)
    assert key is not None and make_key(store.root) == key and len(set(key)) > 8
    assert {path.name for path in store.root.iterdir()} == {SECRET, "kernels"}, "no temporary file stays"


def removed(path: Path) -> None:
    """There is none."""
    path.unlink()


def too_long(path: Path) -> None:
    """More bytes than a secret has."""
    path.write_bytes(path.read_bytes() * 2)


def others_read(path: Path) -> None:
    """Everyone knows it."""
    path.chmod(0o644)


def changed(path: Path) -> None:
    """Another secret."""
    path.write_bytes(bytes(range(SECRET_BYTES)))


def folder(path: Path) -> None:
    """A folder is in its place."""
    path.unlink()
    path.mkdir()


SHORT_OR_LONG = (removed, attacks.cut, attacks.emptied, too_long, attacks.enormous)
SPOILED = (*SHORT_OR_LONG, others_read, attacks.fifo, attacks.link_to_itself_elsewhere)


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_what_is_no_secret_is_replaced_by_a_new_one(store, spoil, capsys):
    before = read_key(store.root)
    spoil(store.root / SECRET)
    assert read_key(store.root) is None and store.get("a") is None
    store.put("b", b"more")
    assert read_key(store.root) not in (None, before)
    assert (store.get("a"), store.get("b")) == (None, b"more")
    store.put("a", b"code")
    assert store.get("a") == b"code"
    assert capsys.readouterr() == ("", "")


def test_files_of_another_secret_are_none(store):
    changed(store.root / SECRET)
    assert store.get("a") is None
    store.put("a", b"code")
    assert store.get("a") == b"code"


def test_without_a_place_for_it_nothing_is_kept(store):
    folder(store.root / SECRET)
    store.put("b", b"more")
    assert (store.get("a"), store.get("b")) == (None, None)


def test_a_secret_of_someone_else_is_none(store, monkeypatch):
    monkeypatch.setattr(os, "fstat", attacks.foreign_fstat(store.root / SECRET))
    assert read_key(store.root) is None and store.get("a") is None
    store.put("a", b"code")
    assert store.get("a") == b"code"


def test_where_files_cannot_be_linked(store, monkeypatch):
    def refused(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    (store.root / SECRET).unlink()
    store.put("a", b"code")
    assert store.get("a") == b"code"


def test_of_two_that_make_one_the_later_takes_the_first(store, monkeypatch):
    """It saw none, and finds one when it wants to leave its own."""
    found = read_key(store.root)
    cache_key._write_secret(store.root / SECRET)
    assert read_key(store.root) == found


def test_several_processes_make_one_secret(tmp_path):
    script = (
        "import sys; from pathlib import Path; from brickrt.runtime.cache.cache_key import make_key\n"
        "print('ready', flush=True); sys.stdin.readline(); print(make_key(Path(sys.argv[1])).hex())"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    made = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    for process in made:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in made:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    keys = {process.communicate()[0].strip() for process in made}
    key = read_key(tmp_path)
    assert key is not None and keys == {key.hex()}
    assert [path.name for path in tmp_path.iterdir()] == [SECRET]


def test_a_mac_depends_on_the_key_the_name_and_the_blob():
    macs = [mac_of(key, name, blob) for key in (b"k", b"l") for name in ("a", "ab") for blob in (b"bc", b"c")]
    assert len(set(macs)) == len(macs)
