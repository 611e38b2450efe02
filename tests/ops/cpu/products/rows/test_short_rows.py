"""Rows of any number by tiles of four lengths: all of them covered, by one code, to the values of the definition."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.emit.sizes import Size, SizeTable
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products.matmul import MatMulKernel
from brickrt.ops.cpu.products.rows.short_rows import is_short, lengths, short_runs
from brickrt.ops.cpu.sized_kernel import emit_sized, outline
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import TensorType
from tests.ops.cpu.products.test_matmul import check_product, sample
from tests.support.cpu.formulas import value_of
from tests.support.cpu.harness import AVX2, HOST


@pytest.mark.parametrize("most", [4, 5, 9, 12, 14, 24])
@pytest.mark.parametrize("double_pumped", [False, True])
def test_tiles_cover_every_row_and_nothing_else(most, double_pumped):
    table = SizeTable()
    runs = short_runs(table.number(most + 1), 2, most, double_pumped)
    assert not table.answers
    for width in range(most + 1, most * (most - 1)):

        def number(size: Size | int, width: int = width) -> int:
            return value_of(size.formula, [width]) if isinstance(size, Size) else size

        covered = [0] * width
        for run in runs:
            for r in range(number(run.repeat)):
                start = min(number(run.start) + r * run.out_step, number(run.latest))
                for pixel in range(start, start + run.tile.count):
                    covered[pixel] += 1
        assert min(covered) == 1 and sum(covered) - width < max(lengths(most)[2], 2)


def test_which_rows_are_short():
    table = SizeTable()
    shorts = [is_short(table.number(width), 14) for width in (14, 15, 181, 182)]
    assert shorts == [False, True, True, False] and not is_short(15, 14)


def product_kernel(rows: int, columns: int, constant: bool) -> MatMulKernel:
    """A kernel for all of a product of `rows` rows over 64 elements."""
    kinds = [TensorType(shape, np.dtype(np.float32)) for shape in ((rows, 64), (64, columns), (rows, columns))]
    a, b, out = map(dense, kinds)
    return MatMulKernel(MatMul(), (a, b), out, HOST, (False, constant), (0, rows, 0))


def fitting(kernel: MatMulKernel, others: list[MatMulKernel]) -> list[bool]:
    """Whether the code of a kernel is good for others, of which those in other tiles are left out."""
    _, table = emit_sized(kernel, "k")
    sizes = SizeProgram.of(table.answers, table.entries)
    alike = [outline(other) for other in others if other.tile == kernel.tile]
    assert len(alike) > 2 and all(other.text == outline(kernel).text for other in alike)
    return [sizes.table(other.numbers) is not None for other in alike]


def test_one_code_is_good_for_all_short_rows():
    kernel = product_kernel(100, 96, constant=True)
    most = kernel.tile[1]
    assert all(fitting(kernel, [product_kernel(n, 96, constant=True) for n in range(most + 1, most * (most - 1), 3)]))


def test_columns_that_fill_their_last_block_have_the_code_of_those_that_do_not():
    width = product_kernel(400, 24 * HOST.lanes, constant=False).tile[0] * HOST.lanes
    kernel = product_kernel(400, 24 * width - 1, constant=False)
    others = [product_kernel(400, n * width + extra, constant=False) for n in (24, 28, 36) for extra in (-3, 0)]
    assert all(fitting(kernel, others))


@pytest.mark.parametrize("rows", [15, 17, 37, 61])
@pytest.mark.parametrize("packed", [False, True])
def test_short_rows_are_those_of_the_definition(rows, packed):
    check_product(MatMul(), sample((2, rows, 9), (2, 9, 144)), AVX2, packed=packed)
