"""A plan in a file of the user's: made once, run by other processes, to the same bits on equal hardware.

The file is JSON. Beside subgraphs it has all else that a plan depends on: options, the device with the speeds it was
planned with, and digests of the graph and of the code that planned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cache.parse_json import parse_json, read_as
from brickrt.runtime.cache.plan_cache import plan_digest, planning_code
from brickrt.runtime.cache.subgraph_codec import check
from brickrt.version import VERSION

HOW_TO_MAKE_AGAIN = "make it again by brickrt plan --output"


@dataclass(frozen=True)
class PlanFile:
    """What a file says, beside its digest: `code` and `graph` are digests of the code that planned and of what it
    planned, `inputs` the types of the inputs."""

    brickrt: str
    code: str
    device: DeviceSpec
    options: PlanOptions
    inputs: Mapping[str, str]
    graph: str
    subgraphs: tuple[Subgraph, ...]


def plan_file_text(graph: Graph, plan: Plan) -> str:
    """The text of a plan's file, in JSON. `graph` is what was planned: as specialized, in the precision of the
    options."""
    digest = plan_digest(graph, plan.device, plan.options)
    file = PlanFile(VERSION, planning_code(), plan.device, plan.options, _inputs(graph), digest, plan.subgraphs)
    content = asdict(file)
    return json.dumps(content | {"digest": _digest(content)}, indent=1) + "\n"


@dataclass(frozen=True)
class SavedPlan:
    """A plan that was read from a file; `path` is named in errors."""

    path: Path
    file: PlanFile

    @staticmethod
    def read(path: Path, device: DeviceSpec, precision: str) -> SavedPlan:
        """Reads a file, for a device that is here. Raises BrickError where it is damaged, or for something else."""
        saved = SavedPlan(path, _file(path))
        saved._refuse(saved._differs(device, precision))
        return saved

    @property
    def options(self) -> PlanOptions:
        """What was asked of the planner."""
        return self.file.options

    def plan(self, graph: Graph) -> Plan:
        """The plan, of the graph that was planned. Raises BrickError where it is another one."""
        self._refuse(self._is_for_another(graph))
        try:
            return check(make_plan(graph, self.file.device, self.options, decided=self.file.subgraphs))
        except (ValueError, ArithmeticError, LookupError) as e:  # the device's figures may be anything
            raise BrickError(f"{self.path}: is damaged ({e}): {HOW_TO_MAKE_AGAIN}") from None

    def _differs(self, device: DeviceSpec, precision: str) -> Iterator[str]:
        """How it does not fit, before a graph is known. Kernels and layouts depend on vectors and registers."""
        mine, here = (f"{d.isa}, {d.lanes} lanes, {d.registers} registers" for d in (self.file.device, device))
        if self.file.device.kind != device.kind:
            yield f"is for a device of kind {self.file.device.kind}, this is {device.kind}"
        if mine != here:
            yield f"is for {self.file.device.name} ({mine}), this is {device.name} ({here})"
        if self.options.precision != precision:
            yield f"is for precision {self.options.precision}, asked for is {precision}"
        if self.file.code != planning_code():
            yield f"was made by other code, brickrt {self.file.brickrt}; this is {VERSION}"

    def _is_for_another(self, graph: Graph) -> Iterator[str]:
        mine, here = self.file.inputs, _inputs(graph)
        if mine != here:
            yield f"is for inputs {_told(mine)}, these are {_told(here)}"
        if self.file.graph != plan_digest(graph, self.file.device, self.options):
            yield "is for another graph than this model's"

    def _refuse(self, differences: Iterator[str]) -> None:
        for difference in differences:
            raise BrickError(f"{self.path}: the plan {difference}: {HOW_TO_MAKE_AGAIN}")


def _file(path: Path) -> PlanFile:
    """What is in the file, as it was written."""
    try:
        content = None if path.is_char_device() else parse_json(path.read_bytes())  # a device may have no end
    except OSError as e:
        raise BrickError(f"{path}: cannot be read ({e.strerror or e}): give a file of brickrt plan --output") from None
    except ValueError:
        content = None
    if not isinstance(content, dict) or "digest" not in content:
        raise BrickError(f"{path}: is no plan: give a file of brickrt plan --output")
    if content.pop("digest") != _digest(content):
        raise BrickError(f"{path}: was changed after it was written: {HOW_TO_MAKE_AGAIN}")
    try:
        return read_as(PlanFile, content, "a plan")
    except ValueError as e:
        raise BrickError(f"{path}: is damaged ({e}): {HOW_TO_MAKE_AGAIN}") from None


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _inputs(graph: Graph) -> dict[str, str]:
    return {name: str(graph.types[name]) for name in graph.inputs}


def _told(inputs: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in inputs.items()) or "none"
