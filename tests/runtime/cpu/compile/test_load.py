"""Compiled code on disk: found again, told apart, compiled again where it is damaged."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir

from brickrt import Runtime
from brickrt.ops.cpu.emit.llvm_types import I64
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.sized_kernel import outline
from brickrt.runtime.cpu.compile import load as loading
from brickrt.runtime.cpu.compile.code_cache import CodeCache
from brickrt.runtime.cpu.compile.kernel_digest import kernel_digest, outline_digest
from brickrt.runtime.cpu.compile.load import KernelLoader, load_module
from brickrt.runtime.cpu.compile.native_function import NativeFunction
from brickrt.runtime.progress import KernelProgress
from tests.support.cpu.small_kernels import ISA, kernels
from tests.support.graphs.onnx_models import model, node, tensor


def load(made: list[Kernel], progress: KernelProgress | None = None) -> list[int]:
    """Addresses of kernels, none of which is called here."""
    with KernelLoader() as loader:
        for kernel in made:
            loader.want(kernel)
        return loader.load(progress)[1]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(loading, "CODE_CACHE", CodeCache())
    return tmp_path / "cache" / "kernels"


def test_damaged_kernels_are_compiled_again(folder, monkeypatch):
    made = kernels(2)
    load(made)
    names = [outline_digest(outline(k)) for k in made]
    (folder / names[0]).write_bytes(b"broken")
    monkeypatch.setattr(loading, "CODE_CACHE", CodeCache())  # as in another process
    told: list[tuple[int, int]] = []
    addresses = load(made, lambda *progress: told.append(progress))
    assert told == [(1, 1)]
    assert all(addresses)
    told.clear()
    load(made, lambda *progress: told.append(progress))
    assert told == []


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


def test_a_module_is_compiled_once_and_works_on_words(folder, monkeypatch):
    """`add` sets word 2 of its context to the sum of words 0 and 1 and its argument."""

    def make():
        module = ir.Module("add")
        f = NativeFunction(module, "add", I64)
        f.put(f.b.add(f.b.add(f.field(0), f.field(1)), f.fn.args[1]), f.context, 2)
        f.finish()
        return module

    for _ in range(2):
        words = (ctypes.c_int64 * 3)(5, 7)
        loaded = load_module("add", make, ISA)
        loaded.function("add", ctypes.c_void_p, ctypes.c_int64)(ctypes.addressof(words), 30)
        assert list(words) == [5, 7, 42]
        monkeypatch.setattr(loading, "to_object", lambda *_: pytest.fail("compiled again"))
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("perm", [[0, 2, 1, 3], [0, 2, 3, 1], [3, 1, 0, 2]])
def test_small_sizes_run_the_code_of_larger_ones(folder, perm):
    """A network of open sizes compiles its first one alone, and what it copies is right at each."""
    compiled, transposed = [], model([node("Transpose", "x", "y", perm=perm)], [tensor("x", ["N", "L", 4, 12])])
    runtime = Runtime(transposed, device="cpu", progress=lambda what, done, total: compiled.append((what, done)))
    for n, length in ((1, 40), (1, 19), (1, 15), (1, 3), (1, 2), (1, 16), (1, 13)):
        compiled.clear()
        x = np.random.default_rng(length).standard_normal((n, length, 4, 12)).astype(np.float32)
        np.testing.assert_array_equal(runtime.execute({"x": x})["y"], x.transpose(perm))
        assert any(done for what, done in compiled if what.startswith("compile")) == (length == 40), length
