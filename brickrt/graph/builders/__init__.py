"""A builder per ONNX operator, by family. Importing this package registers them all."""

from brickrt.graph.builders import recurrent
from brickrt.graph.builders.arithmetic import (
    activation,
    cast,
    constants,
    cumulative,
    einsum,
    elementwise,
    fourier,
    matrix,
    reduction,
    softmax,
)
from brickrt.graph.builders.attention import attention
from brickrt.graph.builders.integers import packed_weights
from brickrt.graph.builders.norms import batch_norm, local_norm, normalization
from brickrt.graph.builders.quantized import quantization, quantized_products, quantized_recurrent
from brickrt.graph.builders.shapes import indexing, movement, placing, selection, shape, top
from brickrt.graph.builders.spatial import affine, convolution, deformed, folding, padding, pooling, resize, sampling

__all__ = [
    "activation",
    "affine",
    "attention",
    "batch_norm",
    "cast",
    "constants",
    "convolution",
    "cumulative",
    "deformed",
    "einsum",
    "elementwise",
    "folding",
    "fourier",
    "indexing",
    "local_norm",
    "matrix",
    "movement",
    "normalization",
    "packed_weights",
    "padding",
    "placing",
    "pooling",
    "quantization",
    "quantized_products",
    "quantized_recurrent",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "selection",
    "shape",
    "softmax",
    "top",
]
