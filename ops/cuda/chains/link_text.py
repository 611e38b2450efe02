"""Text of one operator of a chain: what it computes of the values that a lane has of 16 pixels (chain.cuh)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from brickrt.ops.base import Op
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.cuda.printing.epilogue import offset_text
from brickrt.ops.cuda.printing.expressions import print_expr
from brickrt.ops.cuda.printing.types import ctype, is_half
from brickrt.ops.cuda.reductions.row_traits import COMBINE
from brickrt.ops.cuda.reductions.rowwise import without_kept
from brickrt.ops.expr import Arg, Expr, used_operands
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.ops.types import TensorType

BLOCK = 16  # channels that tensor cores multiply together
FOUR = 4  # of these, that a lane has together
SIDES = "for (int side = 0; side < brick::chain::SIDES; ++side)"


@dataclass(frozen=True)
class LinkOperand:
    """Where a value is: the result of a link; or operand `slot` in memory, with strides per dimension of the output. It
    has a value for each of the `pixels`, or the same for all of an image."""

    result: int | None = None
    slot: int = 0
    operand: Operand | None = None
    strides: tuple[int, ...] = ()
    pixels: bool = False

    @property
    def kept(self) -> Operand:
        """The operand of one in memory."""
        assert self.operand is not None
        return self.operand

    @property
    def aligned(self) -> str:
        """Whether a lane's four channels are loaded together."""
        return str(self.strides[1] == 1 and self.kept.vector >= FOUR).lower()

    def address(self, shift: int = 0) -> str:
        """Where channel `shift` of the pixel at `i` lies."""
        more = f" + {shift * self.strides[1]}" if shift else ""
        return f"reinterpret_cast<const {ctype(self.kept.dtype)}*>(at[{self.slot}]) + {offset_text(self.strides)}{more}"


