"""What a user may ask of the planner."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from brickrt.graph.errors import BrickError
from brickrt.plan.device.device_spec import DeviceSpec

SubgraphStrategy = Literal["layerwise", "padded", "memoized", "fused"]
"""How a subgraph runs: one node in tasks of its own; several in bricks that recompute their halos; several in bricks of
which each is computed once; or, on a GPU, in bricks whose intermediates stay in shared memory."""

Strategy = Literal["auto", SubgraphStrategy]
"""What a user asks for: a strategy wherever it is possible, or "auto", which takes the one modelled fastest."""

Rules = Literal["model", "brickdl", "unfused"]
"""What "auto" chooses by: the cost model; the rules of the BrickDL paper, taken literally; or that each function is an
operator of its own, which runs by itself."""

Precision = Literal["fp32", "tf32", "fp16", "bf16"]
"""How a device computes what the model has in float32: a GPU in any of these."""

CpuPrecision = Literal["fp32", "bf16"]
"""The precisions that a CPU has."""


@dataclass(frozen=True)
class PlanOptions:
    """What a user asks of the planner.

    `brick` is the edge of spatial bricks, `max_layers` the most convolutions and products of a subgraph; None leaves
    either to the planner. `exact` rules out algorithms that trade accuracy for speed (Winograd, Strassen, pairs).
    Of the precisions, "tf32" rounds the factors of products, "fp16" and "bf16" all between inputs and outputs; on the
    CPU, "bf16" keeps what is not a factor in float32. `rules` are what the strategy "auto" chooses by.

    Raises ValueError, in one line, for an unknown name, an impossible number and rules that have no effect.
    """

    strategy: Strategy = "auto"
    brick: int | None = None
    max_layers: int | None = None
    exact: bool = False
    precision: Precision = "fp32"
    rules: Rules = "model"

    def __post_init__(self) -> None:
        _check_choice("strategy", self.strategy, get_args(Strategy))
        _check_choice("precision", self.precision, get_args(Precision))
        _check_choice("rules", self.rules, get_args(Rules))
        if self.rules != "model" and self.strategy != "auto":
            raise ValueError(f"rules '{self.rules}' choose the strategies: leave them out, or strategy {self.strategy}")
        if self.exact not in (True, False):
            raise ValueError(f"exact {self.exact!r} is impossible: give True or False")
        _check_positive("brick", self.brick)
        _check_positive("max_layers", self.max_layers)

    def to_dict(self) -> dict[str, Any]:
        """The options by name."""
        return asdict(self)


def strategies_of(device: DeviceSpec) -> tuple[Strategy, ...]:
    """The strategies that a device has: only a GPU has shared memory for fused bricks."""
    known: tuple[Strategy, ...] = get_args(Strategy)
    return known if device.kind == "cuda" else tuple(name for name in known if name != "fused")


def check_options(device: DeviceSpec, precision: Precision, strategy: Strategy = "auto") -> None:
    """Raises BrickError for a precision that a device does not compute float32 models in, or a strategy that it does
    not have."""
    if device.kind == "cpu" and precision not in get_args(CpuPrecision):
        raise BrickError(f"precision '{precision}' is for GPUs: on the CPU use fp32 or bf16, or take a GPU")
    if strategy not in strategies_of(device):
        raise BrickError(f"strategy '{strategy}' is for GPUs, which have shared memory for it: on the CPU use padded")


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} '{value}' is unknown: use one of {', '.join(known)}")


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{name} {value!r} is impossible: give a whole number of at least 1")
