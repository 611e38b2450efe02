"""Windows that move over images: convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from brickrt.graph.host.host_operator import Attributes, HostOperator, register
from brickrt.graph.host.node_arrays import Arrays, integers, shape_of, size_of


def pool_elements(arrays: Arrays, at: Attributes) -> int:
    """At most the padded image has."""
    shape, pads = shape_of(arrays), at.get("pads", ())
    n = len(shape) - 2
    return size_of([*shape[:2], *(shape[2 + k] + sum(pads[k::n]) for k in range(n))]) if any(pads) else 0


def pool_sums(arrays: Arrays, at: Attributes) -> int:
    """Every element of a window at every element of the image."""
    return math.prod(shape_of(arrays)) * math.prod(at["kernel_shape"])


def conv_products(arrays: Arrays, at: Attributes) -> float:
    """Every tap of every weight at every output: as many as inputs where the window moves by one."""
    x, weights = shape_of(arrays), next(x for x in arrays[1:] if x is not None and x.ndim > 2)
    strides = at.get("strides", [1] * (len(x) - 2))
    pads = at.get("pads", [0] * 2 * (len(x) - 2))
    n = len(x) - 2
    outputs = math.prod(max(1, (x[2 + k] + pads[k] + pads[n + k]) / max(1, strides[k])) for k in range(n))
    return x[0] * weights.size * outputs


def _columns(arrays: Arrays, at: Attributes, made: int, usual: float) -> float:
    """A column of taps for each element, too."""
    weights = next((x for x in arrays[1:] if x is not None and x.ndim > 2), None)
    taps = math.prod(at.get("kernel_shape") or (() if weights is None else weights.shape[2:]))
    return usual + 8 * taps * np.asarray(arrays[0]).size


def spread_extents(arrays: Arrays, at: Attributes, kernel: Sequence[int]) -> list[int]:
    """Spatial extents of a transposed window."""
    space = shape_of(arrays)[2:]
    n = len(space)
    strides, dilations = at.get("strides", [1] * n), at.get("dilations", [1] * n)
    more = at.get("output_padding", [0] * n)
    pads = at.get("pads", [0] * 2 * n)
    return [
        (space[k] - 1) * strides[k] + more[k] + (kernel[k] - 1) * dilations[k] + 1 - pads[k] - pads[k + n]
        for k in range(n)
    ]


def _transposed_elements(arrays: Arrays, at: Attributes) -> int:
    weights = shape_of(arrays, 1)
    space = at.get("output_shape") or spread_extents(arrays, at, weights[2:])
    return size_of([shape_of(arrays)[0], weights[1] * at.get("group", 1), *space])


def _column_image(arrays: Arrays, at: Attributes) -> int:
    batch, columns = shape_of(arrays)[:2]
    return size_of([batch, columns // size_of(integers(arrays[2])), *integers(arrays[1])])


register(HostOperator(pool_elements, conv_products, working_bytes=_columns), "Conv")
register(HostOperator(elements=None, products=conv_products, working_bytes=_columns), "ConvInteger", "QLinearConv")
register(
    HostOperator(
        _transposed_elements,
        products=lambda arrays, at: math.prod(shape_of(arrays)) * math.prod(shape_of(arrays, 1)[1:]),
        working_bytes=_columns,
    ),
    "ConvTranspose",
)
register(HostOperator(pool_elements, pool_sums), "AveragePool", "LpPool")
register(HostOperator(_column_image), "Col2Im")
