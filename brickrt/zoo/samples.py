"""Values to run a network of the zoo on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brickrt.zoo.registry import lookup

if TYPE_CHECKING:
    import numpy as np
    import onnx


def feeds(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded values by name for the inputs of a model that `zoo.build` made with fixed extents: normal floats, whole
    numbers in the range that the network knows."""
    import numpy as np  # here, so that listing networks does not load it

    rng = np.random.default_rng(seed)
    shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input}
    found: dict[str, np.ndarray] = {}
    for each in lookup(model.graph.name)[0].inputs:
        if each.dtype == "float32":
            found[each.name] = rng.standard_normal(shapes[each.name], dtype=np.float32)
        else:
            found[each.name] = rng.integers(0, each.below, shapes[each.name], dtype=each.dtype)
    return found
