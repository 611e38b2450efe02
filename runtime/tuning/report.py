"""What tuning a network tried, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TriedPlan:
    """A plan that was tried. `ratio` is its time over that of the plan as modelled, in turns with it; None where it did
    not run, and `note` says why."""

    name: str
    ms: float | None
    ratio: float | None
    note: str = ""


@dataclass(frozen=True)
class TuningReport:
    """The tuning of one part of a model: milliseconds of a run as modelled and as chosen, in turns; which plan was
    taken, how many subgraphs of it differ from those modelled fastest, and the seconds that all that took."""

    tried: Sequence[TriedPlan]
    before_ms: float
    after_ms: float
    taken: str
    changed: int
    subgraphs: int
    seconds: float
    complete: bool  # whether everything was tried that was worth it

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON has them."""
        return asdict(self) | {"tried": [asdict(one) for one in self.tried]}
