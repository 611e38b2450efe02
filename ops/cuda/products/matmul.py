"""Matrix products (matmul.cuh): dimensions that only `a` has are folded into its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from brickrt.ops.cuda.kernel import Kernel, computes
from brickrt.ops.cuda.operand import VECTOR
from brickrt.ops.cuda.printing.epilogue import HEADERS, EpilogueText
from brickrt.ops.cuda.printing.functions import device_function
from brickrt.ops.cuda.printing.traits import choose_text, constants_text
from brickrt.ops.cuda.printing.types import ctype
from brickrt.ops.cuda.products.block_tile import Core, choose_core
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import is_floating

MOST_FOLDED = 4  # dimensions: the words of a row's index


@computes(MatMul)
@dataclass(frozen=True)
class MatMulKernel(Kernel):
    """A matrix product per cell of the outer dimensions of the output."""

    op: MatMul

    headers: ClassVar[tuple[str, ...]] = ("matmul.cuh", *HEADERS)

    @property
    def rank(self) -> int:
        """Dimensions of the output."""
        return self.out.type.rank

    @property
    def outer(self) -> int:
        """The number of outer dimensions, with a product for each cell; all batch dimensions where `b` has any."""
        batched = math.prod(self.ins[1].shape[:-2]) > 1
        return self.rank - 2 if batched else max(self.rank - 1 - MOST_FOLDED, 0)

    @property
    def depth(self) -> int:
        """Elements that each output sums."""
        return self.ins[0].shape[-1]

    @property
    def columns(self) -> int:
        """Columns of `b` and of the output."""
        return self.out.shape[-1]

    @property
    def product(self) -> tuple[int, int, int]:
        """Rows, columns and depth of one of the products of the largest box."""
        e = self.largest or self.out.shape
        return math.prod(e[self.outer : -1]), e[-1], self.depth

    @property
    def products(self) -> int:
        """How many products the largest box is: one per cell of the outer dimensions."""
        return math.prod((self.largest or self.out.shape)[: self.outer])

    @property
    def all_columns(self) -> int:
        """Columns of all products of a brick that has all columns: each reads the second factor again, or its own."""
        return self.products * self.columns

    @cached_property
    def core(self) -> Core:
        """The tile for the largest box."""
        together = self.depth if self.ins[0].shared else 0
        return choose_core(self.ins[0].dtype, self.precision, *self.product, most=self.most_shared, together=together)

    @cached_property
    def epilogue(self) -> EpilogueText:
        """Text of bias, epilogue and store."""
        op, rest = self.op, slice(2, None)
        return EpilogueText(
            op.epilogue,
            self.ins[0].dtype,
            op.bias,
            self.ins[rest],
            self.packed[rest],
            self.out,
            axis=self.rank - 1,
            columns=self.columns,
        )

    @property
    def shared(self) -> int:
        """As much as the tile takes."""
        return self.core.shared

    @property
    def padded_depth(self) -> int:
        """The depth of packed `b`, up to whole pieces."""
        return -(-self.depth // self.core.together) * self.core.together

    @property
    def padded_columns(self) -> int:
        """Columns of packed `b`, up to whole vectors of words."""
        whole = max(VECTOR // self.core.word, 1)
        return -(-self.columns // whole) * whole

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """`b` [batch…, K, N] → [batch…, K / together, N, together], zeros for padding."""
        if i != 1:
            return np.ascontiguousarray(array)
        full = np.zeros((*array.shape[:-1], self.padded_columns), array.dtype)
        full[..., : self.columns] = array
        return self.core.pack(full)

    def along_output(self, i: int) -> list[int]:
        """Strides of `a` or `b` along the dimensions of the output but its columns, then along its own last one."""
        o = self.ins[i]
        strides = list(o.broadcast_strides(o.rank))
        if i == 1 and self.packed[1]:
            matrix = self.padded_depth * self.padded_columns
            batch = o.shape[:-2]
            steps = [math.prod(batch[k + 1 :]) * matrix for k in range(len(batch))]
            strides = [0 if e == 1 else step for e, step in zip(batch, steps)] + [0, 1]
        if i == 1:
            strides[-2] = 0
        return [0] * (self.rank - o.type.rank) + strides[:-1] + [o.strides[-1]]

    def copied_together(self) -> dict[str, int]:
        """How elements are copied to shared memory: one by one, in pairs or in vectors, along rows or columns."""
        a, b = self.ins[:2]
        width = VECTOR // a.dtype.itemsize
        wide = is_floating(a.dtype)
        rows_of_a = wide and a.strides[-1] == 1 and a.vector >= width and self.depth % width == 0
        rows_of_b = wide and b.strides[-1] == 1 and b.vector >= width and self.columns % width == 0
        columns_of_b = self.core.warps and b.strides[-2] == 1 and b.vector >= width and self.depth % width == 0
        packed, two = self.packed[1], self.core.per_word == 2
        down = not packed and b.strides[-1] != 1
        return {
            "A_VECTOR": width if rows_of_a else 1,
            "B_VECTOR": int(wide if packed else columns_of_b if down else rows_of_b and not two),
            "B_PAIRS": int(not packed and rows_of_b and two),
            "B_DOWN": int(down),
        }

    def emit(self, name: str) -> str:
        """Traits for matmul.cuh, and a function that hands them to its template."""
        constants = {
            "OUTER": self.outer,
            "FOLDED": self.rank - 1 - self.outer,
            "DEPTH": self.depth,
            "PADDED_DEPTH": self.padded_depth,
            "COLUMNS": self.columns,
            "PADDED_COLUMNS": self.padded_columns,
            "TOGETHER": self.core.together,
            "PACKED": int(self.packed[1]),
            "WIDTH": self.epilogue.width,
            "ROWS_INNER": int(self.epilogue.scattered),
            **self.copied_together(),
        }
        strides = "".join(choose_text("long long", key, self.along_output(i)) for i, key in enumerate("ab"))
        traits = (
            f"struct {name}_matmul {{\nusing T = {ctype(self.ins[0].dtype)};\n{constants_text(constants)}"
            f"static constexpr long long DEPTH_STRIDE = {self.ins[1].strides[-2]};\n"
            f"{strides}{self.epilogue.emit()}}};\n"
        )
        call = f"    brick::matmul<{name}_matmul, {self.core.text()}>(s, at, shared);"
        return traits + device_function(name, call)
