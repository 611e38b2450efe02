"""Networks of files whose sizes are open, for the scripts beside: FILE.onnx:LEAST:MOST:STEP.

Each open extent but the batch is drawn from LEAST to MOST, a multiple of STEP; equal names are equal extents. Integers
are words under 1000, or ones where the input's name tells of a mask; floats lie between 0 and 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper
from size_networks import OpenNetwork, Sizes

WORDS = 1000
BATCH = ("n", "b", "batch", "batch_size")  # names of extents that stay 1


class FileNetwork:
    """A model's inputs, whose open extents are `free`: in the order in which they are drawn."""

    def __init__(self, told: str) -> None:
        self.path, *numbers = told.split(":")
        self.least, self.most, self.step = map(int, numbers)
        graph = onnx.load(self.path, load_external_data=False).graph
        known = {tensor.name for tensor in graph.initializer}
        self.inputs = [value for value in graph.input if value.name not in known]
        names = [name for value in self.inputs for name in self.extents(value) if isinstance(name, str)]
        self.free = [name for name in dict.fromkeys(names) if name.lower() not in BATCH]

    def extents(self, value: onnx.ValueInfoProto) -> list[int | str]:
        """An input's extents; the names of those that are open."""
        dims = value.type.tensor_type.shape.dim
        return [
            d.dim_value if d.HasField("dim_value") else d.dim_param or f"{value.name}.{k}" for k, d in enumerate(dims)
        ]

    def draw(self, rng: np.random.Generator) -> Sizes:
        """A size: an extent for each name."""
        steps = rng.integers(-(-self.least // self.step), self.most // self.step + 1, len(self.free))
        return tuple(int(n) * self.step for n in steps)

    def feed(self, size: Sizes) -> dict[str, np.ndarray]:
        """Inputs of a size."""
        known: dict[Any, int] = dict(zip(self.free, size, strict=True))
        rng, fed = np.random.default_rng(0), {}
        for value in self.inputs:
            shape = [n if isinstance(n, int) else known.get(n, 1) for n in self.extents(value)]
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            if dtype.kind in "iu" and "mask" not in value.name:
                fed[value.name] = rng.integers(0, WORDS, shape).astype(dtype)
            else:
                fed[value.name] = (np.ones(shape) if dtype.kind in "iub" else rng.random(shape)).astype(dtype)
        return fed


def file_network(told: str) -> OpenNetwork:
    """The network that FILE.onnx:LEAST:MOST:STEP tells of."""
    network = FileNetwork(told)
    return OpenNetwork(lambda: onnx.load(network.path), network.draw, network.feed)
