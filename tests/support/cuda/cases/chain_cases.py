"""Chains of operators on pixels, with inputs: halves of the blocks of restoration networks and the like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from brickrt.ops.expr import Expr, apply, arg, cast, const
from brickrt.ops.operators.chains.pixel_chain import Link, PixelChain
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.ops.types import TensorType

F32 = np.dtype(np.float32)


@dataclass
class ChainDraft:
    """A chain in the making on pixels of one type, and its inputs: arrays, and which of them are constants."""

    dtype: np.dtype
    pixels: tuple[int, ...]  # batch, spatial…
    arrays: list[np.ndarray] = field(default_factory=list)
    constant: list[bool] = field(default_factory=list)
    links: list[tuple[Any, list[int]]] = field(default_factory=list)  # results are negative: −1 is the first link's
    seed: int = 0

    def given(self, channels: int, dtype: Any = None) -> int:
        """An input with pixels."""
        return self._input((self.pixels[0], channels, *self.pixels[1:]), dtype or self.dtype, False)

    def factors(self, channels: int, images: int) -> int:
        """An input with a value for each channel."""
        return self._input((images, channels, *(1 for _ in self.pixels[1:])), self.dtype, False)

    def _input(self, shape: Sequence[int], dtype: Any, constant: bool, scale: float = 1.0) -> int:
        self.seed += 1
        values = np.random.default_rng(self.seed).standard_normal(shape) * scale
        self.arrays.append(values.astype(dtype))
        self.constant.append(constant)
        return len(self.arrays) - 1

    def _link(self, op: Any, reads: Sequence[int]) -> int:
        self.links.append((op, list(reads)))
        return -len(self.links)

    def conv(
        self,
        x: int,
        channels: int,
        columns: int,
        epilogue: Expr | None = None,
        extras: Sequence[int] = (),
        parts: int = 1,
        bias: bool = True,
        scales: int | None = None,
    ) -> int:
        """A 1×1 convolution, maybe of scaled channels."""
        rank = len(self.pixels) - 1
        w = self._input((columns * parts, channels, *(1,) * rank), self.dtype, True, channels**-0.5)
        more = [self._input((columns * parts,), self.dtype, True)] if bias else []
        zeros, ones = (0,) * rank, (1,) * rank
        op = Conv(ones, ones, ones, zeros, zeros, bias=bias, epilogue=epilogue, gate_parts=parts)
        if scales is not None:
            op, more = replace(op, channel_scaled=True), [*more, scales]
        return self._link(op, [x, w, *more, *extras])

    def norm(self, x: int, channels: int, dtype: Any = None) -> int:
        """A norm over channels, with scale and shift, in float32."""
        scale, shift = (self._input((1, channels, *(1 for _ in self.pixels[1:])), self.dtype, True) for _ in range(2))
        own = dtype or self.dtype
        x32, mean, spread = cast(arg(0, own), F32), arg(3, F32), arg(4, F32)
        centred = apply("sub", x32, mean)
        each = const(float(np.float32(1 / channels)), F32)
        eps = const(float(np.float32(1e-6)), F32)
        deviation = apply("reciprocal", apply("sqrt", apply("add", apply("mul", arg(0, F32), each), eps)))
        steps = (
            Step("sum", x32, apply("mul", arg(0, F32), each)),
            Step("sum", apply("mul", centred, centred), deviation),
        )
        scaled = apply("mul", apply("mul", centred, spread), cast(arg(1, self.dtype), F32))
        expr = cast(apply("add", scaled, cast(arg(2, self.dtype), F32)), self.dtype)
        return self._link(Rowwise((1,), steps, expr), [x, scale, shift])

    def map(self, expr: Expr, *reads: int) -> int:
        """An elementwise operator."""
        return self._link(Map(expr), reads)

    @property
    def op(self) -> PixelChain:
        """The chain; its result is the last link's."""
        n = len(self.arrays)
        links = tuple(Link(op, tuple(k if k >= 0 else n - k - 1 for k in reads)) for op, reads in self.links)
        return PixelChain(links, n)

    def types(self) -> list[TensorType]:
        """Types of the inputs."""
        return [TensorType(a.shape, a.dtype) for a in self.arrays]


def second_half(dtype: Any, pixels: tuple[int, ...], c: int = 32) -> ChainDraft:
    """NAFNet's second half of a block: scaled channels, a product with a residual sum in float32, a norm, a gate, and a
    product with another sum."""
    draft = ChainDraft(np.dtype(dtype), pixels)
    y, s, x = draft.given(c), draft.factors(c, pixels[0]), draft.given(c, F32)
    summed = draft.conv(y, c, c, apply("add", cast(arg(0, dtype), F32), arg(1, F32)), [x], scales=s)
    normed = draft.norm(summed, c, F32)
    gate = cast(apply("mul", cast(arg(0, dtype), F32), cast(arg(1, dtype), F32)), dtype)
    gated = draft.conv(normed, c, c, gate, parts=2)
    draft.conv(gated, c, c, apply("add", cast(arg(0, dtype), F32), arg(1, F32)), [summed])
    return draft


def first_half(dtype: Any, pixels: tuple[int, ...], c: int = 32, to: int = 64) -> ChainDraft:
    """A norm and a product."""
    draft = ChainDraft(np.dtype(dtype), pixels)
    draft.conv(draft.norm(draft.given(c), c), c, to, bias=False)
    return draft
