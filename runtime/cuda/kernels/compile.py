"""From the text of a module to machine code, by NVRTC: no driver, no toolkit. What is compiled stays on disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.ops import cuda
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cache.parse_json import is_count, parse_json
from brickrt.runtime.cuda.kernels.packages import folders, load_library
from brickrt.runtime.progress import KernelProgress

HEADERS = Path(cuda.__file__).parent / "headers"
OPTIONS = (
    "--std=c++17",
    "--ptxas-options=-v",
    "--device-as-default-execution-space",  # constexpr functions of headers say nothing of where they run
    "--diag-suppress=177",  # a name is not used
)
LIBRARIES = "nvrtc-builtins", "nvrtc"  # of which the second looks for the first
ELF = b"\x7fELF"  # with which machine code for a GPU begins
_HINT = 'pip install "brickrt[cuda13]"'


@dataclass(frozen=True)
class Resources:
    """What ptxas says of a function: registers (0 of one that kernels call) and bytes."""

    name: str
    registers: int = 0
    shared: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0


@dataclass(frozen=True)
class CompiledModule:
    """Machine code for one architecture: kernels, then functions that they call."""

    image: bytes
    functions: tuple[Resources, ...]


def compile_module(source: str, arch: str) -> CompiledModule:
    """Machine code of a module for an architecture such as "sm_90", from the disk where it is known.

    Raises BrickError where the compiler is missing or refuses the text.
    """
    store, name = DiskCache.open("cuda"), _digest(source, arch)
    known = store.get(name)
    if known is not None:
        with suppress(ValueError):  # it is compiled again
            return _unpack(known)
    module = _compile(source, arch)
    store.put(name, _pack(module))
    return module


def compile_modules(
    sources: Sequence[str], arch: str, progress: KernelProgress | None = None, threads: int | None = None
) -> list[CompiledModule]:
    """The modules of several texts, compiled side by side: NVRTC works outside of the interpreter's lock."""
    found = []
    _compiler()  # not by several threads at the same time
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        for done, module in enumerate(pool.map(lambda source: compile_module(source, arch), sources)):
            found.append(module)
            if progress:
                progress(done + 1, len(sources))
    return found


# ---- the compiler


def compiler_version() -> str:
    """That of NVRTC. Raises BrickError where it is missing."""
    return _compiler().version


def check_compiler(arch: str) -> str:
    """The version of NVRTC. Raises BrickError where it is missing, or does not compile for an architecture."""
    _known(arch)
    return compiler_version()


@dataclass(frozen=True)
class _Compiler:
    nvrtc: Any  # of cuda.bindings
    version: str
    headers: Path  # of CUDA


@cache
def _compiler() -> _Compiler:
    """NVRTC, and where CUDA's headers are."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as e:
        raise BrickError(f"CUDA kernels need the package cuda-bindings ({e}): {_HINT}") from None
    for name in LIBRARIES:
        load_library(name)
    try:
        _, *version = nvrtc.nvrtcVersion()
    except Exception as e:
        raise BrickError(f"CUDA kernels need NVRTC ({e}): {_HINT}") from None
    headers = next((f for f in folders("include") if (f / "cuda_fp16.h").exists()), None)
    if headers is None:
        raise BrickError(f"CUDA's headers are missing (cuda_fp16.h, package nvidia-cuda-runtime): {_HINT}")
    return _Compiler(nvrtc, ".".join(map(str, version)), headers)


def _compile(source: str, arch: str) -> CompiledModule:
    compiler = _compiler()
    nvrtc, includes = compiler.nvrtc, (HEADERS, compiler.headers)
    options = [f"--gpu-architecture={_known(arch)}", *OPTIONS, *(f"--include-path={folder}" for folder in includes)]
    program = _asked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], []))
    try:
        error, *_ = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).rstrip(b"\0").decode()
        if error:
            why = first_error(log) or str(error)
            raise BrickError(f"a CUDA kernel does not compile for {arch}: {why}")
        return CompiledModule(_text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), resources(log))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _known(arch: str) -> str:
    """The architecture, or for one that is newer than the compiler the latest that it runs the code of: one of its
    generation. Raises BrickError."""
    compiler, wanted = _compiler(), int(arch.removeprefix("sm_"))
    known = _asked(compiler.nvrtc.nvrtcGetSupportedArchs())
    usable = [number for number in known if number // 10 == wanted // 10 and number <= wanted]
    if not usable:
        upgrade = "a newer package nvidia-cuda-nvrtc, or --device cpu"
        raise BrickError(f"NVRTC {compiler.version} does not compile for {arch}: use {upgrade}")
    return f"sm_{max(usable)}"


def _asked(answer: tuple[Any, ...]) -> Any:
    """What a call of NVRTC gives beside its error, which there should be none."""
    error, *values = answer
    if error:
        raise BrickError(f"NVRTC: {error}")
    return values[0] if values else None


def _text(size: Callable[[Any], Any], fetch: Callable[[Any, bytes], Any], program: Any) -> bytes:
    """Bytes that NVRTC writes into memory of ours."""
    count = _asked(size(program))
    found = bytes(count + 2)  # of one byte Python has one object for all
    _asked(fetch(program, found))
    return found[:count]


def first_error(log: str) -> str:
    """The line of a compiler's log that says what is wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line and "compilation" not in line), lines[0] if lines else "")


def resources(log: str) -> tuple[Resources, ...]:
    """What `ptxas -v` tells of kernels, and then of the functions that they call."""
    found: dict[str, dict[str, int]] = {}
    kernels: list[str] = []
    name = ""
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\S+)'", line):
            kernels.append(match[1])
        elif match := re.search(r"Function properties for (\S+)", line):
            name = match[1]
            found.setdefault(name, {})
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            figures = zip(("stack", "spill_stores", "spill_loads"), map(int, match.groups()), strict=True)
            found[name].update(figures)
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[kernels[-1]].update(registers=int(match[1]), shared=int(shared[1]) if shared else 0)
    called = [name for name in found if name not in kernels]
    return tuple(Resources(name, **found[name]) for name in (*kernels, *called))


# ---- the disk


@cache
def _headers_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(HEADERS.glob("*.cuh")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(source: str, arch: str) -> str:
    """Identity of the machine code."""
    parts = (source, arch, _compiler().version, repr(OPTIONS), _headers_digest(), repr(Resources.__match_args__))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _pack(module: CompiledModule) -> bytes:
    return json.dumps([asdict(f) for f in module.functions]).encode() + b"\n" + module.image


def _unpack(blob: bytes) -> CompiledModule:
    """The module of a blob of `_pack`. Raises ValueError for any other."""
    header, image = blob.split(b"\n", 1)
    functions = parse_json(header)
    if not image.startswith(ELF) or not isinstance(functions, list) or not all(map(_are_resources, functions)):
        raise ValueError("no compiled module")
    return CompiledModule(image, tuple(Resources(**f) for f in functions))


def _are_resources(entry: Any) -> bool:
    if not isinstance(entry, dict) or set(entry) != set(Resources.__match_args__):
        return False
    name, *figures = (entry[field] for field in Resources.__match_args__)
    return isinstance(name, str) and all(map(is_count, figures))
