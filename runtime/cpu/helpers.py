"""Compiling with all cores. LLVM holds a lock while it compiles, so helpers are processes.

A helper is this module run by a fresh interpreter, which needs nothing of the caller's main module: it reads a pickled
{digest: kernel} from its standard input, from its parent alone, and answers with a pickled (digest, object file) each.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping

from brickrt.ops.cpu.compile import to_object
from brickrt.ops.cpu.kernel import Kernel, emit_module

WORTH = 5  # kernels per process from which starting one pays


def symbol(digest: str) -> str:
    """Name of a kernel's function."""
    return f"brick_{digest}"


def build(digest: str, kernel: Kernel) -> bytes:
    """Machine code of one kernel, as an object file."""
    return to_object(emit_module(kernel, symbol(digest)), kernel.isa)


def compile_all(kernels: Mapping[str, Kernel]) -> Iterator[tuple[str, bytes]]:
    """Object files by digest, as they are ready: a share is compiled here, the others by helpers meanwhile."""
    items = list(kernels.items())
    shares = max(1, min(os.cpu_count() or 1, len(items) // WORTH))
    helpers = [_start(dict(items[k::shares])) for k in range(1, shares)]
    try:
        for digest, kernel in items[::shares]:
            yield digest, build(digest, kernel)
        for k, helper in enumerate(helpers):
            yield from _answers(helper, dict(items[k + 1 :: shares]))
    finally:
        for helper in helpers:
            helper.kill()
            helper.communicate()


def _start(share: dict[str, Kernel]) -> subprocess.Popen:
    helper = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert helper.stdin is not None
    try:
        pickle.dump(share, helper.stdin)
        helper.stdin.flush()
    except BrokenPipeError:
        helper.kill()  # its share is compiled here
    return helper


def _answers(helper: subprocess.Popen, share: dict[str, Kernel]) -> Iterator[tuple[str, bytes]]:
    """What a helper compiles; what it fails to give is compiled here, where an error has a traceback."""
    assert helper.stdout is not None
    left = dict(share)
    while left:
        try:
            digest, image = pickle.load(helper.stdout)
        except (EOFError, pickle.UnpicklingError):
            break
        del left[digest]
        yield digest, image
    for digest, kernel in left.items():
        yield digest, build(digest, kernel)


def serve() -> None:
    """Runs a helper."""
    for digest, kernel in pickle.load(sys.stdin.buffer).items():
        pickle.dump((digest, build(digest, kernel)), sys.stdout.buffer)
        sys.stdout.buffer.flush()
