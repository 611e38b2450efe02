"""How long one of Winograd's algorithms takes a core: products, weights that are read beside them, and transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from brickrt.ops.cpu.winograd.axes import Axes, Axis
from brickrt.ops.cpu.winograd.sizes import Sizes, choose_sizes
from brickrt.plan.cost.constants import (
    GATHERED,
    GATHERED_CHANNELS,
    HELD_BESIDE,
    NEAR_TILES_OVER_L2,
    PACED_KEPT,
    PACED_KEPT_READ,
    PACED_NEAR,
    PACED_RAW_WEIGHT,
    PACED_READ,
    PACED_SPILL,
    PACED_UNHIDDEN_SHARE,
    PAIRED_RAW_WEIGHT,
    PRODUCT_SHARE,
    RAW_WEIGHT,
    STRIDED_READS,
    TRANSFORM_BYTES,
    TRANSFORM_FLOPS,
    WINOGRAD_PAIRS,
)
from brickrt.plan.cost.roofline import Amount, compute_us, either, larger, overlapped_us, read_us, smaller
from brickrt.plan.device.device_spec import DeviceSpec


@dataclass(frozen=True)
class CoreShare:
    """What a core computes of a layer: so many equal boxes, in so many different pieces of the output's channels, of a
    graph with `constants` bytes of constants; arrays, of boxes of several shapes. `raw_bytes` are those of a weight
    that is transformed for each group of tiles, or `once` for each box, or, `held`, for each piece, 0 where transformed
    weights are stored. The products are of `paired` channels, or of `integers`."""

    boxes: Amount
    pieces: Amount
    constants: int
    raw_bytes: int = 0
    once: bool = False
    held: bool = False
    paired: bool = False
    integers: bool = False

    @property
    def anew(self) -> bool:
        """Whether weights are transformed for each group of tiles."""
        return self.raw_bytes > 0 and not self.once

    def paced(self, device: DeviceSpec) -> bool:
        """Whether the time of tiles that ask for weights at an even pace is modelled as such: by vectors of 16 lanes of
        floats, on which it was fitted."""
        return device.paces_weights and not self.integers


def winograd_us(
    axes: Axes, channels: int, box: Sequence[Amount] | np.ndarray, device: DeviceSpec, share: CoreShare
) -> Amount:
    """Modelled microseconds of one core for its boxes of the output, from `channels` channels of the input: of one
    shape of box, or of many, whose extents are arrays.

    The weights of each piece of channels come once from where all constants lie, then from where those of a box do.
    """
    swept = axes.swept
    depth, *sides = (1 if axis.dim is None else box[axis.dim] for axis in axes)
    blocks_in, blocks = (-(-count // device.lanes) for count in (channels, box[1]))
    tiles = box[0] * math.prod(axis.tiles(extent) for axis, extent in zip(axes[1:], sides, strict=True))
    panel: Amount = swept.r * channels * blocks * device.lanes * 4
    t, grouped, run = _sizes(axes, tiles, depth, blocks, panel, device, share)
    register_tiles = axes.register_tiles(box[0], sides, t) * depth * _taps_per_output(swept)
    sweeps = share.boxes * -(-tiles // grouped) * -(-depth // run)
    arithmetic = share.boxes * _products_us(register_tiles, t, channels, blocks, device, share)
    times = share.pieces if share.held else share.boxes if share.once else sweeps
    made = _made_us(axes, panel, device, share) * times
    apart = made if share.paced(device) else 0.0
    group = grouped * axes.planes * device.lanes * 4  # bytes of a block of channels
    weights = _Weights.of(axes, panel, group * run * (blocks_in + blocks), device, share)
    planes_in = smaller(swept.extent, (depth - 1) * swept.stride + swept.reach)
    vectors = _vectors_read(axes, channels, blocks_in, device.lanes)
    moved = tiles * axes.planes * (planes_in * vectors + depth * blocks) * device.lanes
    held = group * axes.residues * smaller(swept.reach, planes_in) * blocks_in
    near = weights.kept <= device.l2 if share.paced(device) else held <= NEAR_TILES_OVER_L2 * device.l2
    transforms = _transform_us(moved, device, near)
    if share.paced(device):
        image = box[0] * channels * math.prod(axis.extent for axis in axes) * 4
        read = tiles * math.prod(axis.m * axis.stride for axis in axes[1:]) * planes_in * channels * 4
        transforms += PACED_READ * read_us(smaller(read, image), image, device)
    return weights.beside_us(arithmetic + made - apart, sweeps, device, share) + share.boxes * transforms + apart


def transforms_us(axes: Axes, channels: int, outputs: int, device: DeviceSpec, share: CoreShare) -> float:
    """Microseconds in which a core transforms the weights of all channels once, 0 where they are stored so."""
    return float(_made_us(axes, channels * -(-outputs // device.lanes) * device.lanes * 4, device, share))


def _made_us(axes: Axes, panel: Amount, device: DeviceSpec, share: CoreShare) -> Amount:
    """Microseconds in which a core transforms weights once, whose planes have panels of so many bytes."""
    if not share.raw_bytes:
        return 0.0
    alone = PACED_RAW_WEIGHT if share.paced(device) else RAW_WEIGHT
    each = PAIRED_RAW_WEIGHT if share.paired else alone
    return compute_us(each * axes.planes * panel / 4 / device.lanes, device, 1.0)


def _sizes(
    axes: Axes, tiles: Amount, depth: Amount, blocks: Amount, panel: Amount, device: DeviceSpec, share: CoreShare
) -> tuple[Amount, Amount, Amount]:
    """How many tiles a register tile has in the kernel of a box, how many tiles and planes of the output are computed
    between two sweeps of its weights, of which a plane is a `panel` of so many bytes."""

    registers, more = device.registers, (share.anew, share.paired, device.shares_chunks)

    def one(tiles: int, depth: int, ob: int, nbytes: int) -> Sizes:
        return choose_sizes(tiles, depth, ob, registers, nbytes, *more)

    ob, nbytes = 1 if share.paired else smaller(2, blocks), axes.planes * axes.residues * panel
    if not isinstance(tiles, np.ndarray):
        found = one(tiles, depth, ob, nbytes)
        return found.t, found.group, found.run
    boxes = (column.tolist() for column in np.broadcast_arrays(tiles, depth, ob, nbytes))
    t, group, run = np.array([(s.t, s.group, s.run) for s in map(one, *boxes)]).T
    return t, group, run


@dataclass(frozen=True)
class _Weights:
    """Bytes of the weights of a box: as they are `stored`, as tiles read them (`live`), and what a cache must hold for
    these to stay in it (`kept`)."""

    stored: Amount
    live: Amount
    kept: Amount

    @staticmethod
    def of(axes: Axes, panel: Amount, beside: Amount, device: DeviceSpec, share: CoreShare) -> _Weights:
        """Where planes have panels of so many bytes, with so many bytes of tiles `beside` them."""
        live = axes.products * panel * _taps_per_output(axes.swept) / axes.swept.r
        stored = axes.down.r * axes.across.r * panel * share.raw_bytes / 4 if share.raw_bytes else live
        live = stored * axes.down.n if share.anew else live  # once for each row of planes
        kept = HELD_BESIDE * (live + beside) if device.tiles or device.paces_weights else live
        return _Weights(stored, live, kept)

    def beside_us(self, arithmetic: Amount, sweeps: Amount, device: DeviceSpec, share: CoreShare) -> Amount:
        """Microseconds in which a core reads them so many times beside arithmetic that takes so long in all. What is
        asked for at an even pace comes in the time of the same sweep over weights."""
        again = read_us(self.live, self.kept, device)
        from_all = larger(self.stored, share.constants)
        first = read_us(self.stored, from_all, device)
        others = sweeps - share.pieces
        if not share.paced(device):
            return larger(arithmetic, share.pieces * first + others * again)
        each = arithmetic / sweeps
        rate = either(from_all <= PACED_KEPT * device.l3, PACED_KEPT_READ, PACED_READ)
        us = (overlapped_us(each, rate * reading, PACED_UNHIDDEN_SHARE) for reading in (first, again))
        return sum(count * time for count, time in zip((share.pieces, others), us, strict=True))


def _products_us(
    register_tiles: Amount, most: Amount, channels: int, blocks: Amount, device: DeviceSpec, share: CoreShare
) -> Amount:
    """Microseconds of the products of a box, in register tiles of up to `most` tiles."""
    products = most * register_tiles * channels * blocks
    if share.paired:  # of three blocks of channels two are multiplied at once
        products *= (1 - channels // device.lanes // 3 / -(-channels // device.lanes)) * WINOGRAD_PAIRS
    if share.integers:  # of 16 bits, half as many at a time as of bytes
        products /= max(1, device.byte_products // 2)
    return compute_us(products, device, PRODUCT_SHARE)


def _vectors_read(axes: Axes, channels: int, blocks: int, lanes: int) -> float:
    """How many vectors of a plane of the input take as long to read as one place of a tile."""
    if axes.residues == 1:
        return blocks
    if channels <= GATHERED_CHANNELS:
        each = axes.residues * channels
        return -(-each // lanes) + GATHERED * each / lanes
    return STRIDED_READS * axes.residues * blocks


def _transform_us(elements: Amount, device: DeviceSpec, near: Any) -> Amount:
    """Microseconds to transform so many elements, of tiles that are `near` or not."""

    def each(level: str, pace: float) -> float:
        gbps = device.bandwidth_at(level, device.cores) / device.cores * (pace if device.paces_weights else 1)
        return TRANSFORM_FLOPS / device.peak_gflops_per_core + TRANSFORM_BYTES / gbps

    return elements * either(near, each("l2", PACED_NEAR), each(device.shared[0], PACED_SPILL)) / 1e3


@lru_cache(maxsize=1 << 10)
def _taps_per_output(axis: Axis) -> float:
    """Mean number of taps that fall on the tensor along a swept axis, were the output as long as the input."""
    if axis.dim is None:
        return 1.0
    outputs = (axis.extent - 1) // axis.stride + 1
    return live_taps(outputs, axis.extent, axis.r, axis.stride, axis.dilation, axis.pad).sum() / outputs


@lru_cache(maxsize=1 << 10)
def live_taps(outputs: int, extent: int, kernel: int, stride: int, dilation: int, pad: int) -> np.ndarray:
    """For each tap of a dimension, the number of outputs for which it falls on the tensor; nobody may change it."""
    at = np.arange(outputs)[:, None] * stride - pad + np.arange(kernel) * dilation
    found = ((at >= 0) & (at < extent)).sum(axis=0)
    found.flags.writeable = False
    return found
