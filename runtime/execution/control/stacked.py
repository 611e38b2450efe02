"""What the rounds of a loop give, one behind the other in one array."""

from __future__ import annotations

from typing import Any

import numpy as np

from brickrt.graph.allowance import hold
from brickrt.graph.host.node_arrays import OBJECT_BYTES, memory_of
from brickrt.graph.room import require_bytes

FIRST_ROUNDS, FIRST_BYTES = 16, 1 << 20
"""Rounds for which there is room at first, fewer of large values; then for twice as many each time."""


class Stacked:
    """One output of a loop. `most` is how many rounds there are at most, `what` the node in words. With `backward` the
    first round's value comes last: then `most` is how many there are."""

    def __init__(self, most: float, what: str, backward: bool = False) -> None:
        self.rounds, self._most, self._what, self._backward = 0, most, what, backward
        self._array: np.ndarray | None = None
        self._slot: np.ndarray | None = None

    def slot(self) -> np.ndarray | None:
        """Where the value of the next round belongs; None where its type is not known yet."""
        if self._array is None:
            return None
        if self.rounds == len(self._array):
            self._grow(self._array)
        at = len(self._array) - 1 - self.rounds if self._backward else self.rounds
        self._slot = self._array[at, ...]
        return self._slot

    def add(self, value: Any) -> None:
        """Takes the value of a round, which lies in the slot already or is copied. Raises ValueError where it is of
        another type than those before."""
        if not isinstance(value, np.ndarray):
            raise TypeError(f"a loop stacks tensors, and round {self.rounds} gives a {type(value).__name__}")
        if value.dtype.kind in "US":
            value = value.astype(object)  # texts of any length
        if self._array is None:
            few = max(1, min(FIRST_ROUNDS, FIRST_BYTES // max(1, value.nbytes)))
            self._array = self._room(value, self._most if self._backward else min(self._most, few))
        slot, self._slot = self._slot, None
        if slot is None:
            slot = self.slot()
        if value is not slot:
            assert slot is not None
            if value.shape != slot.shape or value.dtype != slot.dtype:
                raise ValueError(
                    f"round {self.rounds} gives {value.dtype}{list(value.shape)}, those before {slot.dtype}"
                    f"{list(slot.shape)}: a loop stacks tensors of one type"
                )
            slot[...] = value
        self.rounds += 1

    def result(self) -> np.ndarray | None:
        """All rounds' values; None where there were none."""
        if self._array is None or self.rounds == len(self._array):
            return self._array
        kept = self._array[: self.rounds]
        return kept if 2 * self.rounds > len(self._array) else kept.copy()

    def owns(self, value: Any) -> bool:
        """Whether a value lies in the array, so that it would be lost with it, or change."""
        return isinstance(value, np.ndarray) and value.base is not None and value.base is self._array

    def _grow(self, array: np.ndarray) -> None:
        self._array = self._room(array[0], min(self._most, 2 * len(array)))
        self._array[: len(array)] = array

    def _room(self, like: np.ndarray, rounds: float) -> np.ndarray:
        """Raises BrickError where there is no room for twice what there is."""
        nbytes = int(rounds) * (memory_of(like) + OBJECT_BYTES)
        require_bytes(2 * nbytes, f"{self._what}, after {self.rounds} rounds, collects outputs which")
        hold(nbytes)
        return np.empty((int(rounds), *like.shape), like.dtype)
