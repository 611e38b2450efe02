"""Kernels on disk: whom the folder may belong to, and what becomes of damaged, old and contested files."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import brickrt.ops.cpu.all_kernels  # noqa: F401  (registers the kernels)
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.map import Map
from brickrt.ops.types import TensorType
from brickrt.runtime.cache import disk_cache
from brickrt.runtime.cache.disk_cache import DiskCache, cache_root
from brickrt.runtime.cpu.compile import compile_pool
from brickrt.runtime.cpu.compile.kernel_digest import kernel_digest
from brickrt.runtime.cpu.compile.load import KernelLoader
from brickrt.runtime.progress import KernelProgress

ISA = Isa(4, 16, "x86-64" if os.uname().machine == "x86_64" else "")


def load(made: list[Kernel], progress: KernelProgress | None = None) -> list[int]:
    """Addresses of kernels, none of which is called here."""
    with KernelLoader(ISA) as loader:
        for kernel in made:
            loader.want(kernel)
        return loader.load(progress)[1]


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
    load(made)
    names = [kernel_digest(k) for k in made]
    (folder / names[0]).write_bytes(b"broken")
    told: list[tuple[int, int]] = []
    addresses = load(made, lambda *progress: told.append(progress))
    assert told == [(1, 1)]
    assert all(addresses)
    told.clear()
    load(made, lambda *progress: told.append(progress))
    assert told == []


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
        "import pickle, sys; from brickrt.runtime.cpu.compile.kernel_digest import kernel_digest;"
        "print([kernel_digest(k) for k in pickle.load(sys.stdin.buffer)])"
    )
    made = kernels(3)
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(made), capture_output=True, check=True, env=environment
    )
    assert done.stdout.decode().strip() == str([kernel_digest(k) for k in made])


def test_equal_kernels_are_compiled_once(folder):
    told: list[tuple[int, int]] = []
    first, second, again = load([*kernels(2), *kernels(1)], lambda *progress: told.append(progress))
    assert told == [(1, 2), (2, 2)]
    assert first == again != second


# ---- helpers


@pytest.fixture
def made(monkeypatch) -> dict[str, Kernel]:
    """Kernels enough for one helper."""
    monkeypatch.setattr(compile_pool, "usable_cores", lambda: 2)
    return {kernel_digest(k): k for k in kernels(2 * compile_pool.KERNELS_PER_HELPER)}


def compiled(made: dict[str, Kernel], started: list[subprocess.Popen] | None = None) -> dict[str, bytes]:
    with compile_pool.Compilation() as compilation:
        for digest, kernel in made.items():
            compilation.ask(digest, kernel)
        images = dict(compilation.images())
        if started is not None:
            started += compilation._helpers
    return images


def test_helpers_give_what_this_process_compiles(made):
    started: list[subprocess.Popen] = []
    images = compiled(made, started)
    assert len(started) == 1
    assert images == {digest: compile_pool.build(digest, kernel) for digest, kernel in made.items()}
    assert all(helper.poll() is not None for helper in started)


def test_a_helper_compiles_all_when_nobody_else_does(made, monkeypatch):
    expected = {digest: compile_pool.build(digest, kernel) for digest, kernel in made.items()}
    monkeypatch.setattr(compile_pool, "build", lambda *_: pytest.fail("compiled here"))
    with compile_pool.Compilation() as compilation:
        for digest, kernel in made.items():
            compilation.ask(digest, kernel)
        while not compilation._todo.empty():
            time.sleep(0.01)
        assert dict(compilation.images()) == expected


def test_long_kernels_come_first(made, monkeypatch):
    monkeypatch.setattr(compile_pool, "usable_cores", lambda: 1)
    monkeypatch.setattr(compile_pool, "effort", lambda kernel: kernel.out.shape[0])
    sizes = [made[digest].out.shape[0] for digest in compiled(made)]
    assert sizes == sorted(sizes, reverse=True)


def test_more_may_be_asked_for(made):
    first, *others = made.items()
    with compile_pool.Compilation() as compilation:
        compilation.ask(*first)
        assert dict(compilation.images()).keys() == {first[0]}
        for item in others:
            compilation.ask(*item)
        assert dict(compilation.images()).keys() == dict(others).keys()


def test_what_a_helper_fails_to_give_is_compiled_here(made, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert compiled(made).keys() == made.keys()


def test_a_helper_that_dies_half_way(made, monkeypatch):
    dying = (
        f"import sys, pickle, os; sys.path[:] = {sys.path!r};"
        "from brickrt.runtime.cpu.compile import compile_pool as helpers;"
        "load = lambda: pickle.load(sys.stdin.buffer); pickle.dump(helpers.build(*load()), sys.stdout.buffer);"
        "sys.stdout.buffer.flush(); load(); sys.stdout.buffer.write(b'half of a pic');"
        "sys.stdout.buffer.flush(); os._exit(1)"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda cmd, **how: popen([cmd[0], "-c", dying], **how))
    assert compiled(made) == {digest: compile_pool.build(digest, kernel) for digest, kernel in made.items()}


def test_an_error_leaves_no_helper(made, monkeypatch):
    """As it is with Ctrl-C."""
    monkeypatch.setattr(compile_pool, "build", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    started: list[subprocess.Popen] = []
    with pytest.raises(KeyboardInterrupt), compile_pool.Compilation() as compilation:
        for digest, kernel in made.items():
            compilation.ask(digest, kernel)
        started += compilation._helpers
        list(compilation.images())
    assert len(started) == 1
    assert all(helper.poll() is not None for helper in started)
    assert not any(thread.is_alive() for thread in compilation._threads)


def test_few_kernels_need_no_helper(monkeypatch):
    monkeypatch.setattr(compile_pool, "usable_cores", lambda: 2)
    monkeypatch.setattr(compile_pool.Compilation, "_help", lambda _: pytest.fail("a helper for few kernels"))
    made = {kernel_digest(k): k for k in kernels(3)}
    assert compiled(made).keys() == made.keys()
