"""All constants of a program in one piece of memory, equal ones once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from brickrt.ops.cuda.kernel import Kernel
from brickrt.runtime.cuda.driver.alignment import aligned_size


@dataclass
class PackedConstants:
    """Grows as constants are added; `pieces` are (byte offset, array) until they are uploaded."""

    nbytes: int = 0
    pieces: list[tuple[int, np.ndarray]] = field(default_factory=list)
    _known: dict[bytes, int] = field(default_factory=dict)

    def add(self, array: np.ndarray) -> int:
        """Adds a packed constant; the byte offset at which its elements lie."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
        digest = hashlib.sha256(content.data).digest()
        if digest not in self._known:
            self._known[digest] = self.nbytes
            self.pieces.append((self.nbytes, content))
            self.nbytes += aligned_size(content.nbytes)
        return self._known[digest]

    def add_packed(self, kernel: Kernel, i: int, array: np.ndarray) -> int:
        """Adds a constant as input `i` of a kernel reads it; likewise."""
        return self.add(kernel.pack(i, array))
