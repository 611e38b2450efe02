"""Windows of convolutions and pools: the attributes both have, with automatic padding worked out."""

from __future__ import annotations

from dataclasses import dataclass

from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import Unsupported

Ints = tuple[int, ...]
LARGEST_SETTING = 1 << 31
"""Positions are 64 bits wide: a product of two such settings stays below."""

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True)
class WindowAttributes:
    """A window: per spatial dimension its extent, stride, dilation, and the pads before and after."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Ints
    pads_end: Ints


def auto_pad(node: OnnxNode) -> str:
    """The node's way of padding. Raises ValueError for an unknown one."""
    mode = node.attrs.get("auto_pad") or "NOTSET"
    if mode not in AUTO_PADS:
        raise ValueError(f"auto_pad '{mode}' is none of {', '.join(AUTO_PADS)}")
    return mode


def per_dimension(node: OnnxNode, attribute: str, rank: int, default: int) -> Ints:
    """An integer attribute per dimension, or its default for each."""
    return tuple(int(v) for v in node.attrs.get(attribute) or (default,) * rank)


def steps(node: OnnxNode, rank: int) -> tuple[Ints, Ints]:
    """Strides and dilations of a window. Raises ValueError where one is below 1."""
    strides, dilations = (per_dimension(node, name, rank, 1) for name in ("strides", "dilations"))
    for name, values in (("strides", strides), ("dilations", dilations)):
        if min(values, default=1) < 1:
            raise ValueError(f"{name} {list(values)} must be at least 1")
    return strides, dilations


def require_moderate(**settings: Ints) -> None:
    """Raises ValueError for a setting with an entry so large that positions in the input would overflow."""
    for name, values in settings.items():
        if max(values, default=0) > LARGEST_SETTING:
            raise ValueError(f"{name} {list(values)} is larger than any tensor can be")


def of_weights(node: OnnxNode, kernel: Ints) -> Ints:
    """The extents of the kernel, taken from the weights. Raises ValueError where `kernel_shape` says otherwise."""
    stated = per_dimension(node, "kernel_shape", len(kernel), 1)
    if "kernel_shape" in node.attrs and stated != kernel:
        raise ValueError(f"kernel_shape {list(stated)} is not that of the weights, {list(kernel)}")
    return kernel


def window_of(node: OnnxNode, spatial: Ints, kernel: Ints) -> WindowAttributes:
    """The window of a Conv or a pool over `spatial` dimensions.

    Raises Unsupported for negative pads, ValueError for settings that make no sense.
    """
    rank = len(spatial)
    if rank == 0:
        raise Unsupported("a window without spatial dimensions")
    if len(kernel) != rank or min(kernel) < 1:
        raise ValueError(f"a kernel of {list(kernel)} does not suit {rank} spatial dimensions")
    strides, dilations = steps(node, rank)
    require_moderate(kernel=kernel, strides=strides, dilations=dilations)
    if auto_pad(node).startswith("SAME"):
        begin, end = _same(auto_pad(node), spatial, kernel, strides, dilations)
    else:
        explicit = auto_pad(node) == "NOTSET"
        pads = per_dimension(node, "pads", 2 * rank, 0) if explicit else (0,) * (2 * rank)
        begin, end = pads[:rank], pads[rank:]
    if min(begin + end) < 0:
        raise Unsupported("negative pads")
    require_moderate(pads=begin + end)
    return WindowAttributes(kernel, strides, dilations, begin, end)


def _same(mode: str, spatial: Ints, kernel: Ints, strides: Ints, dilations: Ints) -> tuple[Ints, Ints]:
    """Pads before and after that give ceil(extent / stride) outputs."""
    totals = [
        max((-(-d // s) - 1) * s + (k - 1) * dilation + 1 - d, 0)
        for d, k, s, dilation in zip(spatial, kernel, strides, dilations, strict=True)
    ]
    return split_pads(mode, totals)


def split_pads(mode: str, totals: list[int]) -> tuple[Ints, Ints]:
    """Total pads split in those before and after; the odd element goes to the end for SAME_UPPER."""
    smaller, larger = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)
