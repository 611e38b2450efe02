"""Constants made of others, kept from one size of a model to the next: scaled weights, matrices joined.

They are the same for all sizes. That they are the same objects lets programs find what they have packed of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from weakref import ref

import numpy as np

from brickrt.ops.base import Op, evaluate_whole

LEAST_ARRAY_BYTES, MOST_KEPT_BYTES = 1 << 16, 128 << 20
"""Bytes of an array that is worth keeping, and of all that are kept."""
MOST_MET = 1 << 12  # ways to make an array that are noted

Sources = tuple[np.ndarray, ...]
Key = tuple[Hashable, tuple[int, ...]]


class DerivedConstants:
    """Arrays by how they are made, and of which arrays: these are known by identity, and what is made of them goes with
    the first that goes. Kept is what is made a second time, since much depends on a size; where all would be too much,
    further ones are not. Any thread may ask."""

    def __init__(self, most: int = MOST_KEPT_BYTES) -> None:
        self.most = most
        self._kept: dict[Key, np.ndarray] = {}
        self._met: dict[Key, tuple[ref[np.ndarray], ...]] = {}

    def get(self, how: Hashable, sources: Sources, make: Callable[[], np.ndarray]) -> np.ndarray:
        """What `make` gives, which depends on `how` and the `sources` alone; nobody may write it, or them."""
        key = how, tuple(map(id, sources))
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        made = make()
        if made.nbytes >= LEAST_ARRAY_BYTES and not any(np.may_share_memory(made, source) for source in sources):
            self._meet(key, sources, made)
        return made

    def _meet(self, key: Key, sources: Sources, made: np.ndarray) -> None:
        """Notes that an array was made; the second time, keeps it."""
        if key not in self._met:
            if len(self._met) < MOST_MET:
                self._met[key] = tuple(ref(source, lambda _: self._drop(key)) for source in sources)
        elif made.nbytes <= self.most - self.nbytes:
            self._kept[key] = made

    def _drop(self, key: Key) -> None:
        self._met.pop(key, None)
        self._kept.pop(key, None)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return sum(array.nbytes for array in tuple(self._kept.values()))


DERIVED = DerivedConstants()
"""Those of this process."""


def evaluated(op: Op, operands: Sequence[np.ndarray]) -> np.ndarray:
    """What an operator gives of constants, by its definition."""
    return DERIVED.get(op, tuple(operands), lambda: evaluate_whole(op, operands))


def evaluated_densely(op: Op, operands: Sequence[np.ndarray]) -> np.ndarray:
    """As `evaluated`, in row-major order."""
    return DERIVED.get(("dense", op), tuple(operands), lambda: np.asarray(evaluate_whole(op, operands), order="C"))
