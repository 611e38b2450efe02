"""From kernels and other modules to functions of this process: looked up on disk, compiled where missing."""

from __future__ import annotations

from collections.abc import Iterable

from llvmlite import ir

from brickrt.ops.cpu.compile import LoadedObjects, to_object
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cpu.compile.compile_pool import Compilation, symbol
from brickrt.runtime.cpu.compile.kernel_digest import digest_of, kernel_digest
from brickrt.runtime.progress import KernelProgress

_KEPT: list[LoadedObjects] = []  # libraries of the engine itself: threads may be in them until the process ends


def load_module(module: ir.Module, isa: Isa) -> LoadedObjects:
    """The functions of a module of the engine itself, which stay until the process ends."""
    _KEPT.append(_loaded([module_image(module, isa)], isa))
    return _KEPT[-1]


def module_image(module: ir.Module, isa: Isa) -> bytes:
    """The object file of a module of the engine itself."""
    text = str(module)
    store, digest = _store(), digest_of(module.name, repr(isa), text)
    image = store.get(digest)
    if image is None:
        image = to_object(text, isa)
        store.put(digest, image)
    return image


class KernelLoader:
    """Kernels of one program. Helper processes compile the missing ones from the first `want` on; `load` gives all.

    A context manager: leaving it leaves no helper behind.
    """

    def __init__(self, isa: Isa) -> None:
        self._isa = isa
        self._store = _store()
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

    def load(self, progress: KernelProgress | None = None) -> tuple[LoadedObjects, list[int]]:
        """One library of all kernels, and their addresses in the order they were wanted. What is compiled is kept."""
        library = _loaded(self.images(progress).values(), self._isa)
        return library, [library.address(name) for name in self.symbols]

    @property
    def symbols(self) -> list[str]:
        """The names of the kernels' functions, in the order they were wanted."""
        return [symbol(digest) for digest in self._digests]

    def images(self, progress: KernelProgress | None = None) -> dict[str, bytes]:
        """The object files of all kernels, by the names of their functions."""
        missing = self._compilation.asked
        for done, (digest, image) in enumerate(self._compilation.images()):
            self._images[digest] = image
            self._store.put(digest, image)
            if progress:
                progress(done + 1, missing)
        return {symbol(digest): image for digest, image in self._images.items() if image is not None}

    def __enter__(self) -> KernelLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._compilation.__exit__(*exc)


def _store() -> DiskCache:
    return DiskCache.open("kernels")


def _loaded(images: Iterable[bytes], isa: Isa) -> LoadedObjects:
    """One library of all object files."""
    library = LoadedObjects(isa)
    for image in images:
        library.add(image)
    return library
