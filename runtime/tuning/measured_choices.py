"""Puts a plan together of the parts that were fastest in plans which were timed whole.

Parts that are equal but for names, such as repeated blocks of a network, are one: the mean of their times counts, and
they get the same choice. A choice of the plan as it was modelled stays unless another is faster by more than noise.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.tuning.parts import (
    LAYER_WAS_FASTER,
    Part,
    common_parts,
    decision,
    measured_faster,
    merged_where_faster,
)

NOISE_SHARE = 0.03  # of a part's time: what another choice must save


class MeasuredChoices:
    """Times of the parts of plans of one graph, of which `layers` have the smallest."""

    def __init__(self, plan: Plan, layers: Sequence[Subgraph]) -> None:
        self._layers = [frozenset(s.members) for s in layers]
        self._cost = CostModel(plan.graph, plan.layouts, plan.device)
        self._seconds: dict[Hashable, list[float]] = defaultdict(list)  # by structure and choice, an entry a plan
        self._found: dict[Part, dict[Hashable, tuple[Subgraph, ...]]] = defaultdict(dict)
        self._planned = dict(self._choices(plan.subgraphs))
        self._usual = dict(self._choices(layers)) | self._planned

    def add(self, subgraphs: Sequence[Subgraph], seconds: np.ndarray) -> None:
        """Notes how long each of the subgraphs took, float64 [subgraphs], in runs of the whole."""
        equal: dict[Hashable, list[float]] = defaultdict(list)
        for part, numbers in common_parts(self._layers, subgraphs):
            chosen = tuple(subgraphs[n] for n in numbers)
            choice = _choice(part, chosen)
            self._found[part].setdefault(choice, chosen)
            equal[self._structure(part), choice].append(float(seconds[list(numbers)].sum()))
        for key, took in equal.items():
            self._seconds[key].append(statistics.fmean(took))

    def fastest(self) -> tuple[Subgraph, ...]:
        """The subgraphs of a plan of the fastest parts. All layers must have been timed."""
        best = {part: self._best(part) for part in self._found}
        layers = [s for part in self._layers for s in best[part][0]]
        owner = {k: part for part in self._layers for k in part}
        merged: dict[Part, tuple[Subgraph, ...]] = {}
        saved: dict[Part, float] = {}
        for part in self._found.keys() - set(self._layers):
            merged[part], seconds = best[part]
            alone = sum(best[layer][1] for layer in {owner[k] for k in part})
            saved[part] = (1 + (NOISE_SHARE if part in self._planned else -NOISE_SHARE)) * alone - seconds
        return merged_where_faster(layers, merged, saved)

    def told(self, subgraphs: Sequence[Subgraph]) -> tuple[Subgraph, ...]:
        """Subgraphs whose reasons tell what was measured, in the order given."""
        told: dict[int, Subgraph] = {}
        for part, numbers in common_parts(self._layers, subgraphs):
            for n, s in zip(numbers, self._reasons(part, [subgraphs[n] for n in numbers]), strict=True):
                told[n] = s
        return tuple(told[n] for n in range(len(subgraphs)))

    def _reasons(self, part: Part, chosen: Sequence[Subgraph]) -> Iterator[Subgraph]:
        choice, others = _choice(part, chosen), len(self._found[part]) - 1
        merged = any(part < whole for whole in self._found)
        for s in chosen:
            if self._planned.get(part) == choice:
                tried = f"{others} other choice{'s' * (others > 1)}" if others else "" if not merged else "merging"
                yield replace(s, why=f"{s.why}; measured, and kept against {tried}") if tried else s
            elif self._usual.get(part) == choice and part not in self._planned:
                yield replace(s, why=LAYER_WAS_FASTER)
            else:
                yield measured_faster(s)

    def _best(self, part: Part) -> tuple[tuple[Subgraph, ...], float]:
        """The subgraphs chosen for a part and their seconds, of those that were timed at this place."""
        structure = self._structure(part)
        seconds = {choice: statistics.median(self._seconds[structure, choice]) for choice in self._found[part]}
        best, usual = min(seconds, key=seconds.__getitem__), self._usual.get(part)
        if usual in seconds and seconds[best] > (1 - NOISE_SHARE) * seconds[usual]:
            best = usual
        return self._found[part][best], seconds[best]

    def _structure(self, part: Part) -> Hashable:
        return self._cost.structure(sorted(part))

    def _choices(self, subgraphs: Sequence[Subgraph]) -> Iterator[tuple[Part, Hashable]]:
        for part, numbers in common_parts(self._layers, subgraphs):
            yield part, _choice(part, [subgraphs[n] for n in numbers])


def _choice(part: Part, chosen: Sequence[Subgraph]) -> Hashable:
    """What was decided for a part, equal for equal parts that lie elsewhere in the graph."""
    place = {k: number for number, k in enumerate(sorted(part))}
    return tuple(decision(s, place) for s in chosen)
