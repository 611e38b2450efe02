"""What the operators of ONNX Runtime's own domain stand for, in standard ones. Importing this package registers all."""

from brickrt.graph.contrib import (
    activations,
    attention,
    few_bits,
    fused_products,
    group_query,
    norms,
    others,
    pools,
    quantized_elements,
    quantized_products,
    recurrent,
    rotary,
)

__all__ = [
    "activations",
    "attention",
    "few_bits",
    "fused_products",
    "group_query",
    "norms",
    "others",
    "pools",
    "quantized_elements",
    "quantized_products",
    "recurrent",
    "rotary",
]
