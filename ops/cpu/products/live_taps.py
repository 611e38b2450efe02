"""Where output pixels read, at run time: loops over the taps that fall on the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.products.row_tiles import RepeatedTiles, RowWindow

LARGEST_CHECKED_STRIDE = 8


def first_input(f: FunctionEmitter, window: RowWindow, x: Index) -> Index:
    """Input index that relative index 0 of a row of tiles stands for (`RowWindow.base` at run time)."""
    if window.transposed:
        return f.div(f.add(x, window.pad), window.stride)
    return f.sub(f.mul(x, window.stride), window.pad)


def tile_place(f: FunctionEmitter, run: RepeatedTiles, x: Index, base: Index, r: Index) -> tuple[Index, Index]:
    """First output and base of inputs of repetition `r` of a run of tiles, in a row whose own are `x` and `base`."""
    places = f.add(run.start, f.mul(r, run.out_step)), f.add(run.in_start, f.mul(r, run.in_step))
    if run.latest is not None and run.in_latest is not None:
        places = f.minimum(places[0], run.latest), f.minimum(places[1], run.in_latest)
    return f.add(x, places[0]), f.add(base, places[1])


@contextmanager
def live_taps(f: FunctionEmitter, window: RowWindow, extent_out: int, y: Index) -> Iterator[tuple[Index, Index]]:
    """Loop over the taps of an outer dimension that fall on the tensor: yields (tap, input index)."""
    k, s, d, pad = window.kernel, window.stride, window.dilation, window.pad
    if window.transposed:
        congruent = d == 1 and s > LARGEST_CHECKED_STRIDE  # few of many taps meet a pixel of the input: every s-th one
        first = f.rem(f.add(y, pad), s) if congruent else 0
        with f.loop(first, k, s if congruent else 1) as tap:
            spread = f.sub(f.add(y, pad), f.mul(tap, d))
            index = f.div(spread, s)
            with f.when(_inside(f, index, window.extent, f.rem(spread, s))):
                yield tap, index
        return
    with f.loop(*tap_range(f, window, extent_out, y)) as tap:
        yield tap, f.add(first_input(f, window, y), f.mul(tap, d))


def tap_range(f: FunctionEmitter, window: RowWindow, extent_out: int, y: Index) -> tuple[Index, Index]:
    """Between which taps of output `y` those lie that fall on the tensor; not of transposed convolutions."""
    k, s, d, pad = window.kernel, window.stride, window.dilation, window.pad
    if pad == 0 and (extent_out - 1) * s + (k - 1) * d < window.extent:
        return 0, k
    start = first_input(f, window, y)
    lo = f.maximum(0, f.div(f.sub(d - 1, start), d))
    return lo, f.minimum(k, f.add(f.div(f.sub(window.extent - 1, start), d), 1))


def shared_taps(
    f: FunctionEmitter, window: RowWindow, extent_out: int, x: Index, count: int
) -> list[tuple[Index, Index, range]]:
    """Taps [lo, hi) that fall on the tensor, in ascending order for each of `count` outputs from `x` on, and which of
    these they are of: taps of single ones, those that all of them read, again those of single ones."""
    ranges = [tap_range(f, window, extent_out, f.add(x, t)) for t in range(count)]
    first = ranges[0][0]  # later outputs begin and end at lower taps
    last = f.maximum(first, ranges[-1][1])
    before = [(lo, f.minimum(first, hi), range(t, t + 1)) for t, (lo, hi) in enumerate(ranges)]
    behind = [(last, hi, range(t, t + 1)) for t, (_, hi) in enumerate(ranges)]
    return [*before, (first, last, range(count)), *behind]


def walked_taps(
    f: FunctionEmitter, window: RowWindow, extent_out: int, x: Index, count: int
) -> Iterator[tuple[Index, Index, tuple[int | None, ...]]]:
    """Loops over the taps of a row that `count` outputs from `x` on read, one of a transposed convolution: yields the
    tap, what the first output reads, and from there on what each of them does, None where that is nothing."""
    if window.transposed:
        with live_taps(f, window, extent_out, x) as (tap, index):
            yield tap, index, (0,)
        return
    for lo, hi, live in shared_taps(f, window, extent_out, x, count):
        offsets = tuple(t * window.stride if t in live else None for t in range(count))
        with f.loop(lo, hi) as tap:
            yield tap, f.add(first_input(f, window, x), f.mul(tap, window.dilation)), offsets


def walked_tiles(f: FunctionEmitter, window: RowWindow, x: Index, end: Index, most: int) -> Iterator[tuple[Index, int]]:
    """Loops over the outputs [x, end) of a row whose taps are walked: yields the first of `most` that lie side by side,
    or of transposed convolutions of one, and how many they are; then those that are left."""
    count = 1 if window.transposed else most
    rest = f.add(x, f.mul(f.div(f.sub(end, x), count), count)) if count > 1 else x
    if count > 1:
        with f.loop(x, rest, count) as pixel:
            yield pixel, count
    with f.loop(rest, end) as pixel:
        yield pixel, 1


def _inside(f: FunctionEmitter, index: Index, extent: int, rest: Index) -> ir.Value:
    """0 ≤ index < extent and rest == 0."""
    ok = f.b.icmp_unsigned("<", f.value(index), f.value(extent))
    return f.b.and_(ok, f.b.icmp_signed("==", f.value(rest), I64(0)))
