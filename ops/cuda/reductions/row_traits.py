"""Text of the traits that rows.cuh takes: where operands lie, and what is computed of their elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from brickrt.ops.cuda.operand import Operand
from brickrt.ops.cuda.printing.expressions import print_expr
from brickrt.ops.cuda.printing.functions import function_text
from brickrt.ops.cuda.printing.traits import bool_text, constants_text, table_text
from brickrt.ops.cuda.printing.types import compute_ctype, ctype
from brickrt.ops.cuda.reductions.rows import RowLayout, Sharing
from brickrt.ops.expr import Arg, Expr, used_operands
from brickrt.ops.operators.rowwise import Step

COMBINE = {"sum": "Sum", "prod": "Product", "max": "Greatest", "min": "Smallest"}


@dataclass(frozen=True)
class RowTraits:
    """A struct for rows.cuh.

    `expr`, if given, makes an element of the output of each element of the inputs and the results; else the output is
    the result of the last step. `held` inputs are kept between sweeps; `axes` are the dimensions of the output that
    number rows.
    """

    rows: RowLayout
    sharing: Sharing
    ins: Sequence[Operand]
    out: Operand
    steps: Sequence[Step]
    expr: Expr | None
    held: Sequence[int]
    axes: Sequence[int]

    @property
    def cache_bytes(self) -> int:
        """Bytes of shared memory that the held inputs of a row take."""
        return 4 * held_words(self.ins, self.held) * self.rows.count * self.rows.vector

    def text(self, name: str) -> str:
        """The whole struct."""
        parts = [
            self._constants(),
            self._fields(),
            self._seek(),
            self._offsets(),
            self._fetch(),
            *(self._step(k, step) for k, step in enumerate(self.steps)),
            self._write_rows() if self.expr is None else self._write_elements(self.expr),
        ]
        return f"struct {name} : brick::RowState {{\n{''.join(parts)}}};\n"

    def _constants(self) -> str:
        rows, sharing = self.rows, self.sharing
        constants = {
            "V": rows.vector,
            "COUNT": rows.count,
            "RUN": 1 if rows.across else rows.runs[-1].extent,
            "RANK": self.out.rank,
            "KEPT": len(rows.kept),
            "STEPS": len(self.steps),
            "LANES": sharing.lanes,
            "REGISTERS": sharing.registers,
            "ACROSS": rows.across,
            "CACHED": sharing.cached,
            "PER_ROW": self.expr is None,
        }
        return constants_text(constants) + table_text("int", "axis", [*self.axes, 0])

    def _fields(self) -> str:
        """Pointers to the row, results of steps, and what is held of a vector."""
        width = self.rows.vector if self.rows.across else 1
        pointers = "".join(f"const {ctype(t.dtype)}* p{k};\n" for k, t in enumerate(self.ins))
        results = "".join(f"{compute_ctype(step.dtype)} r{j}[{width}];\n" for j, step in enumerate(self.steps))
        held = "".join(f"{compute_ctype(self.ins[k].dtype)} x{k}[V];\n" for k in self.held)
        return f"{pointers}{ctype(self.out.dtype)}* y;\n{results}struct Held {{\n{held}}};\n"

    def _seek(self) -> str:
        lines = [
            f"p{k} = reinterpret_cast<const {ctype(t.dtype)}*>(at[{1 + k}]){self._place(k)};"
            for k, t in enumerate(self.ins)
        ]
        lines.append(f"y = reinterpret_cast<{ctype(self.out.dtype)}*>(at[0]){self._place(len(self.ins))};")
        return function_text("void seek(char* const* at, const int* c)", lines)

    def _place(self, operand: int) -> str:
        strides = self.rows.strides[operand]
        terms = ((f"c[{n}]", strides[d]) for n, d in enumerate(self.rows.kept))
        return "".join(f" + (long long){index} * {stride}" for index, stride in terms if stride)

    def _offsets(self) -> str:
        """Per operand, where vector i of the row begins."""
        return "".join(self._offset(k) for k in range(len(self.ins) + 1))

    def _offset(self, operand: int) -> str:
        rows = self.rows
        terms = [
            f"(long long)({self._index(n)}) * {run.strides[operand]}"
            for n, run in enumerate(rows.runs)
            if run.strides[operand] and run.extent > 1
        ]
        return f"static BRICK_DEVICE long long offset{operand}(int i) {{ return {' + '.join(terms) or '0'}; }}\n"

    def _index(self, number: int) -> str:
        """The index in a run of dimensions at which vector i begins."""
        rows = self.rows
        last = number == len(rows.runs) - 1
        inside = 1 if last else math.prod(run.extent for run in rows.runs[number + 1 : -1]) * rows.vectors
        text = f"i / {inside}" if inside > 1 else "i"
        if number > 0:
            text = f"{text} % {rows.vectors if last else rows.runs[number].extent}"
        return f"{text} * V" if last and not rows.across else text

    def _fetch(self) -> str:
        lines = [self._load(k, f"held.x{k}") for k in self.held]
        return function_text("void fetch(int i, int a, int b, Held& held) const", lines)

    def _load(self, operand: int, target: str) -> str:
        t, stride = self.ins[operand], self.rows.across_strides()[operand]
        aligned = bool_text(self._aligned(t, stride))
        return f"brick::fetch<V, {stride}, {aligned}>(p{operand} + offset{operand}(i), a, b, {target});"

    def _aligned(self, t: Operand, stride: int) -> bool:
        return stride == 1 and t.align >= min(self.rows.vector * t.dtype.itemsize, 16)

    def _operands(self, exprs: Iterable[Expr], steps: int) -> tuple[list[str], list[str]]:
        """Loads of the operands that expressions use and that are not held; names of all operands' elements v."""
        used = sorted({k for e in exprs for k in used_operands(e)})
        loads = [
            f"{compute_ctype(self.ins[k].dtype)} x{k}[V] = {{}};\n{self._load(k, f'x{k}')}"
            for k in used
            if k < len(self.ins) and k not in self.held
        ]
        names = [f"held.x{k}[v]" if k in self.held else f"x{k}[v]" for k in range(len(self.ins))]
        width = "v" if self.rows.across else "0"
        return loads, [*names, *(f"r{j}[{width}]" for j in range(steps))]

    def _step(self, number: int, step: Step) -> str:
        kind = compute_ctype(step.pre.dtype)
        loads, names = self._operands([step.pre], number)
        terms = function_text(
            f"void terms(brick::Number<{number}>, const Held& held, int i, int a, int b, {kind} (&t)[V]) const",
            [*loads, *_each(step.pre, names, "t[v]")],
        )
        post = Arg(step.pre.dtype, 0) if step.post is None else step.post
        statements, value = print_expr(post, ["value"])
        finish = function_text(
            f"void finish(brick::Number<{number}>, int w, {kind} value)",
            [*([statements] if statements else []), f"r{number}[w] = {value};"],
        )
        combine = f"brick::{COMBINE[step.combine]}<{kind}>"
        return f"static BRICK_DEVICE {combine} combine(brick::Number<{number}>) {{ return {{}}; }}\n{terms}{finish}"

    def _write_rows(self) -> str:
        stride = self.rows.across_strides()[-1] if self.rows.across else 1
        aligned = bool_text(self._aligned(self.out, stride))
        result = f"r{len(self.steps) - 1}"
        never = "BRICK_DEVICE bool has_whole_rows(const brick::Step& s) const { return true; }\n"
        return never + function_text(
            "void write(int a, int b) const", [f"brick::put<{stride}, {aligned}>(y, a, b, {result});"]
        )

    def _write_elements(self, expr: Expr) -> str:
        loads, names = self._operands([expr], len(self.steps))
        stride, last = self.rows.across_strides()[-1], len(self.ins)
        aligned = bool_text(self._aligned(self.out, stride))
        kind = compute_ctype(expr.dtype)
        lines = [
            *loads,
            f"{kind} t[V];",
            *_each(expr, names, "t[v]"),
            f"if (whole) return brick::put<{stride}, {aligned}>(y + offset{last}(i), a, b, t);",
            f"for (int v = a; v < b; ++v)\nif (covers(i, v)) y[offset{last}(i) + v * {stride}] = "
            f"({ctype(self.out.dtype)})t[v];",
        ]
        return self._covers() + function_text("void write(const Held& held, int i, int a, int b) const", lines)

    def _covers(self) -> str:
        """Members that tell whether the box has element v of vector i, and whether it has all of each row."""
        inside, whole = [], []
        for n, run in enumerate(self.rows.runs):
            along = "" if self.rows.across or n < len(self.rows.runs) - 1 else " + v"
            for k, d in enumerate(run.dims):
                inner = math.prod(self.rows.shape[e] for e in run.dims[k + 1 :])
                index = f"({self._index(n)}{along}) / {inner} % {self.rows.shape[d]}"
                inside.append(f"{index} >= step->lo[{d}] && {index} < step->hi[{d}]")
                whole.append(f"s.lo[{d}] <= 0 && s.hi[{d}] >= {self.rows.shape[d]}")
        covers = function_text("bool covers(int i, int v) const", [f"return {' && '.join(inside) or 'true'};"])
        return covers + function_text(
            "bool has_whole_rows(const brick::Step& s) const", [f"return {' && '.join(whole) or 'true'};"]
        )


def _each(expr: Expr, names: Sequence[str], target: str) -> list[str]:
    """A loop over the elements of a vector that computes the expression."""
    statements, value = print_expr(expr, names)
    inner = f"{statements}\n" if statements else ""
    return [f"#pragma unroll\nfor (int v = 0; v < V; ++v) {{\n{inner}{target} = {value};\n}}"]


def held_words(ins: Sequence[Operand], held: Sequence[int]) -> int:
    """Words of 4 bytes that an element of all held inputs takes, in the type it is computed in."""
    return len(held) * max((2 if ins[k].dtype.itemsize == 8 else 1 for k in held), default=0)
