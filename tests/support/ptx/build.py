"""CUDA sources as libraries of the host: NVRTC makes PTX of them, this package C++, and g++ machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.kernels import compile as compiling
from tests.support.cuda import host_kernels
from tests.support.ptx.emit import cpp
from tests.support.ptx.parse import parse

FLAGS = (
    *("-std=c++17", "-Og", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread"),
    "-march=native",  # products are fused where the text says so
    f"-I{host_kernels.PTX}",
    f"-I{host_kernels.HOST}",
)
Ranges = Iterable[tuple[int, int]]


def ptx_of(source: str, arch: str) -> str:
    """What NVRTC makes of a source for an architecture such as "sm_90", with the options of the engine."""
    compiler = compiling._compiler()
    nvrtc, folders = compiler.nvrtc, (compiling.HEADERS, compiler.headers)
    options = [f"--gpu-architecture={arch.replace('sm', 'compute')}", *compiling.OPTIONS]
    options += [f"--include-path={folder}" for folder in folders]
    program = compiling._asked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], []))
    try:
        error, *_ = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if error:
            log = compiling._text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            raise BrickError(log.rstrip(b"\0").decode())
        return compiling._text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)


class _Range(ctypes.Structure):
    _fields_ = (("lo", ctypes.c_uint64), ("hi", ctypes.c_uint64), ("seen", ctypes.c_void_p))


class PtxLibrary:
    """Kernels as functions of the host, that may touch the given ranges (address, bytes) of memory alone."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def kernel(self, name: str, ranges: Callable[..., Ranges]) -> Callable[..., None]:
        """Called as kernels of `host_kernels` are; `ranges`, called alike, tells what memory there is."""
        function = getattr(self._library, name)

        def call(*arguments: Any) -> None:
            self._allow(ranges(*arguments))
            function(*arguments)

        return call

    def _allow(self, ranges: Ranges) -> None:
        known = sorted((at, at + nbytes) for at, nbytes in ranges if nbytes)
        self._ranges = (_Range * len(known))(*(_Range(lo, hi, None) for lo, hi in known))
        ctypes.c_void_p.in_dll(self._library, "ptx_ranges").value = ctypes.addressof(self._ranges)
        ctypes.c_longlong.in_dll(self._library, "ptx_range_count").value = len(known)


@cache
def compiled(source: str, arch: str) -> PtxLibrary:
    return assembled(ptx_of(source, arch))


def assembled(ptx: str) -> PtxLibrary:
    """A library of PTX text."""
    return PtxLibrary(host_kernels.library_of_kernels(cpp(parse(ptx)), ("warps.hpp",), FLAGS))
