"""From kernels to functions of this process: looked up on disk, compiled where missing, by several processes."""

from __future__ import annotations

from collections.abc import Callable

from brickrt.ops.cpu.compile import LoadedObjects
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cpu.compile.compile_pool import Compilation, symbol
from brickrt.runtime.cpu.compile.kernel_digest import kernel_digest

Progress = Callable[[int, int], None]  # (compiled, to compile)


class KernelLoader:
    """Kernels of one program. Helpers compile the missing ones from the first `want` on; `load` gives all.

    A context manager: leaving it leaves no helper behind.
    """

    def __init__(self, isa: Isa) -> None:
        self._isa = isa
        self._store = DiskCache.open("kernels")
        self._compilation = Compilation()
        self._images: dict[str, bytes | None] = {}
        self._digests: list[str] = []

    def want(self, kernel: Kernel) -> None:
        """Adds a kernel to those that `load` gives."""
        digest = kernel_digest(kernel)
        self._digests.append(digest)
        if digest not in self._images:
            self._images[digest] = self._store.get(digest)
            if self._images[digest] is None:
                self._compilation.ask(digest, kernel)

    def load(self, progress: Progress | None = None) -> tuple[LoadedObjects, list[int]]:
        """One library of all kernels, and their addresses in the order they were wanted. What is compiled is kept."""
        missing = self._compilation.asked
        for done, (digest, image) in enumerate(self._compilation.images()):
            self._images[digest] = image
            self._store.put(digest, image)
            if progress:
                progress(done + 1, missing)
        library = LoadedObjects(self._isa)
        for compiled in self._images.values():
            assert compiled is not None
            library.add(compiled)
        return library, [library.address(symbol(d)) for d in self._digests]

    def __enter__(self) -> KernelLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._compilation.__exit__(*exc)
