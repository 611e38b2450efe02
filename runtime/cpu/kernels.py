"""From kernels to functions of this process: looked up on disk, compiled where missing, by several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brickrt.ops.cpu.compile import Library
from brickrt.ops.cpu.kernel import Kernel
from brickrt.runtime.cpu.cache import kernel_digest
from brickrt.runtime.cpu.helpers import compile_all, symbol
from brickrt.runtime.disk_cache import DiskCache

Progress = Callable[[int, int], None]  # (compiled, to compile)


def load_kernels(kernels: Sequence[Kernel], progress: Progress | None = None) -> tuple[Library, list[int]]:
    """All kernels in one library, and their addresses. What is compiled is kept on disk."""
    store = DiskCache.open("kernels")
    digests = [kernel_digest(k) for k in kernels]
    images = {d: store.get(d) for d in dict.fromkeys(digests)}
    missing = {d: k for d, k in zip(digests, kernels, strict=True) if images[d] is None}
    for done, (digest, compiled) in enumerate(compile_all(missing)):
        images[digest] = compiled
        store.put(digest, compiled)
        if progress:
            progress(done + 1, len(missing))
    library = Library(kernels[0].isa)
    for image in images.values():
        assert image is not None
        library.add(image)
    return library, [library.address(symbol(d)) for d in digests]
