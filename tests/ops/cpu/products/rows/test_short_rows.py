"""Rows of any number by tiles of four lengths: all of them covered, by one code, to the values of the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.emit.sizes import Size, SizeTable
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.cpu.products.matrices.kernel import MatMulKernel
from brickrt.ops.cpu.products.row_tiles import RepeatedTiles, RowWindow
from brickrt.ops.cpu.products.rows import short_rows
from brickrt.ops.cpu.products.rows.short_rows import RowTiles, choose_length
from brickrt.ops.cpu.sized_kernel import emit_sized, outline
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.ops.cpu.products.matrices.test_matmul import check_product, sample
from tests.ops.cpu.products.test_row_tiles import output_extent, taps_by_definition
from tests.support.cpu.formulas import value_of
from tests.support.cpu.harness import AVX2, HOST, ZEN4

Taps = dict[int, int]
WINDOWS = {
    "matrix": RowWindow(1, 1, 1, 1, 0),
    "edges": RowWindow(1, 3, 1, 1, 1),
    "wide": RowWindow(1, 7, 2, 1, 3),
    "dilated": RowWindow(1, 3, 1, 2, 2),
    "even": RowWindow(1, 2, 1, 1, 1),
    "transposed": RowWindow(1, 4, 2, 1, 1, transposed=True),
}


def taps_of(w: RowWindow, runs: list[RepeatedTiles], width: int) -> list[list[Taps]]:
    """What each pixel of a row from 0 on reads by its taps, as each tile has it that covers the pixel."""

    def number(size: Size | int | None) -> int:
        return value_of(size.formula, [width]) if isinstance(size, Size) else width * 9 if size is None else size

    found: list[list[Taps]] = [[] for _ in range(width)]
    for run in runs:
        for r in range(number(run.repeat)):
            start = min(number(run.start) + r * run.out_step, number(run.latest))
            base = w.base(0) + min(number(run.in_start) + r * run.in_step, number(run.in_latest))
            for t in range(run.tile.count):
                reads = {k: rels[t] + base for k, rels in enumerate(run.tile.taps) if rels[t] is not None}
                found[start + t * run.tile.step].append(reads)
    return found


def rows_like(w: RowWindow, runs: list[RepeatedTiles], table: SizeTable, edges: Sequence[int], most: int) -> list[int]:
    """Checks the runs on all rows that they are good for, up to longer ones than short ones; gives their lengths."""
    checked = []
    for extent in range(1, (most * most + 9) * w.stride):
        other = replace(w, extent=extent)
        n = output_extent(other)
        fits = all(value_of(formula, [n]) == answer for formula, answer in table.answers.items())
        if fits and other.shape_class(0, n)[1:] == tuple(edges):
            expected = [taps_by_definition(other, x) for x in range(n)]
            for found, taps in zip(taps_of(other, runs, n), expected, strict=True):
                assert found and all(each == taps for each in found)
            checked.append(n)
    return checked


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("most", [3, 4, 5, 8, 12])
def test_tiles_cover_every_row_with_all_its_taps(kind, most):
    """A pixel may be in two tiles: then it reads the same in both."""
    for extent in (2, most, most + 2, 5 * most, most * (most - 1) + 3):
        w, table = replace(WINDOWS[kind], extent=extent), SizeTable()
        width, *edges = w.shape_class(0, output_extent(w))
        runs = RowTiles(most, 2, ZEN4 if most == 12 else HOST).runs(w, (table.number(width), *edges))
        assert width in rows_like(w, runs, table, edges, most)


@pytest.mark.parametrize(("kind", "first"), [("matrix", 15), ("edges", 36), ("even", 36)])
def test_one_code_is_good_for_all_short_rows(kind, first):
    """T = 14: from the end tiles and half a tile between them, to 14·13."""
    w, table = replace(WINDOWS[kind], extent=100), SizeTable()
    width, *edges = w.shape_class(0, output_extent(w))
    runs = RowTiles(14, 2, HOST).runs(w, (table.number(width), *edges))
    assert rows_like(w, runs, table, edges, 14) == list(range(first, 14 * 13))


@pytest.mark.parametrize("kind", ["edges", "even", "wide", "dilated"])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(("width", "lengths"), [(5, range(2, 15)), (20, range(15, 36)), (33, range(15, 36))])
def test_one_code_is_good_for_all_rows_of_one_tile_and_one_for_those_of_three(kind, twice, width, lengths):
    """T = 14, where pixels lack taps at both ends; none is in two tiles."""
    w = next(w for w in (replace(WINDOWS[kind], extent=n) for n in range(1, 99)) if output_extent(w) == width)
    table = SizeTable()
    width, *edges = w.shape_class(0, width)
    runs = RowTiles(14, 2, HOST, twice=twice).runs(w, (table.number(width), *edges))
    assert set(rows_like(w, runs, table, edges, 14)) == set(lengths)
    assert all(len(found) == 1 for found in taps_of(w, runs, width))


def conv_kernel(width: int, broad: bool) -> ConvKernel:
    """A kernel of three taps along rows of `width` pixels that lack some at both ends."""
    shapes = (1, 2 * HOST.lanes, 3, width), (HOST.lanes, 2 * HOST.lanes, 3, 3), (1, HOST.lanes, 3, width)
    lanes = HOST.lanes, 1, HOST.lanes
    x, w, out = (dense(TensorType(s, np.dtype(np.float32)), n) for s, n in zip(shapes, lanes, strict=True))
    op = Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    _, classes = ConvKernel.classify(op, (x, w), out, Boxes.whole(out.shape), HOST)
    return ConvKernel(op, (x, w), out, HOST, (False, True), classes[0], broad=broad)


@pytest.mark.parametrize("broad", [False, True])
def test_convolutions_of_one_tile_and_of_three_have_one_broad_code_each(broad):
    most = conv_kernel(20, broad).tile[1]
    for widths in (range(2, most + 1), range(most + 1, 2 * most + most // 2 + 1)):
        kernels = [k for k in (conv_kernel(n, broad) for n in widths) if k.tile[1] == most]
        _, table = emit_sized(kernels[0], "k")
        sizes = SizeProgram.of(table.answers, table.entries)
        found = [sizes.table(outline(k).numbers) is not None for k in kernels if k.tile == kernels[0].tile]
        assert len(found) > 1 and found[0] and all(found) == broad


def test_code_that_is_not_broad_has_the_tiles_of_its_row_alone():
    w, table = replace(WINDOWS["edges"], extent=9), SizeTable(broad=False)
    runs = RowTiles(14, 2, HOST).runs(w, (table.number(9), *w.shape_class(0, 9)[1:]))
    assert [(run.tile.count, run.repeat) for run in runs] == [(9, 1)]


def test_no_pixel_is_in_two_tiles_where_that_must_not_be():
    w, table = replace(WINDOWS["edges"], extent=100), SizeTable()
    runs = RowTiles(14, 2, HOST, twice=False).runs(w, (table.number(100), *w.shape_class(0, 100)[1:]))
    assert all(len(found) == 1 for found in taps_of(w, runs, 100))


@pytest.mark.parametrize("kind", ["matrix", "edges", "wide"])
def test_whole_rows_have_tiles_of_a_pixel_less_where_these_cover_them_faster(kind):
    def tiles(width: int, most: int) -> list[int]:
        w = replace(WINDOWS[kind], extent=width * WINDOWS[kind].stride)
        shape = (SizeTable(broad=False).number(width), *w.shape_class(0, width)[1:])
        runs = RowTiles(most, 1, ZEN4).runs(w, shape)
        return [run.tile.count for run in runs for _ in range(int(run.repeat))]

    found = {}
    for width in range(2, 150):
        window = replace(WINDOWS[kind], extent=width * WINDOWS[kind].stride)
        found[width] = choose_length(window, width, 1, 12, ZEN4)
        assert found[width] in (11, 12)
        whole, less = tiles(width, 12), tiles(width, 11)
        if sum(whole) == width and min(whole) >= 6:
            assert found[width] == 12  # no other code where nothing is to be gained
        if sum(whole) >= 1.1 * width and sum(less) == width and min(less) >= 6:
            assert found[width] == 11
    assert 11 in found.values() and choose_length(WINDOWS[kind], 32, 1, 3, ZEN4) == 3


@pytest.mark.parametrize(("width", "taps"), [(8000, 4096), (100, 513), (500, 3)])
def test_no_other_tiles_are_tried_where_rows_are_cut_evenly(monkeypatch, width, taps):
    monkeypatch.delattr(short_rows, "_row_cycles")  # which takes seconds for thousands of taps
    assert choose_length(RowWindow(width, taps, 1, 1, taps // 2), width, 1, 12, ZEN4) == 12


def product_kernel(rows: int, columns: int, constant: bool) -> MatMulKernel:
    """A kernel for all of a product of `rows` rows over 64 elements."""
    kinds = [TensorType(shape, np.dtype(np.float32)) for shape in ((rows, 64), (64, columns), (rows, columns))]
    a, b, out = map(dense, kinds)
    return MatMulKernel(MatMul(), (a, b), out, HOST, (False, constant), (0, rows, 0))


def fitting(kernel: MatMulKernel, others: list[MatMulKernel]) -> list[bool]:
    """Whether the code of a kernel is good for others, of which those in other tiles are left out."""
    _, table = emit_sized(replace(kernel, broad=True), "k")
    sizes = SizeProgram.of(table.answers, table.entries)
    alike = [outline(other) for other in others if other.tile == kernel.tile]
    assert len(alike) > 2 and all(other.text == outline(kernel).text for other in alike)
    return [sizes.table(other.numbers) is not None for other in alike]


def test_products_of_few_and_of_short_rows_have_one_code_each():
    kernel = product_kernel(100, 96, constant=True)
    most = kernel.tile[1]
    assert all(fitting(kernel, [product_kernel(n, 96, constant=True) for n in range(most + 1, most * (most - 1), 3)]))
    kernel = product_kernel(5, 96, constant=True)
    few = [product_kernel(n, 96, constant=True) for n in range(2, kernel.tile[1] + 1)]
    assert all(fitting(kernel, few))


def test_columns_that_fill_their_last_block_have_the_code_of_those_that_do_not():
    width = product_kernel(400, 24 * HOST.lanes, constant=False).tile[0] * HOST.lanes
    kernel = product_kernel(400, 24 * width - 1, constant=False)
    others = [product_kernel(400, n * width + extra, constant=False) for n in (24, 28, 36) for extra in (-3, 0)]
    assert all(fitting(kernel, others))


@pytest.mark.parametrize(
    ("rows", "packed"),
    [*((rows, False) for rows in (2, 3, 5, 15, 17, 37, 61)), *((rows, True) for rows in (3, 17, 61))],
)
def test_short_rows_are_those_of_the_definition(rows, packed):
    check_product(MatMul(), sample((2, rows, 9), (2, 9, 144)), AVX2, packed=packed)
