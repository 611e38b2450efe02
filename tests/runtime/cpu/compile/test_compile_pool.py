"""Kernels compiled by helper processes: all of them, whatever becomes of a helper."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.sized_kernel import SizedCode
from brickrt.runtime.cpu.compile import compile_pool
from brickrt.runtime.cpu.compile.kernel_digest import kernel_digest
from tests.support.cpu.small_kernels import kernels


@pytest.fixture
def made(monkeypatch) -> dict[str, Kernel]:
    """Kernels enough for one helper."""
    monkeypatch.setattr(compile_pool, "usable_cores", lambda: 2)
    return {kernel_digest(k): k for k in kernels(2 * compile_pool.KERNELS_PER_HELPER)}


def compiled(made: dict[str, Kernel], started: list[subprocess.Popen] | None = None) -> dict[str, SizedCode]:
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
    assert images == {digest: compile_pool.build(kernel) for digest, kernel in made.items()}
    assert all(helper.poll() is not None for helper in started)


def test_a_helper_compiles_all_when_nobody_else_does(made, monkeypatch):
    expected = {digest: compile_pool.build(kernel) for digest, kernel in made.items()}
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
        "load = lambda: pickle.load(sys.stdin.buffer); pickle.dump(helpers.build(load()[1]), sys.stdout.buffer);"
        "sys.stdout.buffer.flush(); load(); sys.stdout.buffer.write(b'half of a pic');"
        "sys.stdout.buffer.flush(); os._exit(1)"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda cmd, **how: popen([cmd[0], "-c", dying], **how))
    assert compiled(made) == {digest: compile_pool.build(kernel) for digest, kernel in made.items()}


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
