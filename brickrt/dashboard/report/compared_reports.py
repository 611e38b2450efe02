"""Two reports of runs of one model beside each other: where one took longer than the other.

Plans may group layers differently, so times are compared of the smallest groups of layers that are whole in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brickrt.dashboard.labels import shorten
from brickrt.graph.errors import BrickError

Json = dict[str, Any]
DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class RunReport:
    """What a report says: its title, figures and environment, and its subgraphs with their times."""

    path: str
    title: str
    summary: dict[str, str]
    environment: dict[str, str]
    subgraphs: tuple[Json, ...]

    @property
    def busy_us(self) -> float:
        """The time of all workers."""
        return sum(s["busy_us"] for s in self.subgraphs)


@dataclass(frozen=True)
class ComparedLayers:
    """Layers that are whole in both: worker time in microseconds and strategies, of the first report and the second."""

    name: str
    nodes: tuple[str, ...]
    first_us: float
    second_us: float
    first: str
    second: str

    @property
    def more_us(self) -> float:
        """How much longer the second took."""
        return self.second_us - self.first_us

    def to_dict(self) -> Json:
        """The figures as JSON has them."""
        return asdict(self) | {"more_us": self.more_us}


def read_report(path: Path) -> RunReport:
    """A page of `brickrt run --report`. Raises BrickError for anything else."""
    wrong = f"{path}: is no report of a run: give a page of brickrt run --report"
    try:
        found = DATA.search(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise BrickError(wrong) from None
    except OSError as e:
        raise BrickError(f"{path}: cannot be read ({e.strerror}): check the path") from None
    try:
        data = json.loads(found[1]) if found else {}
        if "bands_run" in data:
            raise BrickError(f"{path}: is of a run band by band, without times of layers: give one of a run in memory")
        subgraphs = tuple(s for graph in data["graphs"] for s in graph["subgraphs"])
        if not any(graph["runs"] for graph in data["graphs"]):
            raise BrickError(f"{path}: is a plan, without times: give a page of brickrt run --report")
        assert all(isinstance(s["nodes"], list) and s["busy_us"] >= 0 and s["strategy"] for s in subgraphs)
        return RunReport(str(path), str(data["title"]), data["summary"], data["environment"], subgraphs)
    except (AssertionError, KeyError, TypeError, json.JSONDecodeError):
        raise BrickError(wrong) from None


def compared_layers(first: RunReport, second: RunReport) -> list[ComparedLayers]:
    """The smallest groups of layers that are whole in both, in the order of the first report. Raises BrickError where
    the reports have no layer in common."""
    names = [{node for s in report.subgraphs for node in s["nodes"]} for report in (first, second)]
    if not names[0] & names[1]:
        raise BrickError(f"{first.path} and {second.path} have no layer in common: give two reports of one model")
    leader = _groups([s["nodes"] for report in (first, second) for s in report.subgraphs])
    groups: dict[str, list[list[Json]]] = {}
    for which, report in enumerate((first, second)):
        for s in report.subgraphs:
            groups.setdefault(leader[s["nodes"][0]], [[], []])[which].append(s)
    return [_compared(*both) for both in groups.values()]


def _groups(sets: Iterable[Sequence[str]]) -> dict[str, str]:
    """For each name one that stands for its group: names that are in one set are in one group."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for names in sets:
        for name in names:
            leader[find(name)] = find(names[0])
    return {name: find(name) for name in list(leader)}


def _compared(first: Sequence[Json], second: Sequence[Json]) -> ComparedLayers:
    nodes = tuple(dict.fromkeys(node for s in (*first, *second) for node in s["nodes"]))
    times = [sum(s["busy_us"] for s in part) for part in (first, second)]
    ways = [
        ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in _counts(part).items()) for part in (first, second)
    ]
    return ComparedLayers(shorten(list(nodes)), nodes, *times, *ways)


def _counts(part: Sequence[Json]) -> Mapping[str, int]:
    kinds = [str(s["strategy"]) for s in part]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
