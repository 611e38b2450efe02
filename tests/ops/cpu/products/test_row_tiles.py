"""Register tiles: every pixel in one of them, every tap that meets the tensor in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.cpu.emit.sizes import Size, SizeTable
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.products.row_tiles import FEW_SUMS, RowWindow, choose_tile, sizes, tile_runs
from tests.support.cpu.formulas import value_of


def output_extent(w: RowWindow) -> int:
    """The largest output with pads at the end like those in front, at least one pixel."""
    span = w.dilation * (w.kernel - 1) + 1
    if w.transposed:
        return max(1, w.stride * (w.extent - 1) + span - w.pad)
    return max(1, (w.extent + 2 * w.pad - span) // w.stride + 1)


@st.composite
def rows(draw):
    """A window, and a part [lo, hi) of its output."""
    kind = st.integers
    w = RowWindow(
        draw(kind(1, 40)), draw(kind(1, 6)), draw(kind(1, 4)), draw(kind(1, 5)), draw(kind(0, 9)), draw(st.booleans())
    )
    extent = output_extent(w)
    lo = draw(kind(0, extent - 1))
    return w, lo, draw(kind(lo + 1, extent))


def taps_by_definition(w: RowWindow, x: int) -> dict[int, int]:
    """Tap → input index that output pixel x reads, those outside the tensor left out."""
    found = {}
    for k in range(w.kernel):
        if w.transposed:
            index, rest = divmod(x + w.pad - k * w.dilation, w.stride)
        else:
            index, rest = x * w.stride - w.pad + k * w.dilation, 0
        if rest == 0 and 0 <= index < w.extent:
            found[k] = index
    return found


def taps_of_tiles(w: RowWindow, lo: int, hi: int, most: int, runs=None) -> dict[int, dict[int, int]]:
    """Output pixel → tap → input index, as the runs of tiles have it."""
    found: dict[int, dict[int, int]] = {}
    for run in tile_runs(w, w.shape_class(lo, hi), most) if runs is None else runs:
        assert 1 <= run.tile.count <= most
        for r in range(run.repeat):
            for t in range(run.tile.count):
                x = lo + run.start + r * run.out_step + t * run.tile.step
                assert x not in found, "a pixel in two tiles"
                shift = w.base(lo) + run.in_start + r * run.in_step
                found[x] = {k: rels[t] + shift for k, rels in enumerate(run.tile.taps) if rels[t] is not None}
    return found


@settings(max_examples=200, deadline=None)
@given(rows())
def test_shares_that_outputs_read(case):
    w, lo, hi = case
    found = [] if w.transposed else [taps_by_definition(w, x) for x in range(lo, hi)]
    inputs, taps = {i for each in found for i in each.values()}, {k for each in found for k in each}
    assert w.transposed or w.read(lo, hi) == (len(inputs) / w.extent, len(taps) / w.kernel)


@settings(max_examples=400, deadline=None)
@given(rows(), st.integers(1, 24))
def test_every_pixel_once_with_all_its_taps(row, most):
    w, lo, hi = row
    assert taps_of_tiles(w, lo, hi, most) == {x: taps_by_definition(w, x) for x in range(lo, hi)}


@settings(max_examples=300, deadline=None)
@given(rows(), st.integers(1, 12), st.integers(0, 60))
def test_runs_for_a_width_are_good_for_others(row, most, more):
    """Runs whose width is a size: for all widths that give the same answers, where edges lie as they do here."""
    w, lo, hi = row
    (width, *edges), table = w.shape_class(lo, hi), SizeTable()
    runs = tile_runs(w, (table.number(width), *edges), most)
    wider = replace(w, extent=w.extent + more * w.stride if not w.transposed else w.extent + more)
    end = hi + (more if not w.transposed else more * w.stride)
    fits = all(value_of(formula, [end - lo]) == answer for formula, answer in table.answers.items())
    if not fits or wider.shape_class(lo, end)[1:] != tuple(edges):
        end, wider = hi, w

    def number(size: Size | int) -> int:
        return value_of(size.formula, [end - lo]) if isinstance(size, Size) else size

    known = [replace(run, **{k: number(getattr(run, k)) for k in ("start", "in_start", "repeat")}) for run in runs]
    assert taps_of_tiles(wider, lo, end, most, known) == {x: taps_by_definition(wider, x) for x in range(lo, end)}


@settings(max_examples=200, deadline=None)
@given(rows(), st.integers(1, 24))
def test_runs_of_taps_are_the_taps(row, most):
    w, lo, hi = row
    for run in tile_runs(w, w.shape_class(lo, hi), most):
        found = {
            part.first + i * part.step: tuple(None if r is None else r + i * part.advance for r in part.rels)
            for part in run.tile.tap_runs()
            for i in range(part.count)
        }
        assert found == {k: rels for k, rels in enumerate(run.tile.taps) if set(rels) != {None}}


def test_taps_gather_into_runs():
    """Seven taps, three pixels of padding: pixel 0 lacks taps 0 to 2, pixel 1 tap 0; inside they are one run."""
    w = RowWindow(64, 7, 2, 1, 3)
    edge, inner = (run.tile.tap_runs() for run in tile_runs(w, w.shape_class(0, 24), 8)[:2])
    assert [(part.first, part.count, part.advance) for part in edge] == [(0, 1, 0), (1, 2, 1), (3, 4, 1)]
    assert [(part.first, part.count, part.advance) for part in inner] == [(0, 7, 1)]


@settings(max_examples=200, deadline=None)
@given(rows(), st.data())
def test_relative_counts_from_base(row, data):
    w, lo, hi = row
    p, k = data.draw(st.integers(0, hi - lo - 1)), data.draw(st.integers(0, w.kernel - 1))
    phase = (lo + w.pad) % w.stride if w.transposed else 0
    spread = lo + p + w.pad - k * w.dilation
    if w.transposed:
        expected = None if spread % w.stride else spread // w.stride
    else:
        expected = (lo + p) * w.stride - w.pad + k * w.dilation
    relative = w.relative(p, k, phase)
    assert (None if relative is None else relative + w.base(lo)) == expected


@settings(max_examples=100, deadline=None)
@given(rows(), st.integers(1, 12))
def test_parts_of_one_class_have_the_same_tiles(row, width):
    """Parts of equal class read the same taps, counted from where each begins: one kernel serves them all."""
    w, _, hi = row
    seen: dict[tuple, list] = {}
    for lo in range(hi - width + 1):
        taps = taps_of_tiles(w, lo, lo + width, 8)
        mine = [{k: i - w.base(lo) for k, i in taps[lo + p].items()} for p in range(width)]
        assert seen.setdefault(w.shape_class(lo, lo + width), mine) == mine


def test_inner_bricks_of_a_row_are_one_class():
    """64 pixels, 3 taps:  |x......x|x......x| … |x......x|   only the first and the last meet an edge"""
    w = RowWindow(64, 3, 1, 1, 1)
    classes = [w.shape_class(lo, lo + 8) for lo in range(0, 64, 8)]
    assert len(set(classes)) == 3
    assert len(set(classes[1:-1])) == 1


def test_a_row_is_an_edge_a_long_run_and_an_edge():
    """3 taps over 64 pixels in tiles of 8: tiles 1 to 6 are equal."""
    runs = tile_runs(RowWindow(64, 3, 1, 1, 1), RowWindow(64, 3, 1, 1, 1).shape_class(0, 64), 8)
    assert [run.repeat for run in runs] == [1, 6, 1]
    assert [(run.start, run.tile.count, run.out_step, run.in_step) for run in runs[:2]] == [(0, 8, 8, 8), (8, 8, 8, 8)]


def test_an_empty_row_has_no_tiles():
    w = RowWindow(5, 3, 1, 1, 1)
    assert tile_runs(w, w.shape_class(2, 2), 8) == []


@given(st.integers(1, 600), st.integers(1, 24))
def test_sizes_are_even(pixels, most):
    parts = sizes(pixels, most)
    assert sum(parts) == pixels
    assert max(parts) <= most
    assert len(parts) == -(-pixels // most)
    assert len(set(parts[:-1])) <= 1


@given(
    st.integers(1, 512),
    st.integers(1, 64),
    st.integers(0, 16),
    st.sampled_from([(16, 32), (8, 16), (4, 32), (4, 16), (16, 16)]),
)
def test_tiles_fit_the_registers(width, blocks, align, isa):
    ob, most = choose_tile(width, blocks, align, Isa(*isa))
    assert 1 <= ob <= blocks
    assert most >= 1
    assert ob * most + ob + 1 <= isa[1]
    assert align == 0 or align % ob == 0


@pytest.mark.parametrize(("registers", "least"), [(32, 20), (16, 8)])
def test_large_layers_keep_the_registers_busy(registers, least):
    ob, most = choose_tile(56, 16, 0, Isa(16, registers))
    assert ob * most >= least


@pytest.mark.parametrize(("width", "blocks", "expected"), [(196, 24, 1), (49, 6, 1), (7, 1, 1), (4, 32, 3), (2, 32, 6)])
def test_halved_vectors_take_one_block_where_rows_are_long_enough(width, blocks, expected):
    ob, most = choose_tile(width, blocks, 0, Isa(16, 32, "znver4"))
    assert ob == expected
    assert ob * most <= FEW_SUMS
