"""What the programs of one engine share, for as long as there are any that use it."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary, ref

import numpy as np

from brickrt.runtime.cpu.memory import HugePagePool
from brickrt.runtime.cpu.working_memory import WorkingMemory

if TYPE_CHECKING:
    from brickrt.ops.cpu.kernel import Kernel


class EngineMemory:
    """The working memory of programs, and constants that they have packed."""

    def __init__(self) -> None:
        self._working: ref[WorkingMemory] | None = None
        self.packed = PackedConstants()

    def working(self) -> WorkingMemory:
        """That of the programs there are, or else another."""
        memory = self._working() if self._working else None
        if memory is None:
            memory = WorkingMemory()
            self._working = ref(memory)
        return memory


class PackedConstants:
    """Constants by their values and by how they are packed. Any thread may ask; two that pack the same at once both
    do."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, np.ndarray] = WeakValueDictionary()
        self._digests: dict[int, tuple[ref[np.ndarray], bytes]] = {}  # of arrays that are there, by identity

    def at_once(self, kernel: Kernel, i: int, array: np.ndarray) -> np.ndarray | None:
        """What `get` gives, where a program has it and this is known without reading the array; else None."""
        owner = _owner(array)
        held, digest = self._digests.get(id(owner), (None, b""))
        return self._known.get(_key(kernel, i, array, digest)) if held is not None and held() is owner else None

    def get(self, memory: HugePagePool, kernel: Kernel, i: int, array: np.ndarray) -> np.ndarray:
        """Constant input `i` as a kernel reads it, in `memory` where no program has it."""
        key = _key(kernel, i, array, self._digest(array))
        found = self._known.get(key)
        if found is None:
            with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is no mistake of the user's
                found = kernel.pack_in_place(i, array, memory.empty)
                found = memory.copy(kernel.pack_parts(i, array)) if found is None else found
            self._known[key] = found
        return found

    def _digest(self, array: np.ndarray) -> bytes:
        """Gives the digest of an array's values, which do not change."""
        # seen as bytes, since some types have no buffers of their own
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        owner = _owner(array)
        digest, number = hashlib.sha256(values.data).digest(), id(owner)
        self._digests[number] = ref(owner, lambda _: self._digests.pop(number, None)), digest
        return digest


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that an array is all of in another shape, else itself: they have the same bytes."""
    base = array.base
    while isinstance(base, np.ndarray) and base.nbytes == array.nbytes and _is_dense(array) and _is_dense(base):
        array, base = base, base.base
    return array


def _is_dense(array: np.ndarray) -> bool:
    return array.flags.c_contiguous


def _key(kernel: Kernel, i: int, array: np.ndarray, digest: bytes) -> Hashable:
    return type(kernel), kernel.packing(i), i, array.shape, array.dtype, digest
