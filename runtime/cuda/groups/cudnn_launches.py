"""The launches of a program that a library does: which, on what memory, and with which workspaces."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from brickrt.ops.cuda.cudnn.graph import CudnnPlan
from brickrt.runtime.cuda.driver.alignment import aligned_size
from brickrt.runtime.cuda.driver.protocol import ProductLibrary, Stream
from brickrt.runtime.cuda.groups.cudnn_layers import Layer, StoredConstant
from brickrt.runtime.cuda.groups.group_search import Groups
from brickrt.runtime.lowering.owned_constants import OwnedConstants
from brickrt.runtime.lowering.task_graph import TaskGraph


@dataclass
class LibraryCalls:
    """The library's `layers` and their plans by index of the launch, and the constants that they read.

    `offsets` by index of the launch are in bytes, from the beginning of the arena, or of the constants for those.
    `reasons` say why kernels compute other products, by name of the node; `rests`, why they do what comes after.
    """

    library: ProductLibrary | None = None
    layers: dict[int, tuple[Layer, CudnnPlan]] = field(default_factory=dict)
    offsets: dict[int, list[int]] = field(default_factory=dict)
    pieces: list[tuple[int, np.ndarray]] = field(default_factory=list)  # offset, array
    nbytes: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    rests: dict[str, str] = field(default_factory=dict)
    _stored: dict[StoredConstant, int] = field(default_factory=dict)
    _workspaces: dict[int, int] = field(default_factory=dict)  # offset of each stream's

    @property
    def steps(self) -> frozenset[int]:
        """Indices of the steps that need no kernels."""
        return frozenset(layer.steps for layer, _ in self.layers.values())

    def add(self, k: int, layer: Layer, plan: CudnnPlan, values: OwnedConstants) -> None:
        """Adds launch `k`. Several may be of one layer, whose constants are uploaded once."""
        self.layers[k] = layer, plan
        self.offsets[k] = [p if isinstance(p, int) else self._offset(p, values) for p in layer.places]

    def _offset(self, constant: StoredConstant, values: OwnedConstants) -> int:
        if constant not in self._stored:
            array = constant.stored(values[constant.name])
            self._stored[constant] = self.nbytes
            self.pieces.append((self.nbytes, array))
            self.nbytes += aligned_size(array.nbytes)
        return self._stored[constant]

    def workspace(self, streams: Sequence[Collection[int]]) -> int:
        """Bytes for launches, each on any of its streams: these have workspaces of their own, for the greediest of the
        calls that may be there."""
        most: dict[int, int] = {}
        for k, (_, plan) in self.layers.items():
            for stream in streams[k]:
                most[stream] = max(most.get(stream, 0), aligned_size(plan.workspace))
        total = 0
        for stream in sorted(most):
            self._workspaces[stream] = total
            total += most[stream]
        return total

    def first_uses(self, streams: Sequence[int]) -> list[int]:
        """One launch of each plan on each stream that it runs on."""
        return list({(id(plan), streams[k]): k for k, (_, plan) in self.layers.items()}.values())

    def run(self, k: int, arena: int, arrays: int, workspace: int, stream: Stream, number: int) -> None:
        """Launch `k` on a stream; arena, arrays and the first stream's workspace begin at these addresses."""
        assert self.library is not None
        layer, plan = self.layers[k]
        bases = (arrays if isinstance(place, StoredConstant) else arena for place in layer.places)
        addresses = [base + offset for base, offset in zip(bases, self.offsets[k], strict=True)]
        self.library.run(plan, addresses, workspace + self._workspaces[number], stream)


def calls_of(tasks: TaskGraph, groups: Groups, library: ProductLibrary | None, values: OwnedConstants) -> LibraryCalls:
    """The calls of groups and whole layers, with the constants that they read."""
    calls = LibraryCalls(library, reasons=groups.reasons | groups.layers.reasons)
    for k, (layer, plan) in groups.calls.items():
        calls.add(k, layer, plan, values)
    for layer, _ in calls.layers.values():
        name = tasks.plan.graph.nodes[tasks.steps[layer.steps].node].name
        why = calls.reasons.pop(name, None)
        if why and layer.share != "all":
            calls.rests[name] = why
    return calls
