"""The graph's inputs and outputs: the caller's arrays where they are on the device, else memory of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.runtime.cuda.driver import Driver, Memory, Stream


class Ends:
    """Arrays of NumPy are copied from and to memory that is taken on first use; the driver's are used in place."""

    def __init__(self, driver: Driver, graph: Graph) -> None:
        self._driver = driver
        self._inputs = len(graph.inputs)
        self.sizes = [graph.types[name].nbytes for name in (*graph.inputs, *graph.outputs)]
        self._own: dict[int, Memory] = {}

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def nbytes(self) -> int:
        """Of our own memory."""
        return sum(memory.nbytes for memory in self._own.values())

    def upload(self, inputs: Sequence[Any], outputs: Sequence[Any], stream: Stream) -> list[int]:
        """Where all inputs, then outputs lie. Copies the inputs that are not on the device."""
        for k, array in enumerate(inputs):
            if isinstance(array, np.ndarray) and array.nbytes:
                self._driver.upload(self._room(k), array, stream)
        return [self._address(k, array) for k, array in enumerate((*inputs, *outputs))]

    def download(self, outputs: Sequence[Any], stream: Stream) -> bool:
        """Copies outputs that are not on the device; whether there are any."""
        own = [(k, a) for k, a in enumerate(outputs, self._inputs) if isinstance(a, np.ndarray)]
        for k, array in own:
            if array.nbytes:
                self._driver.download(array, self._room(k), stream)
        return bool(own)

    def _address(self, k: int, array: Any) -> int:
        return self._room(k) if isinstance(array, np.ndarray) else self._driver.address(array)

    def _room(self, k: int) -> int:
        if k not in self._own:
            self._own[k] = self._driver.allocate(max(self.sizes[k], 8))
        return self._own[k].address
