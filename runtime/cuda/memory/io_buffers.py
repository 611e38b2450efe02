"""The graph's inputs and outputs: the caller's arrays where they are on the device, else memory of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.runtime.cuda.driver.pinned_staging import StagedArray
from brickrt.runtime.cuda.driver.protocol import Driver, Stream


class IoBuffers:
    """Arrays of NumPy are copied from and to memory that is taken on first use; the driver's are used in place."""

    def __init__(self, driver: Driver, graph: Graph) -> None:
        self._driver = driver
        self._inputs = len(graph.inputs)
        self._names = [*(f"input '{name}'" for name in graph.inputs), *(f"output '{name}'" for name in graph.outputs)]
        self.sizes = [graph.types[name].nbytes for name in (*graph.inputs, *graph.outputs)]
        self._own: dict[int, StagedArray] = {}

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def nbytes(self) -> int:
        """Device memory that was taken for arrays of NumPy."""
        return sum(staged.nbytes for staged in self._own.values())

    def upload(self, inputs: Sequence[Any], outputs: Sequence[Any], waits: bool, stream: Stream) -> list[int]:
        """The addresses of all inputs, then outputs. Copies the inputs that are not on the device.

        `waits`: the host waits for this run's end. Otherwise the next run may begin while this one's inputs are still
        copied, so they must not be staged in the same pinned memory."""
        addresses = []
        for k, array in enumerate(inputs):
            addresses.append(self._address(k, array))
            if isinstance(array, np.ndarray) and array.nbytes:
                if waits:
                    self._own[k].upload(array, stream)
                else:
                    self._driver.upload(addresses[k], array, stream)
        addresses += (self._address(k, array) for k, array in enumerate(outputs, self._inputs))
        return addresses

    def download(self, outputs: Sequence[Any], stream: Stream) -> None:
        """Begins to copy the outputs that are not on the device to the host."""
        for k, array in enumerate(outputs, self._inputs):
            if isinstance(array, np.ndarray):
                self._own[k].download(stream)

    def read(self, outputs: Sequence[Any]) -> None:
        """Fills in the outputs that were copied, once the stream is there."""
        for k, array in enumerate(outputs, self._inputs):
            if isinstance(array, np.ndarray):
                self._own[k].read(array)

    def _address(self, k: int, array: Any) -> int:
        if not isinstance(array, np.ndarray):
            return self._driver.address(array)
        if k not in self._own:
            self._own[k] = StagedArray(self._driver, self.sizes[k], self._names[k])
        return self._own[k].address