@dataclass(frozen=True)
class LinkText:
    """Link number `j`: its result is the variable `r<j>`, of as many channels as `out` has. Its values are rounded to
    their type where it `rounds`. Of a product that is the last link it has `width` channels at a time, from block
    `first` on."""

    j: int
    op: Op
    places: tuple[LinkOperand, ...]
    out: TensorType
    rounds: bool
    width: int

    def lines(self) -> Iterator[str]:
        """All statements of the link."""
        yield f"brick::chain::Values<{self.width}> r{self.j};"
        yield "{"
        if isinstance(self.op, Conv):
            yield from self._conv(self.op)
        elif isinstance(self.op, Rowwise):
            yield from self._rowwise(self.op)
        else:
            assert isinstance(self.op, Map)
            used = {k: self.places[k] for k in used_operands(self.op.expr)}
            yield from self._each(used, {}, self._result(self.op.expr, used))
        yield "}"

    @property
    def channels(self) -> int:
        """Channels of the result."""
        return self.out.shape[1]

    # ---- operators

    def _conv(self, op: Conv) -> Iterator[str]:
        """Products of all parts, and bias and epilogue."""
        yield f"brick::chain::Values<{self.width}> y[{op.gate_parts}];"
        yield "brick::chain::clear(y);"
        yield from self._products(op)
        sums = {part: f"y[{part}]" for part in range(op.gate_parts)}
        extras = {op.gate_parts + k: place for k, place in enumerate(self.places[op.main :])}
        biases = [(self.places[2], part * self.channels) for part in sums] if op.bias else []
        expr: Expr = Arg(self.out.dtype, 0) if op.epilogue is None else op.epilogue
        used = {k: extras[k] for k in used_operands(expr) if k in extras}
        yield from self._each(used, sums, self._result(expr, [*sums, *used]), biases)

    def _products(self, op: Conv) -> Iterator[str]:
        """Adds the products to `y`: of values in registers, or of an operand in memory, which is taken piece by piece,
        and scaled by channel where the convolution says so."""
        x, w = self.places[:2]
        kind, k = ctype(w.kept.dtype), w.kept.shape[1]
        rest = f"at[{w.slot}], first, {blocks(self.channels)}"
        scales = self.places[op.main - 1] if op.channel_scaled else None
        if x.result is None:
            yield from _addresses("from", x)
            yield from self._scaling(scales)
            yield f"brick::chain::multiply_from<{kind}, {k}, {x.strides[1]}, {x.aligned}>(y, from, scale, {rest});"
            return
        value = f"r{x.result}"
        if scales is not None:
            value = "scaled"
            yield f"brick::chain::Values<{k}> scaled;"
            body = [f"scaled.at(side, block * {FOUR} + k) = o0 * o1;"]
            yield from _each(k, k, {1: scales}, {0: f"r{x.result}"}, body, first="0")
        yield f"brick::chain::multiply<{kind}>(y, {value}, {rest});"

    def _scaling(self, scales: LinkOperand | None) -> Iterator[str]:
        """`scale`: multiplies four channels with their factors, if there are any."""
        if scales is None:
            yield "const auto scale = [](int, int, float (&)[4]) {};"
            return
        if scales.result is not None:  # of images of one pixel
            factor = f"r{scales.result}.at(side, block * {FOUR} + k)"
            yield "const auto scale = [&](int side, int block, float (&four)[4]) {"
            yield f"for (int k = 0; k < {FOUR}; ++k) four[k] *= {factor};"
            yield "};"
            return
        yield from _addresses("factors", scales)
        yield "const auto scale = [&](int side, int block, float (&four)[4]) {"
        yield "float factor[4];"
        yield (
            f"brick::chain::take_four<{scales.strides[1]}, {scales.aligned}, {scales.kept.shape[1]}>"
            "(factors[side], block, factor);"
        )
        yield f"for (int k = 0; k < {FOUR}; ++k) four[k] *= factor[k];"
        yield "};"

    def _rowwise(self, op: Rowwise) -> Iterator[str]:
        """A sweep over the channels per step, and one for the result."""
        steps, expr = without_kept(op, len(self.places))
        rows = {k: p for k, p in enumerate(self.places) if p.result is not None or p.pixels}
        for k, place in rows.items():
            yield from _taken(f"x{k}", place, self.channels)
        known = {k: f"x{k}" for k in rows}
        memory = {k: p for k, p in enumerate(self.places) if k not in rows}
        for number, step in enumerate(steps):
            yield from self._step(number, step, known, memory)
        used = {k: memory[k] for k in used_operands(expr) if k in memory}
        yield from self._each(used, known, self._result(expr, [*known, *used]))

    def _step(self, number: int, step: Step, known: dict[int, str], memory: dict[int, LinkOperand]) -> Iterator[str]:
        """`m<number>[side]`: the result of a reduction over the channels of a pixel."""
        used = {k: memory[k] for k in used_operands(step.pre) if k in memory}
        operands = self._names(len(self.places) + number, len(self.places))
        statements, value = print_expr(step.pre, operands)
        combine = f"brick::{COMBINE[step.combine]}<float>"
        yield f"float m{number}[brick::chain::SIDES] = {{{combine}::start(), {combine}::start()}};"
        body = [statements, f"if (k < n) m{number}[side] = {combine}::of(m{number}[side], {value});"]
        yield from self._each(used, known, body)
        yield "#pragma unroll"
        yield f"{SIDES} {{"
        yield f"const float o0 = brick::chain::over_channels<{combine}>(m{number}[side]);"
        after, result = ("", "o0") if step.post is None else print_expr(step.post, ["o0"])
        yield after
        yield f"m{number}[side] = {result};"
        yield "}"

    # ---- elements

    def _result(self, expr: Expr, used: Sequence[int] | dict[int, LinkOperand]) -> list[str]:
        """Statements that store an element of the result; beyond the channels it is zero."""
        steps = len(self.op.steps) if isinstance(self.op, Rowwise) else 0
        inputs = len(self.places) if isinstance(self.op, Rowwise) else max([0, *used]) + 1
        statements, value = print_expr(expr, self._names(inputs + steps, inputs))
        if self.rounds and is_half(self.out.dtype):
            value = f"(float)({ctype(self.out.dtype)})({value})"
        if self.channels % BLOCK:
            value = f"k < n ? {value} : 0.0f"
        return [statements, f"r{self.j}.at(side, block * {FOUR} + k) = {value};"]

    def _names(self, count: int, inputs: int) -> list[str]:
        """Names of the operands of an expression: of a norm those behind its inputs are results of its steps."""
        return [f"o{k}" if k < inputs else f"m{k - inputs}[side]" for k in range(count)]

    def _each(
        self,
        memory: Mapping[int, LinkOperand],
        known: Mapping[int, str],
        body: Sequence[str],
        biases: Sequence[tuple[LinkOperand, int]] = (),
    ) -> Iterator[str]:
        yield from _each(self.channels, self.width, memory, known, body, biases)


