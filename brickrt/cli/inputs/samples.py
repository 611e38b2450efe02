"""Inputs of several runs as arrays, read when they are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from brickrt.cli.inputs.feeds import Arrays, read_feed
from brickrt.cli.inputs.file_lists import InputFiles
from brickrt.cli.inputs.presets import Preprocessing
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.check_inputs import check_inputs
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.files.formats.file_formats import OF_NUMPY, format_of


@dataclass(frozen=True)
class Samples(Sequence[Arrays]):
    """The inputs of the runs that files stand for. Where the model's only input is a batch of several pictures, a run
    takes as many files, the last one repeated to fill it."""

    source: SourceGraph
    runs: Sequence[InputFiles]
    image: Preprocessing

    def __len__(self) -> int:
        return -(-len(self.runs) // self._batch)

    @overload
    def __getitem__(self, index: int) -> Arrays: ...

    @overload
    def __getitem__(self, index: slice) -> list[Arrays]: ...

    def __getitem__(self, index: int | slice) -> Arrays | list[Arrays]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        first = range(0, len(self.runs), self._batch)[index]
        chunk = self.runs[first : first + self._batch]
        feeds = [read_feed(self.source, given, self.image).arrays for given in chunk]
        try:
            return check_inputs(self.source, feeds[0] if self._batch == 1 else self._together(feeds))
        except InputError as e:
            raise InputError(f"{chunk[0].main}: {e}") from e

    @property
    def _batch(self) -> int:
        """How many files a run takes."""
        infos = list(self.source.inputs.values())
        shape = infos[0].shape if len(infos) == 1 else None
        if shape is None or len(shape) < 4 or any(format_of(run.main, OF_NUMPY) for run in self.runs):
            return 1
        return shape[0] if isinstance(shape[0], int) and shape[0] > 0 else 1

    def _together(self, feeds: Sequence[Arrays]) -> Arrays:
        (name,) = feeds[0]
        arrays = [feed[name] for feed in feeds] + [feeds[-1][name]] * (self._batch - len(feeds))
        if len({array.shape for array in arrays}) > 1:
            raise InputError("the files of one batch have several sizes: give --resize HxW")
        return {name: np.concatenate(arrays)}
