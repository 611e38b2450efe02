"""Networks made of random layers in two or three dimensions, with odd extents and branches."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import onnx

from tests.support.random_draft import Draft
from tests.support.random_layers import LAYERS, Layer

MOST_ELEMENTS = 60_000  # of a tensor


def random_network(
    decisions: random.Random,
    most_layers: int = 9,
    extents: tuple[int, ...] | None = None,
    layers: Sequence[Layer] = LAYERS,
) -> onnx.ModelProto:
    """One input `x` [1–3, channels, *extents], float32; two or three extents that are drawn, unless they are given."""
    space = (decisions.randint(5, 37), decisions.randint(5, 37))
    if decisions.random() < 0.3:
        space = tuple(decisions.randint(3, 13) for _ in range(3))
    if decisions.random() < 0.15:
        flat = decisions.randrange(len(space))
        space = tuple(1 if k == flat else extent for k, extent in enumerate(space))
    space = extents or space
    draft = Draft(decisions, (decisions.choice([1, 1, 2, 3]), decisions.choice([1, 3, 4, 8, 16, 20]), *space))
    for _ in range(decisions.randint(2, most_layers)):
        _grow(draft, layers)
    if not draft.made:
        draft.node("Relu", "x")
    return draft.model()


def _grow(draft: Draft, layers: Sequence[Layer]) -> None:
    """One layer more, mostly on the newest tensor; as it was where the layer does not fit or would be large."""
    x = draft.tensors[-1] if draft.random.random() < 0.75 else draft.random.choice(draft.tensors)
    before = len(draft.made)
    y = draft.random.choice(layers)(draft, x)
    made = [draft.shape(name) for node in draft.made[before:] for name in node.output]
    if y is None or any(min(shape, default=1) < 1 or math.prod(shape) > MOST_ELEMENTS for shape in made):
        del draft.made[before:]
        draft.tensors = [name for name in draft.tensors if name == "x" or draft.makes(name)]
    else:
        draft.tensors.append(y)
