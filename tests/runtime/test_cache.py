"""Kernels on disk: whom the folder may belong to, and what becomes of damaged, old and contested files."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import brickrt.ops.cpu.families  # noqa: F401 (registers the kernels)
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.expr import apply, arg
from brickrt.ops.map import Map
from brickrt.ops.types import TensorType
from brickrt.runtime import disk_cache
from brickrt.runtime.cpu import helpers
from brickrt.runtime.cpu.cache import kernel_digest
from brickrt.runtime.cpu.kernels import load_kernels
from brickrt.runtime.disk_cache import DiskCache, cache_root

ISA = Isa(4, 16, "x86-64" if os.uname().machine == "x86_64" else "")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def kernels(n: int) -> list[Kernel]:
    """As many different ones: x + x of 1, 2, 3 … elements."""
    made = []
    for size in range(1, n + 1):
        kind = TensorType((size,), np.float32)
        op = Map(apply("add", arg(0, kind.dtype), arg(0, kind.dtype)))
        family = choose_kernel(op, [dense(kind)], dense(kind), ISA)
        made.append(family(op, (dense(kind),), dense(kind), ISA, (False,)))
    return made


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


def test_damaged_kernels_are_compiled_again(folder):
    made = kernels(2)
    load_kernels(made, None)
    names = [kernel_digest(k) for k in made]
    (folder / names[0]).write_bytes(b"broken")
    compiled: list[tuple[int, int]] = []
    _, addresses = load_kernels(made, lambda *progress: compiled.append(progress))
    assert compiled == [(1, 1)]
    assert all(addresses)
    compiled.clear()
    load_kernels(made, lambda *progress: compiled.append(progress))
    assert compiled == []


def test_the_least_recently_used_go_first(folder):
    store = DiskCache(folder, bound=5 * (1000 + disk_cache.DIGEST_BYTES))
    for k in range(8):
        store.put(f"k{k}", bytes(1000))
        os.utime(folder / f"k{k}", (k, k))
    assert store.get("k1") is not None  # used now: it stays
    store.trim()
    assert sorted(p.name for p in folder.iterdir()) == ["k1", "k4", "k5", "k6", "k7"]


def test_some_writes_trim(folder):
    store = DiskCache(folder, bound=2 * (1000 + disk_cache.DIGEST_BYTES))
    for name in ("1a", "2a", "3a", f"{disk_cache.TRIMMING}a"):
        store.put(name, bytes(1000))
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


def test_digests_tell_kernels_apart():
    digests = {kernel_digest(k) for k in kernels(5)}
    assert len(digests) == 5
    assert kernel_digest(kernels(1)[0]) in digests


def test_digests_do_not_depend_on_the_process():
    """They name files that other processes look up."""
    script = (
        "import pickle, sys; from brickrt.runtime.cpu.cache import kernel_digest;"
        "print([kernel_digest(k) for k in pickle.load(sys.stdin.buffer)])"
    )
    made = kernels(3)
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(made), capture_output=True, check=True, env=environment
    )
    assert done.stdout.decode().strip() == str([kernel_digest(k) for k in made])


# ---- helpers


def test_helpers_give_what_this_process_compiles(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    made = {kernel_digest(k): k for k in kernels(2 * helpers.WORTH)}
    started = []
    start = helpers._start
    monkeypatch.setattr(helpers, "_start", lambda share: started.append(start(share)) or started[-1])
    images = dict(helpers.compile_all(made))
    assert len(started) == 1
    assert images == {digest: helpers.build(digest, kernel) for digest, kernel in made.items()}
    assert all(helper.poll() is not None for helper in started)


def test_what_a_helper_fails_to_give_is_compiled_here(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    made = {kernel_digest(k): k for k in kernels(2 * helpers.WORTH)}
    images = dict(helpers.compile_all(made))
    assert images.keys() == made.keys()


def test_a_helper_that_dies_half_way(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    made = {kernel_digest(k): k for k in kernels(2 * helpers.WORTH)}
    dying = (
        f"import sys; sys.path[:] = {sys.path!r}; from brickrt.runtime.cpu import helpers; import pickle, os;"
        "share = pickle.load(sys.stdin.buffer); d, k = next(iter(share.items()));"
        "pickle.dump((d, helpers.build(d, k)), sys.stdout.buffer); sys.stdout.buffer.write(b'half of a pic');"
        "sys.stdout.buffer.flush(); os._exit(1)"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda cmd, **how: popen([cmd[0], "-c", dying], **how))
    images = dict(helpers.compile_all(made))
    assert images == {digest: helpers.build(digest, kernel) for digest, kernel in made.items()}


def test_few_kernels_need_no_helper(monkeypatch):
    monkeypatch.setattr(helpers, "_start", lambda share: pytest.fail("a helper for few kernels"))
    made = {kernel_digest(k): k for k in kernels(3)}
    assert dict(helpers.compile_all(made)).keys() == made.keys()
