"""What a user may ask of the planner."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.plan.device.device_spec import DeviceSpec

STRATEGIES = ("auto", "layerwise", "padded", "memoized")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True)
class PlanOptions:
    """`brick` is the edge of spatial bricks, `max_layers` the most heavy layers of a subgraph; None: the planner's.
    `exact` rules out algorithms that trade accuracy for speed (Winograd, Strassen). `precision` is how a GPU computes
    what the model has in float32: "tf32" rounds the factors of products, "fp16" and "bf16" all between inputs and
    outputs.

    ValueError, in one line, for an unknown strategy or an impossible number.
    """

    strategy: str = "auto"
    brick: int | None = None
    max_layers: int | None = None
    exact: bool = False
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy '{self.strategy}' is unknown: use one of {', '.join(STRATEGIES)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision '{self.precision}' is unknown: use one of {', '.join(PRECISIONS)}")
        _check_positive("brick", self.brick)
        _check_positive("max_layers", self.max_layers)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_precision(device: DeviceSpec, precision: str) -> None:
    """BrickError where a device computes float32 as float32 only."""
    if device.kind == "cpu" and precision != "fp32":
        raise BrickError(
            f"precision '{precision}' is for GPUs: the CPU computes in the model's own types; use fp32, or a GPU"
        )


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{name} {value!r} is impossible: give a whole number of at least 1")
