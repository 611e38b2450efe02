"""How the lanes of a vector of outputs read an operand that broadcasts to the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, I64, PTR, Index, fill, memory_type, type_suffix, vector
from brickrt.ops.cpu.operand import Operand, dense, to_blocked
from brickrt.ops.types import TensorType


@dataclass(frozen=True)
class Access:
    """An operand as a vector of outputs sees it.

    The lanes of an output vector are adjacent channels where the output is blocked, else adjacent elements of its last
    dimension. `strides` are per output dimension, 0 where the operand broadcasts; `strides[1]` counts blocks of
    `block` channels. Adjacent lanes are `lane` elements apart. A plain operand whose channels are lanes has `channels`.
    """

    dtype: np.dtype
    strides: tuple[int, ...]
    block: int = 1
    lane: int = 0
    channels: int | None = None

    def offset(self, f: FunctionEmitter, index: Sequence[Index]) -> Index:
        """Offset of the first lane of the vector of outputs at `index`."""
        if self.block == 1:
            return f.dot(index, self.strides)
        parts = f.dot([index[0], f.div(index[1], self.block), *index[2:]], self.strides)
        channel_is_lane = self.lane == 1 or self.strides[1] == 0
        return parts if channel_is_lane else f.add(parts, f.rem(index[1], self.block))

    def load(
        self,
        f: FunctionEmitter,
        base: ir.Value,
        offset: Index,
        lanes: int,
        mask: ir.Value | None = None,
        channel: Index = 0,
        stored: tuple[Index, Index] | None = None,
    ) -> ir.Value:
        """`lanes` values, those of `mask` only.

        Where lanes are channels, `channel` is the first lane's, and a plain operand is read within the channels
        `stored` (all by default): lanes beyond repeat the nearest.
        """
        if self.lane == 0 or lanes == 1:
            return f.splat(f.load(base, offset, self.dtype), lanes)
        if self.channels is not None and (stored is not None or self.channels % lanes):
            lo, hi = stored or (0, self.channels)
            return self._load_channels(f, base, offset, lanes, f.sub(lo, channel), f.sub(hi, channel))
        if self.lane == 1:
            return f.load(base, offset, self.dtype, lanes, mask)
        if mask is None or self.channels is not None:
            return f.gather(base, offset, self.lane, self.dtype, lanes)
        return _masked_gather(f, base, offset, self.lane, self.dtype, lanes, mask)

    def _load_channels(
        self, f: FunctionEmitter, base: ir.Value, offset: Index, lanes: int, lo: Index, hi: Index
    ) -> ir.Value:
        """Lane k reads element k where lo ≤ k < hi, else the nearest of these."""
        within = (f.maximum(f.minimum(k, f.sub(hi, 1)), lo) for k in range(lanes))
        return f.collect(base, (f.add(offset, f.mul(at, self.lane)) for at in within), self.dtype, lanes)


def access(operand: Operand, out: Operand, lane_dim: int = -1) -> Access:
    """How vectors along dimension `lane_dim` of a plain output, or along the channels of a blocked one, read `operand`.

    A blocked operand of lower rank than the output can only be a constant that lies as `pack_constant` puts it.
    """
    if operand.block > 1 and len(operand.shape) < len(out.shape):
        operand = constant_operand(operand.type, out)
    missing = len(out.shape) - len(operand.shape)
    extents = (1,) * missing + operand.shape
    strides = tuple(
        0 if extent == 1 else stride for extent, stride in zip(extents, (0,) * missing + operand.strides, strict=True)
    )
    if out.block > 1:
        return _channel_access(operand, extents, strides)
    if operand.block > 1 and len(extents) == 2 and lane_dim in (-1, 1):
        return _row_access(operand, strides)
    return Access(operand.dtype, strides, operand.block, strides[lane_dim] if strides else 0)


def _channel_access(operand: Operand, extents: Sequence[int], strides: tuple[int, ...]) -> Access:
    """Lanes are channels."""
    if extents[1] == 1:
        # A lone channel is splatted, or its unspecified neighbours go to lanes that are as unspecified.
        return Access(operand.dtype, strides)
    if operand.block > 1:
        return Access(operand.dtype, strides, operand.block, lane=1)
    return Access(operand.dtype, strides, lane=strides[1], channels=extents[1])


def _row_access(operand: Operand, strides: tuple[int, ...]) -> Access:
    """[N, C] without spatial dimensions: blocks follow one another, so that channels are adjacent across them."""
    if strides[1] not in (0, operand.block):
        raise ValueError(f"blocks of channels {strides[1]} elements apart cannot be read as rows")
    return Access(operand.dtype, (strides[0], min(strides[1], 1)), lane=min(strides[1], 1))


def load_operand(
    f: FunctionEmitter,
    base: ir.Value,
    operand: Operand,
    out: Operand,
    index: Sequence[Index],
    lanes: int,
    mask: ir.Value | None = None,
) -> ir.Value:
    """The values of an operand for the `lanes` outputs from `index` on, broadcast as NumPy does.

    `index` is an index of the output: index[1] is the first of `lanes` channels where it is blocked, else index[-1]
    the first of `lanes` elements of the last dimension, of which `mask` tells those that exist.
    """
    how = access(operand, out)
    channel = index[1] if out.block > 1 else 0
    return how.load(f, base, how.offset(f, index), lanes, mask, channel)


def constant_operand(kind: TensorType, out: Operand) -> Operand:
    """How a constant that broadcasts to `out` is best packed: of full rank, and blocked if the output is."""
    shape = (1,) * (len(out.shape) - kind.rank) + kind.shape
    blocked = out.block > 1 and shape[1] > 1
    return dense(TensorType(shape, kind.dtype), out.block if blocked else 1)


def operands_in_memory(ins: Sequence[Operand], packed: Sequence[bool], out: Operand) -> list[Operand]:
    """The operands, constants that are packed as `pack_constant` puts them."""
    return [constant_operand(o.type, out) if p else o for o, p in zip(ins, packed, strict=True)]


def pack_constant(array: np.ndarray, out: Operand) -> np.ndarray:
    """The bytes that `constant_operand` describes."""
    operand = constant_operand(TensorType(array.shape, array.dtype), out)
    whole = array.reshape(operand.shape)
    return to_blocked(whole, operand.block) if operand.block > 1 else np.ascontiguousarray(whole)


def _masked_gather(
    f: FunctionEmitter, base: ir.Value, offset: Index, stride: int, dtype: np.dtype, lanes: int, mask: ir.Value
) -> ir.Value:
    start = f.b.ptrtoint(f.address(base, offset, dtype), I64)
    steps = ir.Constant(ir.VectorType(I64, lanes), [k * stride * dtype.itemsize for k in range(lanes)])
    pointers = f.b.inttoptr(f.b.add(f.splat(start, lanes), steps), ir.VectorType(PTR, lanes))
    kind = vector(memory_type(dtype), lanes)
    name = f"llvm.masked.gather.{type_suffix(kind)}.v{lanes}p0"
    got = f.intrinsic(name, kind, pointers, I32(dtype.itemsize), mask, fill(kind, 0))
    return f.widen(got, dtype, lanes)
