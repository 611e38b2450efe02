"""Windows in the order of their rows: read, computed, blended, and written where no later window comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.ops.types import Shape
from brickrt.runtime.program_protocol import Cancelled, Program
from brickrt.runtime.stream.sweep_run import Sink, Source
from brickrt.runtime.windows.blend_weights import blend_weights
from brickrt.runtime.windows.blended_rows import BlendedRows, shift_rows
from brickrt.runtime.windows.window_layout import Extents, WindowLayout
from brickrt.runtime.windows.window_planning import PlannedWindows


@dataclass(frozen=True)
class WindowFiles:
    """The input's file, those of the outputs, and who is told: of rows written, as (image, row of windows, output,
    where they begin, rows); of windows computed, as (image, row of windows, how many)."""

    source: Source
    sinks: Mapping[str, Sink]
    written: Callable[[int, int, str, Shape, np.ndarray], None]
    computed: Callable[[int, int, int], None]


class WindowRun:
    """A run. Memory is there from the beginning."""

    def __init__(self, planned: PlannedWindows, program: Program) -> None:
        self.planned, self.program = planned, program
        self.graph, self.layout = planned.plan.graph, planned.layout
        self.input = InputRows(planned.layout, planned.given.shape[1], planned.given.dtype)
        self.given = np.zeros(planned.given.shape, planned.given.dtype)
        self.results = {name: np.zeros(o.window.shape, o.window.dtype) for name, o in planned.outputs.items()}
        self.blended = {name: self._rows(name) for name in planned.outputs}
        self._cancelled = False

    def _rows(self, name: str) -> BlendedRows:
        one, options = self.planned.outputs[name], self.planned.options
        weights = blend_weights(self.layout.window, one.layout.window, options.blend)
        return BlendedRows(one.layout, one.channels, one.sums, weights)

    def cancel(self) -> None:
        """Ends the run after the window that it is at."""
        self._cancelled = True

    def run(self, files: WindowFiles, image: int = 0, row: int = 0) -> None:
        """Writes the outputs from what a row of windows of an image finishes on. Raises Cancelled after `cancel`."""
        for number in range(image, self.planned.shape[0]):
            wanted = row if number == image else 0
            first = self.layout.first_for(wanted)
            for k in range(first, self.layout.rows):
                self._begin(files.source, number, k, k == first)
                self._compute(files, number, k)
                if k >= wanted:
                    self._write(files, number, k)

    def _begin(self, source: Source, image: int, row: int, fresh: bool) -> None:
        """Makes room for the results of a row of windows, and reads what it needs."""
        if fresh:
            self.input.restart()
        self.input.read(source, image, self.layout.starts[0][row])
        for rows in self.blended.values():
            top = rows.layout.starts[0][row]
            if fresh:
                rows.restart(top)
            else:
                rows.advance(top)

    def _compute(self, files: WindowFiles, image: int, row: int) -> None:
        """All windows of a row, as many at a time as the network takes; the last ones may be fewer."""
        count, abreast = len(self.layout.places), len(self.given)
        for together in (range(k, min(k + abreast, count)) for k in range(0, count, abreast)):
            for slot, number in enumerate(together):
                self.given[slot] = self.input.window(self.layout.places[number])
            if self._cancelled:
                raise Cancelled
            self.program.run([self.given], [self.results[name] for name in self.graph.outputs])
            for name, rows in self.blended.items():
                places = rows.layout.places
                for slot, number in enumerate(together):
                    rows.add(places[number], self.results[name][slot])
            files.computed(image, row, len(together))

    def _write(self, files: WindowFiles, image: int, row: int) -> None:
        """The rows that are finished."""
        for name, rows in self.blended.items():
            begin, values = rows.finished(row)
            kind = self.planned.outputs[name].window.dtype
            made = self.planned.decision.made(values.astype(kind, copy=False))
            at = (image, 0, begin, *(0 for _ in made.shape[3:]))
            if made.size:
                files.sinks[name].write(at, made)
            files.written(image, row, name, at, made)


class InputRows:
    """The rows of the input that a row of windows needs, [channels, rows, …], with padding."""

    def __init__(self, layout: WindowLayout, channels: int, dtype: np.dtype) -> None:
        self.layout, self.top, self.end = layout, 0, 0
        self.rows = np.zeros((channels, layout.window[0], *layout.padded[1:]), dtype)

    def restart(self) -> None:
        """Nothing has been read."""
        self.top = self.end = -1

    def read(self, source: Source, image: int, top: int) -> None:
        """Holds the rows from `top` on; those that are there already are kept."""
        held, layout = self.rows.shape[1], self.layout
        fresh, self.top, before = self.top < 0, top, self.top
        if not fresh:
            shift_rows(self.rows, top - before)
        lo, hi = max(top if fresh else self.end, layout.front[0]), min(top + held, layout.front[0] + layout.image[0])
        self.end = max(lo, hi)
        if hi <= lo:
            return
        behind = tuple(slice(f, f + n) for f, n in zip(layout.front[1:], layout.image[1:], strict=True))
        new = self.rows[(slice(None), slice(lo - top, hi - top), *behind)]
        source.read((image, 0, lo - layout.front[0], *(0 for _ in behind)), new[None])

    def window(self, at: Extents) -> np.ndarray:
        """The window that begins at `at` along the axes behind the rows."""
        sides = zip(at, self.layout.window[1:], strict=True)
        return self.rows[(slice(None), slice(None), *(slice(a, a + n) for a, n in sides))]
