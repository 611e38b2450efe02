"""From kernels and other modules to functions of this process: looked up on disk, compiled where missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.compile import LoadedObjects, to_object
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.sized_kernel import Outline, SizedCode, outline, outlines_of_larger
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cpu.compile.code_cache import CODE_CACHE
from brickrt.runtime.cpu.compile.compile_pool import Compilation
from brickrt.runtime.cpu.compile.kernel_digest import digest_of, engine_digest, outline_digest
from brickrt.runtime.progress import KernelProgress

_LOADED: WeakValueDictionary[str, LoadedObjects] = WeakValueDictionary()  # by the names of functions, while in use
_KEPT_LIBRARIES: list[LoadedObjects] = []  # of the engine itself: threads may be in them until the process ends


def load_module(name: str, make: Callable[[], ir.Module], isa: Isa) -> LoadedObjects:
    """The functions of a module of the engine itself, which stay until the process ends."""
    _KEPT_LIBRARIES.append(_loaded([module_image(name, make, isa)]))
    return _KEPT_LIBRARIES[-1]


def module_image(name: str, make: Callable[[], ir.Module], isa: Isa) -> bytes:
    """The object file of a module of the engine itself, which is made where it is not kept: its `name` says what of it
    the sources of the engine do not."""
    store, digest = _store(), digest_of(name, repr(isa), engine_digest())
    image = store.get(digest)
    if image is None:
        image = to_object(make(), isa)
        store.put(digest, image)
    return image


@dataclass
class WantedKernel:
    """A kernel of a program: its outline, the code that is good for it once there is some, and the table that this
    reads."""

    outline: Outline
    digest: str
    code: SizedCode | None = None
    sizes: Future[np.ndarray] = field(default_factory=Future)

    def found(self, code: SizedCode, table: np.ndarray) -> None:
        """The code is there, and what it reads."""
        self.code = code
        self.sizes.set_result(table)


class KernelLoader:
    """Kernels of one program. Helper processes compile the missing ones from the first `want` on; `load` gives all.
    They are `broad` where other sizes are likely to follow.

    A context manager: leaving it leaves no helper behind. It may be entered again for kernels that are wanted later.
    """

    def __init__(self, broad: bool = False) -> None:
        self._broad = broad
        self._store = _store()
        self._compilation = Compilation()
        self._missing: dict[str, list[tuple[WantedKernel, Kernel]]] = {}  # by outline: its first one is compiled
        self._had: dict[str, int] = {}  # by outline: how many codes there were before this program's
        self._wanted: list[WantedKernel] = []

    def want(self, kernel: Kernel) -> Future[np.ndarray]:
        """Adds a kernel to those that `load` gives. Its table of sizes, int64, is there once its code is."""
        shape = outline(kernel)
        wanted = WantedKernel(shape, outline_digest(shape))
        self._wanted.append(wanted)
        found = CODE_CACHE.find(self._store, wanted.digest, shape) or (self._broad and self._of_larger(kernel))
        if found:
            wanted.found(*found)
            return wanted.sizes
        waiting = self._missing.setdefault(wanted.digest, [])
        if wanted.digest not in self._had:
            self._had[wanted.digest] = CODE_CACHE.count(self._store, wanted.digest)
        if not waiting:
            self._ask(wanted.digest, kernel)
        waiting.append((wanted, kernel))
        return wanted.sizes

    def _of_larger(self, kernel: Kernel) -> tuple[SizedCode, np.ndarray] | None:
        """Code of kernels of larger extents that is good for this one: of a network of open sizes there may be some,
        and each small size would otherwise have code of its own."""
        shapes = outlines_of_larger(kernel) if kernel.sized else ()
        found = (CODE_CACHE.find(self._store, outline_digest(shape), shape) for shape in shapes)
        return next((each for each in found if each is not None), None)

    def load(self, progress: KernelProgress | None = None) -> tuple[list[LoadedObjects], list[int]]:
        """Libraries of all kernels, and the kernels' addresses in the order they were wanted. What programs of this
        process have loaded is not loaded again; what is compiled is kept."""
        images = self.images(progress)
        found = {name: library for name in images if (library := _LOADED.get(name)) is not None}
        missing = [name for name in images if name not in found]
        if missing:
            library = _loaded(images[name] for name in missing)
            for name in missing:
                found[name] = _LOADED[name] = library
        return list(dict.fromkeys(found.values())), [found[name].address(name) for name in self.symbols]

    @property
    def symbols(self) -> list[str]:
        """The names of the kernels' functions, in the order they were wanted."""
        return [wanted.code.symbol for wanted in self._wanted if wanted.code]

    def images(self, progress: KernelProgress | None = None) -> dict[str, bytes]:
        """The object files of all kernels, by the names of their functions."""
        done = 0
        while self._compilation.asked:
            known = done + self._compilation.asked
            for digest, code in self._compilation.images():
                CODE_CACHE.add(self._store, digest, code)
                self._compiled(digest, code)
                done += 1
                if progress:
                    progress(done, known)
        return {wanted.code.symbol: wanted.code.image for wanted in self._wanted if wanted.code}

    def _compiled(self, digest: str, code: SizedCode) -> None:
        """Gives the code to kernels of its outline that it is good for, and asks for that of one of the others."""
        waiting = self._missing.pop(digest)
        others = []
        for wanted, kernel in waiting:
            table = code.table(wanted.outline)
            if table is None:
                others.append((wanted, kernel))
            else:
                wanted.found(code, table)
        if others:
            self._missing[digest] = others
            self._ask(digest, others[0][1])

    def _ask(self, digest: str, kernel: Kernel) -> None:
        """Asks for code. It is good for as many sizes as it can be in a network of open sizes, and where other programs
        had so many codes (`narrow_codes`) of which none is good for this size: others need none such, which takes
        longer to compile."""
        broad = kernel.sized and (self._broad or self._had[digest] >= kernel.narrow_codes)
        self._compilation.ask(digest, replace(kernel, broad=broad) if broad else kernel)

    def __enter__(self) -> KernelLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._compilation.__exit__(*exc)
        self._compilation = Compilation()


def _store() -> DiskCache:
    return DiskCache.open("kernels")


def _loaded(images: Iterable[bytes]) -> LoadedObjects:
    """One library of all object files."""
    library = LoadedObjects()
    for image in images:
        library.add(image)
    return library
