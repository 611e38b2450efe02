"""Runs CUDA kernels on the host: their sources, compiled by the host's C++ compiler, with fibers for threads.

A kernel takes a tenth of a second to compile because what is common to all of them is compiled before: the headers, and
the library that runs blocks of fibers (host/blocks.hpp).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import brickrt.ops.cuda.all_kernels  # noqa: F401  (makes the kernels known)
from brickrt.ops import cuda
from brickrt.ops.base import Op, Slab
from brickrt.ops.cuda.kernel import Kernel, make_kernel
from brickrt.ops.cuda.operand import Operand, dense
from brickrt.ops.types import Boxes, TensorType

HEADERS = Path(cuda.__file__).parent / "headers"
HOST = Path(__file__).parent / "host"
PTX = Path(__file__).parents[1] / "ptx"
COMPILER = shutil.which("g++")
# what was compiled, for all processes of a run of the tests; read here, since tests change BRICKRT_CACHE_DIR
FOLDER = Path(os.environ.get("BRICKRT_CACHE_DIR") or tempfile.mkdtemp(prefix="brickrt-host-")) / "tests-host-kernels"
# With BRICKRT_TEST_SANITIZE set, scalar accesses that are not aligned and indices beyond arrays end the process.
SANITIZED = bool(os.environ.get("BRICKRT_TEST_SANITIZE"))
FLAGS = (
    "-std=c++17",
    "-Og",
    "-shared",
    "-fPIC",
    "-w",
    "-ffp-contract=off",
    "-pthread",
    "-DBRICK_HOST",
    f"-I{HEADERS}",
    f"-I{HOST}",
    *(("-fsanitize=alignment,bounds", "-fno-sanitize-recover=all") if SANITIZED else ()),
)
# Kernels call functions of C and of the library of blocks, which the process has: to look for others takes a sixth more
LINKING = () if SANITIZED else ("-nodefaultlibs", "-Wl,--build-id=none")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="running CUDA sources on the host needs g++")

_RUNNER = """
struct Boxes { const int* box; char* const* at; long long rank; };
BRICK_KERNEL(run, Boxes, 64, 1) {
    BRICK_SHARED(shared);
    for (int k = first + brick::block(); k < first + count; k += brick::blocks()) {
        const int* lo = c->box + k * 2 * c->rank;
        device_function(brick::Step{lo, lo + c->rank}, c->at, shared);
        brick::sync();
    }
}
"""


@functools.cache
def _key() -> str:
    version = subprocess.run([str(COMPILER), "--version"], capture_output=True, text=True).stdout
    sources = [path.read_text() for folder in (HEADERS, HOST, PTX) for path in sorted(folder.glob("*.[ch][up][hp]"))]
    return "\0".join((version, *sources))


def compile_once(ending: str, source: str, flags: Sequence[str], libraries: Sequence[str] = ()) -> Path:
    """The file, with this ending, that the compiler makes of C++ text, made where no process of the tests has yet.

    Several may make it at once: each under a name of its own, which is changed when the file is whole.
    """
    digest = hashlib.sha256("\0".join((_key(), source, *flags, *libraries)).encode()).hexdigest()[:24]
    made = FOLDER / f"{digest}{ending}"
    if not made.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            text, result = Path(folder, "source.cpp"), Path(folder, "result")
            text.write_text(source)
            words = [str(COMPILER), *flags, "-o", str(result), str(text), *libraries]
            done = subprocess.run(words, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[:4000] + "\n" + source[-4000:]
            result.replace(made)
    return made


@functools.cache
def _prepared(headers: tuple[str, ...], *flags: str) -> tuple[str, str]:
    """What kernels have in common: headers that are compiled already, and the library that runs their blocks."""
    includes = "".join(f'#include "{name}"\n' for name in headers)
    header = compile_once(".hpp.gch", includes, [*flags, "-x", "c++-header"])
    return str(header.with_suffix("")), str(compile_once(".so", '#include "blocks.hpp"\n', flags))


def library_of_kernels(
    source: str, headers: tuple[str, ...], flags: Sequence[str], linking: Sequence[str] = ()
) -> ctypes.CDLL:
    """A shared library of C++ text that includes some of these headers."""
    assert COMPILER is not None
    flags = (*flags, "-DBRICK_BLOCKS_APART")
    header, blocks = _prepared(headers, *flags)
    return ctypes.CDLL(str(compile_once(".so", source, [*flags, "-include", header], [*linking, blocks])))


@functools.cache
def compiled(source: str, *more: str) -> ctypes.CDLL:
    """A shared library of CUDA text."""
    headers = tuple(sorted(path.name for path in HEADERS.iterdir() if path.name != "schedule.cuh"))
    return library_of_kernels(source, headers, (*FLAGS, *more), LINKING)


def source_of(kernel: Kernel) -> str:
    """The device function alone, with a kernel that runs it on a list of boxes."""
    includes = "".join(f'#include "{name}"\n' for name in ("portable.cuh", *kernel.headers))
    return includes + kernel.emit("device_function") + _RUNNER


def stored(array: np.ndarray, layout: str) -> np.ndarray:
    """The array as memory has it: channels innermost if "last"."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1) if layout == "last" and array.ndim >= 2 else array)


