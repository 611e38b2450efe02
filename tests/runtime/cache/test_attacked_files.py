"""Files of a cache that someone else changed or planted are never used, and made again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from brickrt import Runtime, zoo
from brickrt.runtime.cache import disk_cache
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cpu.compile import load
from brickrt.runtime.cpu.compile.code_cache import CodeCache
from tests.runtime.cache import attacks

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system's files have no owners and modes")


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(disk_cache, "_warned", [])
    return tmp_path / "cache"


@pytest.fixture
def store(root) -> DiskCache:
    store = DiskCache.open("kernels")
    store.put("a", b"code")
    store.put("b", b"other code")
    return store


@pytest.mark.parametrize("attack", attacks.ATTACKS, ids=lambda attack: attack.__name__)
def test_a_file_that_was_attacked_is_none(store, attack, capsys):
    attack(store.folder / "a")
    assert store.get("a") is None
    assert store.get("b") == b"other code"
    store.put("a", b"code")
    assert store.get("a") == b"code"
    assert capsys.readouterr() == ("", "")


def test_no_file_stands_for_another(store):
    """Neither one of the same cache, nor one of the same name in another."""
    a, b = store.folder / "a", store.folder / "b"
    contents = a.read_bytes(), b.read_bytes()
    b.write_bytes(contents[0])
    a.write_bytes(contents[1])
    assert (store.get("a"), store.get("b")) == (None, None)
    plans = DiskCache.open("plans")
    plans.put("b", b"a plan")
    (plans.folder / "a").write_bytes(contents[0])
    assert (plans.get("a"), plans.get("b")) == (None, b"a plan")


def test_a_file_of_someone_else_is_none(store, monkeypatch):
    monkeypatch.setattr(os, "fstat", attacks.foreign_fstat(store.folder / "a"))
    assert store.get("a") is None
    assert store.get("b") == b"other code"
    store.put("a", b"code")
    assert store.get("a") == b"code"


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_nothing_is_used_below_a_folder_that_others_write(store, root, mode, capsys):
    root.chmod(mode)
    assert store.get("a") is None
    store.put("c", b"more")
    assert not (store.folder / "c").exists()
    said = capsys.readouterr().err
    assert said == f"brickrt: no caches: {root} is no folder that this user alone writes\n", "once, not per file"
    root.chmod(0o755)
    assert store.get("a") == b"code"


def test_the_folder_of_all_caches_may_be_a_link(root, store, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(root)
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path / "link"))
    assert DiskCache.open("kernels").get("a") == b"code"


def test_new_folders_are_the_users_alone_whatever_the_mask(root):
    mask = os.umask(0)
    try:
        DiskCache.open("kernels").put("a", b"code")
    finally:
        os.umask(mask)
    assert DiskCache.open("kernels").get("a") == b"code"
    assert [path.stat().st_mode & 0o777 for path in (root, root / "kernels", root / "secret")] == [0o700, 0o700, 0o600]


def test_odd_files_do_not_stop_the_trimming(store):
    folder, fifo, full = (store.folder / (digit * 32) for digit in "abc")
    folder.mkdir()
    os.mkfifo(fifo)
    (full / "of").mkdir(parents=True)
    DiskCache(store.folder, bound=-(1 << 20)).trim()
    assert full.exists() and not folder.exists() and not fifo.exists()


# ---- a network


class SmallNetwork:
    """A network whose outputs and kept files are looked at."""

    def __init__(self) -> None:
        self.model = zoo.build("unet", size=16, levels=1)
        self.x = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)

    def outputs(self) -> list[np.ndarray]:
        """As a new process computes them, which has no code of kernels yet."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(load, "CODE_CACHE", CodeCache())
            patch.setattr(load, "_LOADED", {})
            return list(Runtime(self.model, device="cpu").execute({"x": self.x}).values())


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The network, its outputs, and a folder with its caches."""
    with pytest.MonkeyPatch.context() as patch:
        kept = tmp_path_factory.mktemp("kept") / "cache"
        patch.setenv("BRICKRT_CACHE_DIR", str(kept))
        found = SmallNetwork()
        return found, found.outputs(), kept


@pytest.fixture
def files(network, root, monkeypatch) -> list[Path]:
    """Files of the network's caches: kernels, and last the plan."""
    shutil.copytree(network[2], root)
    plans, kernels = [sorted((root / name).iterdir()) for name in ("plans", "kernels")]
    return [*kernels, *plans]


def put_names(monkeypatch) -> list[str]:
    """Names of blobs that are kept from now on."""
    names: list[str] = []
    put = DiskCache.put
    monkeypatch.setattr(DiskCache, "put", lambda self, name, blob: (names.append(name), put(self, name, blob))[1])
    return names


def check_outputs(network, monkeypatch, made_again: set[str]) -> None:
    """Outputs are the same bits; these files, and no others, are made again, and are used the next time."""
    made = put_names(monkeypatch)
    for expected in (made_again, set()):
        made.clear()
        for found, right in zip(network[0].outputs(), network[1], strict=True):
            np.testing.assert_array_equal(found, right)
        assert set(made) == expected


def program_files(network, root, monkeypatch) -> list[Path]:
    """Kernels of the program, which are read for each; modules of the engine itself are read once per process."""
    names: list[str] = []
    get = DiskCache.get
    with monkeypatch.context() as patch:
        patch.setattr(DiskCache, "get", lambda self, name: (names.append(name), get(self, name))[1])
        network[0].outputs()
    return [path for name in dict.fromkeys(names) if (path := root / "kernels" / name).exists()]


@pytest.mark.parametrize(
    "attack", [attacks.junk_with_its_digest, attacks.edited, attacks.fifo], ids=lambda attack: attack.__name__
)
def test_a_network_whose_files_were_attacked_is_right(network, files, root, attack, monkeypatch):
    kernel = program_files(network, root, monkeypatch)[0]
    for path in (kernel, files[-1]):
        attack(path)
    check_outputs(network, monkeypatch, {kernel.name, files[-1].name})


def test_a_network_whose_kernels_were_swapped_is_right(network, files, root, monkeypatch):
    one, other, *_ = program_files(network, root, monkeypatch)
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    check_outputs(network, monkeypatch, {one.name, other.name})


@pytest.mark.parametrize("plan", [b"[]", b"{}", b"null", b"[[[", b"[" * 100_000, b'[{"nodes": [0]}]', b"\xff", b""])
def test_a_plan_that_is_none_is_made_again(network, files, plan, monkeypatch):
    """Even where it was kept with the secret."""
    DiskCache.open("plans").put(files[-1].name, plan)
    check_outputs(network, monkeypatch, {files[-1].name})
