"""Functions of the executor itself: compiled once for a machine, kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llvmlite import ir

from brickrt.ops.cpu.compile import LoadedObjects, to_object
from brickrt.ops.cpu.isa import Isa
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cpu.compile.kernel_digest import digest_of

_KEPT: list[
    LoadedObjects
] = []  # functions live as long as their library, and threads may be in them until the process ends


def load_functions(
    name: str, isa: Isa, emit: Callable[[], ir.Module], arguments: Mapping[str, Sequence[type]]
) -> dict[str, Callable[..., Any]]:
    """The functions named in `arguments` of the module that `emit` prints. Calling one releases the GIL."""
    module = str(emit())
    store, digest = DiskCache.open("kernels"), digest_of(name, repr(isa), module)
    image = store.get(digest)
    if image is None:
        image = to_object(module, isa)
        store.put(digest, image)
    library = LoadedObjects(isa)
    library.add(image)
    _KEPT.append(library)
    return {function: library.function(function, *types) for function, types in arguments.items()}