def run_on_host(
    op: Op,
    arrays: Sequence[np.ndarray],
    layouts: Sequence[str] | None = None,
    constant: Sequence[bool] | None = None,
    boxes: Boxes | None = None,
    precision: str = "fp32",
    threads: int = 64,
    blocks: int = 2,
) -> np.ndarray:
    """The output of `op` computed by its CUDA kernel, box by box; `layouts` are those of all inputs and of the output.

    What no box covers is filled with a pattern, so that a kernel that writes outside of its box shows.
    """
    types = [TensorType(a.shape, a.dtype) for a in arrays]
    out = op.infer(types)
    layouts = layouts or ["plain"] * (len(arrays) + 1)
    constant = constant or [False] * len(arrays)
    boxes = boxes or Boxes.whole(out.shape)
    ins: list[Operand] = [dense(t, at) for t, at in zip(types, layouts)]
    target = dense(out, layouts[-1])
    largest = tuple(int(e) for e in boxes.extents.max(axis=0, initial=0))
    kernel = make_kernel(op, ins, target, constant, precision, largest)  # type: ignore[arg-type]
    held = [kernel.pack(k, a) if c else stored(a, at) for k, (a, c, at) in enumerate(zip(arrays, constant, layouts))]
    result = stored(np.full(out.shape, _pattern(out.dtype), out.dtype), layouts[-1])
    memory = [_aligned(result), *(_aligned(a) for a in (*held, *kernel.tables()))]
    at = (ctypes.c_void_p * len(memory))(*(m.ctypes.data for m in memory))
    ends = np.ascontiguousarray(np.concatenate([boxes.lo, boxes.hi], axis=1).astype(np.int32))
    context = (ctypes.c_int64 * 3)(ends.ctypes.data, ctypes.addressof(at), boxes.rank)
    library = compiled(source_of(kernel), "-O0")  # it runs once: better code would take longer than it saves
    library.run(blocks, threads, ctypes.c_longlong(kernel.shared), ctypes.byref(context), 0, len(boxes), 0, 0, 1)
    shape = stored(np.empty(out.shape, np.int8), layouts[-1]).shape
    array = memory[0].view(out.dtype).reshape(shape) if out.size else result
    return np.moveaxis(array, -1, 1) if layouts[-1] == "last" and len(out.shape) >= 2 else array


def _pattern(dtype: np.dtype) -> float | int | bool:
    return False if dtype.kind == "b" else 77


def _aligned(array: np.ndarray) -> np.ndarray:
    """The bytes of an array at an address that is a multiple of 64."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    part = room[start : start + array.nbytes]
    part[:] = np.frombuffer(array.tobytes(), np.uint8)
    return part


def expected(op: Op, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The NumPy definition, in float64 inside."""
    types = [TensorType(a.shape, a.dtype) for a in arrays]
    out = op.infer(types)
    slabs = [Slab(a, (0,) * a.ndim) for a in arrays]
    return op.evaluate(Boxes.whole(out.shape), slabs, types, out)
