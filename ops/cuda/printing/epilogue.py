"""Text of what follows a product of matrices: bias, epilogue and store, for runs of columns of the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.cuda.operand import VECTOR, Operand, dense
from brickrt.ops.cuda.printing.expressions import print_expr
from brickrt.ops.cuda.printing.types import compute_ctype, ctype
from brickrt.ops.expr import Expr

HEADERS = ("math.cuh", "vectors.cuh")
FIRST = 3  # after the output and the two factors
WIDEST = 8  # columns that one thread finishes at once; tiles begin at multiples of it


def offset_text(strides: Sequence[int], lead: int = 0) -> str:
    """The offset, in elements, at the logical index `i` of the output; its first `lead` entries do not count."""
    terms = [f"(long long)i[{lead + k}] * {s}" for k, s in enumerate(strides) if s]
    return " + ".join(terms) or "0"


@dataclass(frozen=True)
class EpilogueText:
    """The member function `finish` of a product's traits.

    `operands` are the bias, if there is one, then the extra operands; the first of them is `at[FIRST]`. `axis` of the
    output are the columns, which come in groups of `columns`. The product has `parts` columns for each column of the
    output, as far apart as the output is wide.
    """

    expr: Expr | None
    dtype: np.dtype  # of the product
    bias: bool
    operands: tuple[Operand, ...]
    packed: tuple[bool, ...]
    out: Operand
    axis: int
    columns: int
    most: int = WIDEST  # columns finished together
    parts: int = 1

    @property
    def placed(self) -> list[tuple[Operand, tuple[int, ...]]]:
        """The operands (constants as `pack` makes them) and their strides along the dimensions of the output."""
        rank, result = self.out.type.rank, []
        for k, o in enumerate(self.operands):
            o = dense(o.type) if self.packed[k] else o
            lead = self.axis if self.bias and k == 0 else rank - o.type.rank
            after = rank - lead - o.type.rank
            result.append((o, (0,) * lead + o.broadcast_strides(o.rank) + (0,) * after))
        return result

    @property
    def width(self) -> int:
        """Columns that a thread finishes together: a vector of the output."""
        return 1 if self.scattered else min(self.out.vector, self.most)

    @property
    def scattered(self) -> bool:
        """Whether neighbouring columns are not neighbours in memory."""
        return self.out.strides[self.axis] != 1

    def emit(self) -> str:
        """`finish(at, i, a, b, sum)`: stores columns [a, b) of the WIDTH that follow logical index `i`.

        `sum` holds WIDTH values for each part.
        """
        kind, out = compute_ctype(self.dtype), self.out
        loads, names = self._sums()
        for k, (o, strides) in list(enumerate(self.placed))[self.bias :]:
            loads.append(self._load(f"x{k}", k, o, strides, offset_text(strides)))
            names.append(f"const {compute_ctype(o.dtype)} o{len(names)} = x{k}[w];")
        operands = [f"o{k}" for k in range(len(names))]
        statements, value = ("", "o0") if self.expr is None else print_expr(self.expr, operands)
        body = "\n".join([*loads, f"{compute_ctype(out.dtype)} v[WIDTH];", "#pragma unroll"])
        return (
            f"static BRICK_DEVICE void finish(char* const* at, const int* i, int a, int b, const {kind}* sum) {{\n"
            f"{body}\nfor (int w = 0; w < WIDTH; ++w) {{\n"
            + "\n".join([*names, statements, f"v[w] = {value};"])
            + f"\n}}\nbrick::put<{out.strides[self.axis]}, {self._aligned(out)}>("
            f"reinterpret_cast<{ctype(out.dtype)}*>(at[0]) + {offset_text(out.strides)}, a, b, v);\n}}\n"
        )

    def _aligned(self, operand: Operand) -> str:
        """Whether runs of `width` columns begin at multiples of the operand's vectors."""
        vector = min(self.width, VECTOR // operand.dtype.itemsize)
        channels = self.out.shape[self.axis]
        whole = (self.columns == channels and self.parts == 1) or math.gcd(self.columns, channels) % self.width == 0
        return "true" if whole and operand.vector >= vector else "false"

    def _load(self, name: str, k: int, operand: Operand, strides: Sequence[int], offset: str) -> str:
        """Declares `name` and loads a run of operand k into it."""
        place = f"reinterpret_cast<const {ctype(operand.dtype)}*>(at[{FIRST + k}]) + {offset}"
        how = f"WIDTH, {strides[self.axis]}, {self._aligned(operand)}"
        return f"{compute_ctype(operand.dtype)} {name}[WIDTH] = {{}};\nbrick::fetch<{how}>({place}, a, b, {name});"

    def _sums(self) -> tuple[list[str], list[str]]:
        """Loads of the biases, and declarations of the parts of the product with their biases added."""
        kind, loads, names = compute_ctype(self.dtype), [], []
        for part in range(self.parts):
            value = f"sum[{part} * WIDTH + w]"
            if self.bias:
                (o, strides), shift = self.placed[0], part * self.out.shape[self.axis]
                loads.append(self._load(f"b{part}", 0, o, strides, f"{offset_text(strides)} + {shift}"))
                value = f"({kind})({value} + b{part}[w])"
            names.append(f"const {kind} o{part} = {value};")
        return loads, names
