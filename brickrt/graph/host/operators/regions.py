"""The bins of regions of images (RoiAlign), in compiled code, and in NumPy where LLVM is not installed or elements are
not float32."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from brickrt.graph.host.helpers import run_items
from brickrt.graph.host.host_operator import Attributes, HostOperator, evaluates
from brickrt.graph.host.node_arrays import Arrays, shape_of, size_of
from brickrt.graph.host.operators.channels_last import channels_last, whole
from brickrt.ops.cpu.fixed_function import item_loop
from brickrt.ops.cpu.host_loops import (
    LANES,
    REGION_AXIS_WORDS,
    REGION_WORDS,
    SENTINELS,
    VECTORS_AT_ONCE,
    in_order,
    with_axes,
)

HALF_PIXELS = 16  # opset from which regions are half a pixel off by default
MOST_SAMPLES = 1 << 16
"""Samples of a bin along an axis: those of regions of millions of pixels lie farther apart."""
ROUNDED_PIXELS = 1e5
"""Pixels up to where a sample lies inside of its region, give or take a pixel, however a float32 is rounded."""
REGION_BYTES = 256  # of where one lies, its samples, and what these are computed from
IN_NUMPY = 1 << 16  # pixels of a bin, in all channels that NumPy takes together


def region_elements(arrays: Arrays, at: Attributes) -> int:
    """Elements of the bins of all regions."""
    extents = at.get("pooled_shape") or (at.get("output_height", 1), at.get("output_width", 1))
    return size_of([len(np.asarray(arrays[1])), shape_of(arrays)[1], *extents])


def _bytes(arrays: Arrays, at: Attributes, made: int, usual: float) -> float:
    x, rois = (np.asarray(v) for v in arrays[:2])
    bins = at.get("output_height", 1), at.get("output_width", 1)
    return made + region_bytes(x, rois, bins, at.get("spatial_scale", 1.0), at.get("sampling_ratio", 0))


@evaluates(HostOperator(region_elements, working_bytes=_bytes), "RoiAlign")
class RoiAlign(OpRun):
    """The bins of regions, sampled between pixels."""

    def _run(self, x, rois, images, mode="avg", output_height=1, output_width=1, spatial_scale=1.0, **settings: Any):
        half = settings["coordinate_transformation_mode"] == "half_pixel"
        half &= self.run_params["opsets"][""] >= HALF_PIXELS
        bins, maxima = (output_height, output_width), mode.lower() != "avg"
        regions = Regions.of(rois, images, bins, spatial_scale, settings["sampling_ratio"] or 0, half)
        regions.check(x)
        return (pooled(x, regions, maxima),)


@dataclass(frozen=True)
class Regions:
    """Where regions begin and how large their bins are [regions, 2] (down, across), in pixels; how many samples a bin
    has along both, and in which image each region lies."""

    starts: np.ndarray
    sizes: np.ndarray
    samples: np.ndarray
    images: np.ndarray
    bins: tuple[int, int]

    @staticmethod
    def of(
        rois: np.ndarray, images: np.ndarray, bins: tuple[int, int], scale: float, ratio: int, half: bool
    ) -> Regions:
        """Those with corners x0, y0, x1, y1, in the precision that they have, as ONNX Runtime does it: how many samples
        there are hangs on the last bit. `ratio` 0 is one sample a pixel, `half`: corners lie half a pixel off."""
        dtype = np.promote_types(rois.dtype, np.float32)
        with np.errstate(all="ignore"):
            ends = rois.astype(dtype).reshape(-1, 2, 2)[:, :, ::-1] * dtype.type(scale) - dtype.type(0.5 * half)
            extents = ends[:, 1] - ends[:, 0]
            extents = extents if half else np.maximum(extents, 1)
            sizes = (extents / np.array(bins, dtype)).astype(dtype)
            asked = np.nan_to_num(np.ceil(sizes), nan=0.0)
        samples = np.clip(np.full_like(asked, ratio) if ratio > 0 else asked, 0, MOST_SAMPLES)
        return Regions(ends[:, 0].copy(), sizes, samples.astype(np.int64), images.astype(np.int64).reshape(-1), bins)

    def check(self, x: np.ndarray) -> None:
        """Raises ValueError where a region lies in no image of x."""
        if len(self.images) != len(self.starts):
            raise ValueError(f"there are {len(self.starts)} regions and {len(self.images)} numbers of images")
        wrong = self.images[(self.images < 0) | (self.images >= len(x))]
        if wrong.size:
            raise ValueError(f"a region lies in image {wrong[0]} of {len(x)}")

    def box(self, axis: int, extent: int) -> tuple[int, int]:
        """The pixels along an axis that samples may lie between, of `extent`."""
        with np.errstate(all="ignore"):
            ends = np.stack([self.starts[:, axis], self.starts[:, axis] + self.sizes[:, axis] * self.bins[axis]])
        if not (np.abs(ends) < ROUNDED_PIXELS).all():
            return 0, extent
        first = min(max(math.floor(ends.min(initial=extent)) - 2, 0), extent - 1)
        return first, max(first + 1, min(math.ceil(ends.max(initial=0)) + 2, extent))


def pooled(x: np.ndarray, regions: Regions, maxima: bool) -> np.ndarray:
    """The bins of `regions` of x [images, channels, height, width]: [regions, channels, *bins]."""
    out = np.zeros((len(regions.starts), x.shape[1], *regions.bins), x.dtype)
    if not x.size or not out.size:
        return out
    function = item_loop("sampling.regions", "emit_regions", maxima) if x.dtype == np.float32 else None
    if function is None or regions.starts.dtype != np.float32:
        return pooled_in_numpy(x, regions, maxima)
    (top, bottom), (left, right) = (regions.box(axis, extent) for axis, extent in enumerate(x.shape[2:]))
    pixels = channels_last(x, slice(top, bottom), slice(left, right))
    steps = pixels.strides[1] // pixels.itemsize, pixels.strides[2] // pixels.itemsize
    origin = pixels.ctypes.data - top * pixels.strides[1] - left * pixels.strides[2]
    areas, taps = _scratch(regions)
    tables = {name: np.ascontiguousarray(getattr(regions, name)) for name in ("starts", "sizes", "samples", "images")}
    values = {name: table.ctypes.data for name, table in tables.items()}
    values |= {"pixels": origin, "out": out.ctypes.data, "channels": x.shape[1], "taps": taps, "tile": areas[6]}
    values["image_step"] = pixels.strides[0] // pixels.itemsize
    for axis in (0, 1):
        of_axis = [regions.bins[axis], x.shape[2 + axis], steps[axis], *areas[3 * axis : 3 * axis + 3]]
        values |= {f"{name}{axis}": value for name, value in zip(REGION_AXIS_WORDS, of_axis, strict=True)}
    words = in_order(with_axes(REGION_WORDS, REGION_AXIS_WORDS, 2), **values)
    run_items(function, len(out), words, areas[7])
    return out


def _scratch(regions: Regions) -> tuple[list[int], int]:
    """Where the areas of a worker's scratch begin, and where it ends; and the entries that a bin's taps may take."""
    taps = 2 * int(regions.samples.max(initial=0)) + SENTINELS
    sizes = [size for bins in regions.bins for size in (8 * bins * taps, 4 * bins * taps, 8 * bins)]
    sizes.append(4 * VECTORS_AT_ONCE * LANES * -(-math.prod(regions.bins) // LANES) * LANES)
    ends = np.cumsum([0, *(-(-size // 64) * 64 for size in sizes)])
    return ends.tolist(), taps


def region_bytes(x: np.ndarray, rois: np.ndarray, bins: tuple[int, int], scale: float, ratio: int) -> int:
    """Bytes that are taken at most beside the result: the image with channels last, the places of regions, and the taps
    of one region for each thread; in NumPy the pixels of a bin, of some channels."""
    images, channels, *space = x.shape
    turned = images * space[0] * whole(space[1]) * whole(channels) * 4
    regions = Regions.of(rois, np.zeros(len(rois)), bins, scale, ratio or 0, False)
    compiled = turned + len(rois) * REGION_BYTES + _scratch(regions)[1] * (os.cpu_count() or 1)
    most = int(regions.samples.max(initial=0))
    # of samples that are more than half a pixel apart, or asked for
    taps = [2 * (most if ratio else min(most, 2 * extent + 3)) for extent in space]
    return max(compiled, 3 * 8 * max(IN_NUMPY, math.prod(taps)))


def pooled_in_numpy(x: np.ndarray, regions: Regions, maxima: bool) -> np.ndarray:
    """What the compiled function gives, but for rounding."""
    out = np.zeros((len(regions.starts), x.shape[1], *regions.bins), x.dtype)
    for k, result in enumerate(out):
        axes = [_taps_of(regions, k, axis, extent) for axis, extent in enumerate(x.shape[2:])]
        image = x[regions.images[k]]
        for y, (rows, row_weights, above) in enumerate(axes[0]):
            for left, (columns, weights, beside) in enumerate(axes[1]):
                outside = above or beside or not len(rows) * len(columns)
                together = max(1, IN_NUMPY // max(1, len(rows) * len(columns)))
                for first in range(0, len(image), together):
                    part = image[first : first + together, rows][:, :, columns].astype(np.float64)
                    if maxima:
                        best = (part * np.outer(row_weights, weights)).max((1, 2), initial=-np.inf)
                        found = np.maximum(best, 0) if outside else best
                    else:
                        total = np.einsum("chw,h,w->c", part, row_weights, weights)
                        found = total / max(1, regions.samples[k].prod())
                    result[first : first + together, y, left] = found
    return out


def _taps_of(regions: Regions, k: int, axis: int, extent: int) -> list[tuple[np.ndarray, np.ndarray, bool]]:
    """Region k's taps along an axis, bin by bin: pixels, weights, and whether some sample lies outside of the image."""
    start, size, samples = (a[k, axis] for a in (regions.starts, regions.sizes, regions.samples))
    found = []
    for number in range(regions.bins[axis]):
        steps = np.arange(samples).astype(size.dtype) + size.dtype.type(0.5)
        with np.errstate(all="ignore"):
            at = (start + size.dtype.type(number) * size) + (steps * size) / size.dtype.type(max(1, samples))
            at = np.maximum(at[(at >= -1) & (at <= extent)], 0)
        low = np.minimum(at.astype(np.int64), extent - 1)
        high = np.minimum(low + 1, extent - 1)
        part = np.where(low < extent - 1, at - low, 0)
        found.append(
            (np.stack([low, high], 1).reshape(-1), np.stack([1 - part, part], 1).reshape(-1), len(at) < samples)
        )
    return found
