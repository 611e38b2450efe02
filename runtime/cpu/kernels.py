"""From kernels to functions of this process: looked up on disk, compiled where missing, by several processes at once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

from brickrt.ops.cpu.compile import Library, to_object
from brickrt.ops.cpu.kernel import Kernel, emit_module
from brickrt.runtime.cpu.cache import DiskCache, kernel_digest

Progress = Callable[[int, int], None]  # (compiled, to compile)
MANY = 6  # kernels from which starting processes pays


def symbol(digest: str) -> str:
    return f"brick_{digest}"


def build(kernel: Kernel) -> bytes:
    """Machine code of one kernel, as an object file."""
    return to_object(emit_module(kernel, symbol(kernel_digest(kernel))), kernel.isa)


def load_kernels(kernels: Sequence[Kernel], progress: Progress | None = None) -> tuple[Library, list[int]]:
    """All kernels in one library, and their addresses. What is compiled is kept on disk."""
    store = DiskCache.open("kernels")
    digests = [kernel_digest(k) for k in kernels]
    images = {d: store.get(d) for d in dict.fromkeys(digests)}
    missing = {d: k for d, k in zip(digests, kernels, strict=True) if images[d] is None}
    for done, (digest, image) in enumerate(zip(missing, _compile(list(missing.values())), strict=True)):
        images[digest] = image
        store.put(digest, image)
        if progress:
            progress(done + 1, len(missing))
    if missing:
        store.trim()
    library = Library(kernels[0].isa)
    for image in images.values():
        assert image is not None
        library.add(image)
    return library, [library.address(symbol(d)) for d in digests]


def _compile(kernels: list[Kernel]):
    """Object files, in order, as they are ready. LLVM holds a lock while it compiles, hence processes."""
    workers = min(os.cpu_count() or 1, len(kernels) // MANY + 1)
    if workers == 1 or multiprocessing.current_process().daemon:
        yield from map(build, kernels)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(build, kernels)