def blocks(channels: int) -> int:
    """Blocks of so many channels."""
    return -(-channels // BLOCK)


def _taken(name: str, place: LinkOperand, channels: int) -> Iterator[str]:
    """Declares `name`: the values of an operand that has pixels."""
    if place.result is not None:
        yield f"const auto& {name} = r{place.result};"
        return
    yield f"brick::chain::Values<{channels}> {name};"
    yield "{"
    yield from _addresses("from", place)
    yield f"brick::chain::take<{place.strides[1]}, {place.aligned}>({name}, from);"
    yield "}"


def _addresses(name: str, place: LinkOperand) -> Iterator[str]:
    """Declares `name`: where channel 0 of the pixels of both sides lies."""
    yield f"const {ctype(place.kept.dtype)}* {name}[brick::chain::SIDES];"
    yield "#pragma unroll"
    yield f"{SIDES} {{"
    yield "const int* const i = index[side];"
    yield f"{name}[side] = {place.address()};"
    yield "}"


def _each(
    channels: int,
    width: int,
    memory: Mapping[int, LinkOperand],
    known: Mapping[int, str],
    body: Sequence[str],
    biases: Sequence[tuple[LinkOperand, int]] = (),
    first: str = "first",
) -> Iterator[str]:
    """A loop over `width` of so many channels, from block `first` on, with `o<k>` for operand k: in memory or a result,
    or `known` by the name of its values, to which biases are added."""
    results = {k: p for k, p in memory.items() if p.result is not None}
    loaded = {k: p for k, p in memory.items() if p.result is None}
    yield "#pragma unroll"
    yield f"for (int block = 0; block < {blocks(width)}; ++block) {{"
    yield f"const int n = brick::chain::there<{channels}>({first} + block);"
    yield "#pragma unroll"
    yield f"{SIDES} {{"
    yield "const int* const i = index[side];"
    for k, place in loaded.items():
        yield from _fetched(f"a{k}", place, 0, first)
    for part, (place, shift) in enumerate(biases):
        yield from _fetched(f"b{part}", place, shift, first)
    yield "#pragma unroll"
    yield f"for (int k = 0; k < {FOUR}; ++k) {{"
    yield from (f"const float o{k} = a{k}[k];" for k in loaded)
    yield from (f"const float o{k} = {_value(p, first)};" for k, p in results.items())
    for part, (k, name) in enumerate(known.items()):
        bias = f" + b{part}[k]" if biases else ""
        yield f"const float o{k} = {name}.at(side, block * {FOUR} + k){bias};"
    yield from body
    yield "}"
    yield "}"
    yield "}"


def _fetched(name: str, place: LinkOperand, shift: int, first: str) -> Iterator[str]:
    """Declares `name`: four channels of an operand in memory at the pixel of a side."""
    yield f"float {name}[{FOUR}] = {{}};"
    at = f"{place.address(shift)} + (long long)brick::chain::channel({first} + block) * {place.strides[1]}"
    yield f"brick::fetch<{FOUR}, {place.strides[1]}, {place.aligned}>({at}, 0, n, {name});"


def _value(place: LinkOperand, first: str) -> str:
    """A value of an earlier link's result."""
    return f"r{place.result}.at(side, ({first} + block) * {FOUR} + k)"
